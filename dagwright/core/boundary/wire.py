"""Names on the wire: constants, never derived from Python names and never reused with another meaning.

Other programs (the Temporal UI, clients in other languages, saved histories) hold these texts, so a
rename here is a break.
"""

from dagwright.core.model import tools

WORKFLOW_RUN_PLAN = "RunPlan"
WORKFLOW_RUN_AGENT = "RunAgent"
"""A plan that grows by what a model wants called."""
WORKFLOW_PURSUE_GOAL = "PursueGoal"
"""A plan that grows by what a model plans."""
WORKFLOWS = frozenset({WORKFLOW_RUN_PLAN, WORKFLOW_RUN_AGENT, WORKFLOW_PURSUE_GOAL})
"""Every type of run: whatever is in here counts as a user of stored payloads."""
WORKFLOW_CONVERSE = "Converse"
"""A session: starts a run for each turn, and keeps what the next one has to know. It holds no stored payloads."""
KNOWN_WORKFLOWS = WORKFLOWS | {WORKFLOW_CONVERSE}
"""Every workflow type that workers have."""
ID_SESSION = "session-"
"""Begins the workflow id of a session; its name follows."""
IS_RUN = "WorkflowType IN ('RunPlan', 'RunAgent', 'PursueGoal')"
"""The same as a condition of a list query."""

NOTE_PARKED_TOOL = "ParkedTool"
"""A note that a tool is parked, as long as it is open; nobody works on it."""
ID_PARKED_TOOL = "dagwright-parked/"
"""Begins the workflow id of such a note; the name of the tool follows."""
NOTE_PAYLOAD_STORE = "PayloadStore"
"""A note that says which payload store the workers of a task queue use; no worker polls it."""
ID_PAYLOAD_STORE = "dagwright-store/"
"""Begins the workflow id of such a note; the task queue follows."""
MEMO_STORE_ID, MEMO_STORE_LOCATION = "dagwright_store_id", "dagwright_store_location"
"""Workflow memo of such a note: ID of the store, and where the worker that published it finds it."""
NOTES = frozenset({NOTE_PARKED_TOOL, NOTE_PAYLOAD_STORE})
"""Types of workflows that are only notes: no worker runs them."""
QUEUE_OF_NOTES = "dagwright-notes"
"""Task queue of such notes; no worker polls it."""
MEMO_TOOL, MEMO_BY, MEMO_REASON = "dagwright_tool", "dagwright_by", "dagwright_reason"
"""Workflow memo of such a note: the tool, who parked it, and why."""
PAUSED_AS_PARKED = "tool parked"
"""Begins the reason for which the server holds back a call of a parked tool."""
PAUSED_AS_MISSING = "tool missing"
"""Prefix of the reason for which the server pauses a call of a tool that its worker does not have."""

SIGNAL_FEEDBACK = "feedback"
SIGNAL_SUB_PLAN_ENDED = "sub_plan_ended"
SIGNAL_BUDGET_TOLD = "budget_told"
"""From a sub-plan to the run above it: its calls of models that wait for budget, and how others have ended."""
SIGNAL_BUDGET_GIVEN = "budget_given"
"""From a run to its sub-plan: which of those calls may start, or that it has to finish with what it has."""
SIGNAL_PLANNED = "planned"
"""Brings nodes of a plan that a model still writes: `dagwright.protocol.planned_nodes`."""

SIGNAL_TURN_ENDED = "turn_ended"
"""From the run of a turn to its session: what it has come to."""
UPDATE_START_TURN = "start_turn"
"""To a session: starts the run of the next turn."""
SIGNAL_END_SESSION = "end_session"
"""To a session: it takes no more turns, and ends as soon as none runs."""

UPDATE_SUBMIT_FEEDBACK = "submit_feedback"

# What people do to a run. Each is both a signal and an update; the update says at once whether it counts.
CANCEL = "cancel"
PAUSE = "pause"
RESUME = "resume"
CANCEL_NODE = "cancel_node"
RETRY_NODE = "retry_node"
SET_RESULT = "set_result"
APPEND_NODES = "append_nodes"
SET_POLICY = "set_policy"
SET_LIMITS = "set_limits"

QUERY_STATUS = "status"
QUERY_PENDING = "pending_feedback"
QUERY_NODE = "node"
QUERY_GRAPH = "graph"

ACTIVITY_COMPILE_PLAN = "compile_plan"
ACTIVITY_LOAD_PLAN = "load_plan"
ACTIVITY_RUN_REGION = "run_region"
ACTIVITY_FIND_ENDED = "find_ended_sub_plans"
ACTIVITY_END_CANCELLED = "end_cancelled"
"""Local activity: requests the cancellation of its own workflow; its marker holds the document of a cancelled run."""
ACTIVITY_PUT_BLOB = "put_blob"
ACTIVITY_GET_BLOB = "get_blob"
ACTIVITY_LOAD_ITEMS = "load_items"
ACTIVITY_JOIN_ITEMS = "join_items"
ACTIVITY_LOAD_VALUES = "load_values"
"""Puts stored values into the arguments of a call to an activity that is not Dagwright's."""
ACTIVITY_AWAIT_STORE = "await_store"
"""Waits until the payload store answers, for a call that could not be made or whose result could not be stored."""
ACTIVITY_CALL_MODEL = tools.MODEL_TOOL
"""Asks a model: `dagwright.planning.model_calls.calls`."""
ACTIVITY_READ_MODEL_PLAN = tools.PLAN_READER
"""Makes nodes of what a model wrote: `dagwright.planning.plan_and_execute.goals`."""
ACTIVITY_LOAD_OUTPUT = "load_run_output"
"""Loads the output of a run that has ended, for a workflow of another type that started it."""
ACTIVITY_NOTIFY = "notify"
"""Tells the hook what happened to the requests of a run."""
OWN_ACTIVITIES = frozenset(
    {
        ACTIVITY_COMPILE_PLAN,
        ACTIVITY_LOAD_PLAN,
        ACTIVITY_RUN_REGION,
        ACTIVITY_FIND_ENDED,
        ACTIVITY_END_CANCELLED,
        ACTIVITY_PUT_BLOB,
        ACTIVITY_GET_BLOB,
        ACTIVITY_LOAD_ITEMS,
        ACTIVITY_JOIN_ITEMS,
        ACTIVITY_LOAD_VALUES,
        ACTIVITY_AWAIT_STORE,
        ACTIVITY_LOAD_OUTPUT,
        ACTIVITY_NOTIFY,
    }
)
"""Activities that are no node's: every other one is a tool, or asks a model."""

OWN_ID_MARK = "~"
"""What the activity ids begin with that a run uses beside its steps; no step has such an id."""
ID_FIND_ENDED = f"{OWN_ID_MARK}ended sub-plans"
"""Activity id: only one looks at a time."""
ID_END_CANCELLED = f"{OWN_ID_MARK}end as cancelled"
"""Activity ID of `ACTIVITY_END_CANCELLED`."""
ID_LOAD_VALUES = f"{OWN_ID_MARK}values of "
"""Begins the activity ids under which arguments of foreign activities are loaded; the id of the task follows."""
ID_AWAIT_STORE = f"{OWN_ID_MARK}store for "
"""Begins the activity IDs under which a call waits for the payload store; the id of the task follows."""
ID_LOAD_ITEMS = f"{OWN_ID_MARK}items"
"""Activity id: the items of the chunk of a large map that a run does."""
ID_PUT_RESULTS = f"{OWN_ID_MARK}put results"
"""Activity id, with a number behind it: a piece of the results of such a run."""
ID_PUT_STATE = f"{OWN_ID_MARK}put state"
ID_GET_STATE = f"{OWN_ID_MARK}get state"
"""Activity ids, with a number behind them: pieces of the state that a run hands on."""

ID_NOTIFY = f"{OWN_ID_MARK}notify"
"""Activity id, with a number behind it: some notices for the hook."""

SEARCH_STATE = "DagwrightState"
"""Keyword: the state of the run (docs/internals/states.md)."""
ANSWER_HAS_STATE = "has_search_state"
"""In the answer of `compile_plan`, or the second detail of its failure: whether the namespace has `SEARCH_STATE` and
`SEARCH_AWAITING`. A run that sets an attribute that is not there is stuck."""
ANSWER_NOTIFY = "notify"
"""In the answer of `compile_plan`: true if its worker has a hook."""
SEARCH_AWAITING = "DagwrightAwaiting"
"""KeywordList: who or what the run waits for."""
WRITTEN_BY_RUNS = frozenset({SEARCH_STATE, SEARCH_AWAITING})
"""What a run writes, if it was started with a `SEARCH_STATE`; it is started with one only where both are there."""
SEARCH_SESSION = "DagwrightSession"
"""Keyword: the session a run belongs to."""
SEARCH_TITLE = "DagwrightTitle"
"""Keyword: title of the plan, cut to 255 characters."""
SEARCH_TEMPLATE = "DagwrightTemplate"
"""Keyword: name of the published plan that a run was started from."""
SEARCH_TAGS = "DagwrightTags"
"""KeywordList: tags of a run, each as `key=value`."""

HEADER_IDEMPOTENCY_KEY = "dagwright-idempotency-key"
"""Activity header, JSON text payload: the 40-character key of the node's effect."""
HEADER_HOLES = "dagwright-holes"
"""Activity header, JSON payload: the parts of the arguments that only the worker may fill in.

A list of `[path, parts]`: `path` is a list of object keys and list indices into the arguments. One part stands there as
the value that it is; several are joined to one text, in which a text stands as it is and anything else as JSON. A part
is `{"text": str}`, `{"secret": name}`, `{"stored": ref, "name": str, "paths": [path or query]}` (what the paths lead to
in a value of the payload store; `name` is what messages call that value), or `{"value": JSON, "holes": [as here]}`.
"""
HEADER_WANTED = "dagwright-wanted"
"""Activity header, JSON payload: `[[path or query, "value" or "whole"], …]`, the parts of the result that the plan
names. Should the result go to the payload store, these come back beside its reference."""
HEADER_CACHE = "dagwright-cache"
"""Activity header, JSON number: the seconds for which the result of an equal call may be used again, 0 for never.
Without it that is what the effects of the tool say: any time for `pure`, never for the others."""

HEADER_CHECKED_VERSION = "dagwright-checked-version"
"""Activity header, JSON text payload: the version of a pinned tool that the plan was checked against."""
HEADER_ANSWERS = "dagwright-answers"
"""Activity header, JSON payload: `[{"request", "answer", "checkpoint"}, …]`, what people answered to what the call has
asked before, in order, each with what the call kept for itself then, if it did."""

HEADER_MODEL = "dagwright-model"
"""Activity header, JSON of a `ModelConfig`: which model is asked in the run, and how, by tools and by
model calls that do not say it themselves. Without it that is up to the settings of the worker."""

HEADER_EFFECTS = "dagwright-effects"
"""Activity header, JSON text payload, `idempotent`: the plan's author declares that the call may be repeated. Without
it the effects of the tool and the arguments decide."""
HEADER_OWNER = "dagwright-owner"
"""Activity header, JSON text payload: `MEMO_OWNER` of the run that makes the call. A run that was started without a key
sends none."""

METADATA_ATTEMPT = "dagwright-attempt"
"""Metadata of a result payload, ASCII digits: the attempt that made the result, 1 for the first."""
METADATA_STARTED_AT = "dagwright-started-at"
"""Metadata of a result payload: RFC 3339 time at which that attempt started."""
METADATA_STORED = "dagwright-stored"
"""Metadata of a result payload, `1`: the payload is no value but tells of one in the payload store. Nothing that a tool
returns can set it, so no result is ever mistaken for a reference."""
DETAIL_STARTED = "started"
"""Of the details of a heartbeat of a `write`: the attempt that has called, or is about to call, the tool."""
DETAIL_CALLS = "calls"
"""Of the details of a heartbeat of a `write`: `[count, attempt]`, how many attempts have called the tool and the last
of them."""
HEADER_ATTEMPTS = "dagwright-attempts"
"""Activity header of a `write`, JSON number: how many attempts may call the tool. Temporal allows more, for those whose
worker died before the call."""
DETAIL_WAITS_FOR = "waits_for"
"""Of the details of a heartbeat: why the payload store does not answer."""
DETAIL_WHOLE = "whole"
"""Of the details of a failure: reference of its whole text and traceback in the payload store."""
METADATA_CACHED = "dagwright-cached"
"""Metadata of a result payload, JSON `{"made_at", "workflow_id", "node"}`: an earlier call made the result, at that RFC
3339 time."""
METADATA_USAGE = "dagwright-usage"
"""Metadata of a result payload, JSON of `core.model.usage.Usage`: what the models have used that the attempt asked; not
there if it asked none."""
DETAIL_USAGE = "usage"
"""Of the details of a failure: the same of an attempt that failed."""
METADATA_SEEN = "dagwright-seen"
"""Metadata of a result payload, JSON of `plan.seen.Seen`: files and addresses that the attempt has read; not there if
it told none."""
DETAIL_SEEN = "lineage"
"""Of the details of a failure and the end of a run: the same."""
METADATA_TOOL_VERSION = "dagwright-tool-version"
"""Metadata of a result payload: version of the tool that made the result."""

ERROR_ASK_PERSON = "ask_person"
"""`ApplicationError.type` of a call that asks a person and is made again with the answer; its first detail has the
`request`, a text or an object with the fields of `human`, and may have a `checkpoint` for the next call."""
ERROR_OUTCOME_UNKNOWN = "outcome_unknown"
"""Code of a `write` whose worker died after the tool was called, or that took too long."""
ERROR_NOT_STARTED = "not_started"
"""Code of a call that ended before its tool changed anything; it may be repeated, also a `write`."""
ERROR_TOOL_PARKED = "tool_parked"
"""`ApplicationError.type` of an attempt that found its tool parked and did nothing."""
ERROR_TOOL_MISSING = "tool_missing"
"""`ApplicationError.type` of an attempt whose tool no worker of its queue has."""
ERROR_STORE_AWAY = "store_away"
"""`ApplicationError.type` of a call that ended because the payload store did not respond. The run repeats the call some
times, each time after `ACTIVITY_AWAIT_STORE` has ended."""
ERROR_STORE_UNAVAILABLE = "store_unavailable"
"""Code of a call that failed because the payload store did not respond."""
DETAIL_UNSTORED_BYTES = "unstored_bytes"
"""Of the details of an `ERROR_STORE_AWAY`: size of the result that could not be stored; 0 if an argument could not be
loaded and the tool was not called."""
ERROR_BUG = "Bug"
"""`ApplicationError.type` of a run that ended by a defect of Dagwright itself."""
ERROR_UNKNOWN_TYPE = "UnknownWorkflowType"
"""Type of the failure of an execution whose workflow type no worker has."""
ERROR_REFUSED = "Refused"
"""`ApplicationError.type` of an update that was refused; the message says why."""
ERROR_PLAN_FAILED = "PlanFailed"
"""`ApplicationError.type` of a run whose plan failed; its first detail is the result document."""
ERROR_STORE_REFUSED = "store_refused"
"""Code of what failed because a text of a run's own could not be put into the payload store, for good."""

MEMO_TOOLS = "dagwright_tools"
"""Workflow memo: the list of `--tools` values the run was started with."""
MEMO_DIGEST = "dagwright_digest"
"""Workflow memo: digest of plan and inputs, so that `--id` attaches only to the same run."""

MEMO_NODES = "dagwright_nodes"
"""Workflow memo: how many nodes the plan has."""
MEMO_CHANGED = "dagwright_changed"
"""Workflow memo: id of the step that failed, was cancelled or asked last, while nothing started."""
MEMO_TITLE = "dagwright_title"
"""Workflow memo: title of the plan."""

MEMO_TEMPLATE = "dagwright_template"
"""Workflow memo: name of the published plan that a run was started from."""
MEMO_TAGS = "dagwright_tags"
"""Workflow memo: object of the tags of a run, name -> value."""

MEMO_SESSION = "dagwright_session"
"""Workflow memo of the run of a turn: the name of its session. The runs below it do not have it."""
MEMO_SESSION_STATE = "dagwright_session_state"
"""Workflow memo of a session: all that it knows, as `protocol.sessions` reads it."""

MEMO_OWNER = "dagwright_owner"
"""Workflow memo of a run or session that was started with a key of the API, and of its sub-plans: the key's owner."""

MEMO_CALLER = "dagwright_caller"
"""Workflow memo of a run that a workflow of another type has started as its child: the id of that workflow."""
MEMO_CALLED = "dagwright_called"
"""Workflow memo of the sub-plans of such a run, at any depth: true. Their root is a workflow that is not a run."""

MEMO_BEGAN = "dagwright_began"
"""Workflow memo of a run that goes on in a new execution: RFC 3339 time at which the first one started."""

TIMER_DEADLINE = "deadline of the run"
"""Summary of the timer that ends a run at its deadline."""
TIMER_GRACE = "waiting for running steps to stop"
"""Summary of the timer after which a cancelled run waits no longer."""
TIMER_DRAIN = "waiting for running steps, to go on in a new history"
"""Summary of the timer after which a run with a long history starts more steps all the same."""
TIMER_REQUESTS = "waiting for people"
"""Summary of the timer of the earliest deadline or reminder of what people were asked."""
TIMER_NOTIFY = "telling people how the last requests ended"
"""Summary of the timer after which a run that has ended waits no longer for its hook."""
TIMER_TELLING = "telling what the run waits for"
"""Summary of the timer after which search attributes are written again."""
TIMER_LOOK = "looking for sub-plans that ended without a report"
"""Summary of the timer between two looks at the sub-plans that an execution before has started."""
TIMER_LOOK_ABOVE = "looking whether the run above is there, which has the budget"
"""Summary of the timer between two looks of a sub-plan whose calls wait."""
REASON_TEMPORAL_CANCEL = "cancelled through Temporal"
"""Reason of the nodes that Temporal's own cancel stopped."""

DEFAULT_TASK_QUEUE = "dagwright"
