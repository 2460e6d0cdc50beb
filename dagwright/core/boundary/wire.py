"""Names on the wire: constants, never derived from Python names and never reused with another meaning.

Other programs (the Temporal UI, clients in other languages, saved histories) use these texts, so a renamed text is a
breaking change.
"""

from dagwright.core.model import tools

WORKFLOW_RUN_PLAN = "RunPlan"
WORKFLOW_RUN_AGENT = "RunAgent"
"""A plan that is extended by a model's tool calls."""
WORKFLOW_PLAN_AND_EXECUTE = "PlanAndExecute"
"""A plan that is extended by further plans that a model writes."""
WORKFLOWS = frozenset({WORKFLOW_RUN_PLAN, WORKFLOW_RUN_AGENT, WORKFLOW_PLAN_AND_EXECUTE})
"""Workflow types of runs: all of them may refer to stored payloads."""
RUN_WORKFLOWS_FILTER = "WorkflowType IN ('RunPlan', 'RunAgent', 'PlanAndExecute')"
"""Condition of a list query that selects the workflow types of runs."""
WORKFLOW_SESSION = "Session"
"""A session: starts a run for each turn, and keeps the state that the next turn needs. It refers to no payloads in the
payload store."""
WORKFLOW_CALL_LIMIT = "CallLimit"
"""A limit of calls across all runs: grants or delays the start of calls. It refers to no payloads in the payload
store."""
KNOWN_WORKFLOWS = WORKFLOWS | {WORKFLOW_SESSION, WORKFLOW_CALL_LIMIT}
"""All workflow types that workers run."""
ID_SESSION = "session-"
"""Prefix of the workflow id of a session; the name of the session follows."""

ID_CALL_LIMIT = "dagwright-limit/"
"""Prefix of the workflow id of a `CallLimit`; the subject of the limit follows, such as `tool:http_request`."""
MEMO_CALL_LIMIT = "dagwright_limit"
"""Workflow memo of a limit: its settings, as `protocol.call_limit_messages` reads them."""
UPDATE_EXCHANGE = "exchange"
"""From a worker to a `CallLimit`: which calls request to start, have ended (release) or still run (renewal). The update
returns the answers to the requests."""
UPDATE_CONFIGURE = "configure"
"""To a `CallLimit`: changes the settings and returns the previous settings."""
QUERY_LIMIT_USE = "use"
"""To a `CallLimit`: returns the running and the waiting calls."""

WORKFLOW_PAUSED_TOOL = "PausedTool"
"""A note (see `NOTE_WORKFLOWS`): the tool is paused while this workflow is open."""
ID_PAUSED_TOOL = "dagwright-paused-tool/"
"""Prefix of the workflow id of a `PausedTool` note; the name of the tool follows."""
WORKFLOW_PAYLOAD_STORE = "PayloadStore"
"""A note (see `NOTE_WORKFLOWS`): records the payload store of the workers of a task queue."""
ID_PAYLOAD_STORE = "dagwright-store/"
"""Prefix of the workflow id of a `PayloadStore` note; the task queue follows."""
MEMO_STORE_ID, MEMO_STORE_LOCATION = "dagwright_store_id", "dagwright_store_location"
"""Workflow memo of a `PayloadStore` note: ID of the store, and the location of the store in the settings of the worker
that published the note."""
NOTE_WORKFLOWS = frozenset({WORKFLOW_PAUSED_TOOL, WORKFLOW_PAYLOAD_STORE})
"""Workflow types of notes: open workflows that only record a fact; no worker runs them."""
NOTE_TASK_QUEUE = "dagwright-notes"
"""Task queue of all notes; no worker polls it."""
MEMO_TOOL, MEMO_PAUSED_BY, MEMO_REASON = "dagwright_tool", "dagwright_by", "dagwright_reason"
"""Workflow memo of a `PausedTool` note: the tool, the user who paused it, and the reason."""
PAUSED_FOR_TOOL = "tool paused"
"""Prefix of the reason for which the server pauses a call of a paused tool."""
PAUSED_FOR_MISSING_TOOL = "tool missing"
"""Prefix of the reason for which the server pauses a call of a tool unknown to its worker."""

SIGNAL_FEEDBACK = "feedback"
SIGNAL_SUB_PLAN_ENDED = "sub_plan_ended"
SIGNAL_BUDGET_REPORT = "budget_report"
"""From a child run to its parent: model calls that wait for budget, and the outcome of other model calls."""
SIGNAL_BUDGET_GRANT = "budget_grant"
"""From a run to its child run: the calls that may start, or the request to finish with the data that the child run
has."""
SIGNAL_PLANNED = "planned"
"""Nodes of a plan that a model is still writing: `dagwright.protocol.planned_nodes`."""

SIGNAL_TURN_ENDED = "turn_ended"
"""From the run of a turn to its session: the result of the turn."""
UPDATE_START_TURN = "start_turn"
"""To a session: start the run of the next turn."""
SIGNAL_END_SESSION = "end_session"
"""To a session: accept no more turns, and end as soon as no turn is active."""

UPDATE_SUBMIT_FEEDBACK = "submit_feedback"

# Commands for a run. Each is both a signal and an update; the update returns whether the command was accepted.
CANCEL = "cancel"
PAUSE = "pause"
RESUME = "resume"
CANCEL_NODE = "cancel_node"
RETRY_NODE = "retry_node"
SET_RESULT = "set_result"
ADD_NODES = "add_nodes"
SET_POLICY = "set_policy"
SET_LIMITS = "set_limits"

QUERY_STATUS = "status"
QUERY_PENDING = "pending_feedback"
QUERY_NODE = "node"
QUERY_GRAPH = "graph"

ACTIVITY_COMPILE_PLAN = "compile_plan"
ACTIVITY_LOAD_PLAN = "load_plan"
ACTIVITY_RUN_REGION = "run_region"
ACTIVITY_CALL_BATCH = "call_batch"
"""Activity: makes short calls of `batch` tools, in sequence or concurrently (docs/decisions/0074)."""
ACTIVITY_FIND_ENDED = "find_ended_sub_plans"
ACTIVITY_END_CANCELLED = "end_cancelled"
"""Local activity: requests the cancellation of its own workflow. The marker of the activity contains the document
of the cancelled run."""
ACTIVITY_DELETE_EXECUTION = "delete_execution"
"""Activity: deletes a closed execution of its own workflow."""
ACTIVITY_PUT_BLOB = "put_blob"
ACTIVITY_GET_BLOB = "get_blob"
ACTIVITY_LOAD_ITEMS = "load_items"
ACTIVITY_JOIN_ITEMS = "join_items"
ACTIVITY_LOAD_VALUES = "load_values"
"""Activity: loads stored values into the arguments of a call to an activity of another program."""
ACTIVITY_AWAIT_STORE = "await_store"
"""Activity: waits until the payload store responds, before a call is repeated."""
ACTIVITY_CALL_MODEL = tools.MODEL_TOOL
"""Activity: calls a model (`dagwright.planning.model_calls.model_requests`)."""
ACTIVITY_READ_MODEL_PLAN = tools.PLAN_READER
"""Activity: compiles the plan that a model wrote (`dagwright.planning.plan_and_execute.goal_spec`)."""
ACTIVITY_LOAD_OUTPUT = "load_run_output"
"""Activity: loads the output of a run that has ended, for a workflow of another type that started it."""
ACTIVITY_NOTIFY = "notify"
"""Activity: sends notifications about the requests of a run to the webhook."""
INTERNAL_ACTIVITIES = frozenset(
    {
        ACTIVITY_COMPILE_PLAN,
        ACTIVITY_LOAD_PLAN,
        ACTIVITY_RUN_REGION,
        ACTIVITY_CALL_BATCH,
        ACTIVITY_FIND_ENDED,
        ACTIVITY_END_CANCELLED,
        ACTIVITY_DELETE_EXECUTION,
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
"""Internal activities, which belong to no node: every other activity is a tool or calls a model."""

INTERNAL_ID_PREFIX = "~"
"""Prefix of the ids of a run's internal activities; no node has such an id."""
ID_FIND_ENDED = f"{INTERNAL_ID_PREFIX}ended sub-plans"
"""Activity ID of `ACTIVITY_FIND_ENDED`; at most one runs at a time."""
ID_END_CANCELLED = f"{INTERNAL_ID_PREFIX}end as cancelled"
"""Activity ID of `ACTIVITY_END_CANCELLED`."""
ID_LOAD_VALUES = f"{INTERNAL_ID_PREFIX}values of "
"""ID prefix of activities that load stored values for calls to activities of other programs; the id of the task
follows."""
ID_AWAIT_STORE = f"{INTERNAL_ID_PREFIX}store for "
"""ID prefix of activities that wait for the payload store on behalf of a call; the id of the task follows."""
ID_CALL_BATCH = f"{INTERNAL_ID_PREFIX}batch from "
"""ID prefix of call batches; the id of the first call follows."""
ID_LOAD_ITEMS = f"{INTERNAL_ID_PREFIX}items"
"""ID of the activity that loads the items of a map batch."""
ID_PUT_RESULTS = f"{INTERNAL_ID_PREFIX}put results"
"""ID prefix of activities that store a part of a map batch's results; a number follows."""
ID_PUT_STATE = f"{INTERNAL_ID_PREFIX}put state"
ID_GET_STATE = f"{INTERNAL_ID_PREFIX}get state"
"""ID prefixes of activities that store and load parts of the run's state for continue-as-new; a number
follows."""

ID_NOTIFY = f"{INTERNAL_ID_PREFIX}notify"
"""ID prefix of activities that send notifications to the webhook; a number follows."""

SEARCH_STATE = "DagwrightState"
"""Keyword: the state of the run (docs/reference/states.md)."""
RESULT_HAS_SEARCH_ATTRIBUTES = "has_search_state"
"""In the result of `compile_plan`, or the second detail of its failure: whether the namespace has all search
attributes. A run that sets an unregistered search attribute is blocked."""
RESULT_HAS_WEBHOOK = "notify"
"""In the result of `compile_plan`: true if the worker that ran `compile_plan` has a webhook."""
SEARCH_AWAITING = "DagwrightAwaiting"
"""KeywordList: assignees of the open requests of the run; for a request without an assignee, `anyone`."""
SEARCH_OWNER = "DagwrightOwner"
"""Keyword: `MEMO_OWNER` of the run."""
SEARCH_ROOT = "DagwrightRoot"
"""Keyword of the run of a sub-plan: ID of its root run. Not set on the root run."""
SEARCH_PROGRESS = "DagwrightProgress"
"""Keyword: number of nodes that have ended, and number of all nodes of the plan, such as `3/20`."""
SEARCH_SESSION = "DagwrightSession"
"""Keyword: the session a run belongs to."""
SEARCH_TITLE = "DagwrightTitle"
"""Keyword: title of the plan, cut to 255 characters."""
SEARCH_TEMPLATE = "DagwrightTemplate"
"""Keyword: name of the published plan that a run was started from."""
SEARCH_TAGS = "DagwrightTags"
"""KeywordList: tags of a run, each as `key=value`."""

HEADER_IDEMPOTENCY_KEY = "dagwright-idempotency-key"
"""Activity header, JSON text payload: the node's idempotency key, 40 characters. Missing in calls of `pure` and `read`
tools: their worker derives the same key from the execution's ID and the activity's ID.
"""
HEADER_BINDINGS = "dagwright-bindings"
"""Activity header, JSON payload: the parts of the arguments that only the worker may fill in.

A list of `[path, parts]`: `path` is a list of object keys and list indices into the arguments. A single part is the
value at the path; several parts are joined to one text, in which a text is inserted unchanged and any other value as
JSON. A part is `{"text": str}`, `{"secret": name}`, `{"stored": ref, "name": str, "paths": [path or query]}` (the part
at `paths` of the stored value `ref`; messages call the value `name`), or
`{"value": JSON, "bindings": [bindings in the value, in this same form]}`.
"""
HEADER_PROJECTIONS = "dagwright-projections"
"""Activity header, JSON payload: `[[path or query, "value" or "whole"], …]`. Each entry names a part of the result that
the plan reads. If the result goes to the payload store, the call returns the reference and these parts."""
HEADER_CACHE = "dagwright-cache"
"""Activity header, JSON number: the seconds for which the result of an equal call may be reused; 0 for never. If the
header is missing, results of `pure` tools may be reused without a time limit, and other results never."""

HEADER_CHECKED_VERSION = "dagwright-checked-version"
"""Activity header, JSON text payload: the version of a pinned tool with which the plan was checked."""
HEADER_ANSWERS = "dagwright-answers"
"""Activity header, JSON payload: `[{"request_id", "answer", "checkpoint"}, …]`, answers to the questions that the
call has asked before, in order, each with the checkpoint that the call saved, if any."""

HEADER_MODEL = "dagwright-model"
"""Activity header, JSON of a `ModelConfig`: model and parameters of the run, for tools and for model calls that do not
set them. Without this header, the settings of the worker decide."""

HEADER_EFFECTS = "dagwright-effects"
"""Activity header, JSON text payload, `idempotent`: the plan's author declares that the call may be repeated. Without
this header, the effects of the tool and the arguments decide."""
HEADER_OWNER = "dagwright-owner"
"""Activity header, JSON text payload: `MEMO_OWNER` of the run that makes the call. A run that was started without an
API key does not send this header."""

HEADER_TEMPLATE = "dagwright-template"
"""Activity header, JSON text payload: `MEMO_TEMPLATE` of the run that makes the call, if it has one."""

METADATA_ATTEMPT = "dagwright"
"""Metadata of a result payload: start of the attempt that made the result, in milliseconds since 1970, as six bytes in
eight characters of URL-safe base64; then the version of the tool, if it has one; then `#` and the attempt's number, if
it is not the first."""
METADATA_STORED = "dagwright-stored"
"""Metadata of a result payload, `1`: the payload is a reference to a value in the payload store. Tools cannot set it,
so no result is ever mistaken for a reference."""
DETAIL_STARTED = "started"
"""In the details of a heartbeat of a `write` call: the attempt that has called, or is about to call, the tool."""
DETAIL_CALLS = "calls"
"""In the details of a heartbeat of a `write` call: `[count, attempt]`: how many attempts have called the tool, and the
number of the last attempt that did."""
DETAIL_DEFERRED = "deferred"
"""In the details of a heartbeat: `{"count", "attempt", "state"}`: how many attempts were deferred, the number of the
last deferred attempt, and the optional state that this attempt saved for the next attempt."""
HEADER_ATTEMPTS = "dagwright-attempts"
"""Activity header of a `write` call, JSON number: how many attempts may call the tool. Temporal allows more attempts,
because a worker may die before the call."""
HEADER_BATCH_FAILURE = "dagwright-batch-failure"
"""Activity header, JSON text: failure of a call whose first attempt was made in a call batch, as the base64 of
Temporal's encoding. The call then gets a separate activity. The first attempt of this activity only raises the failure,
so the retry policy applies as to any call."""
DETAIL_STORE_ERROR = "waits_for"
"""In the details of a heartbeat: why the payload store does not respond."""
DETAIL_LIMITED_BY = "limited_by"
"""In the details of a heartbeat: the limit of calls for which the attempt waits."""
DETAIL_FULL_TEXT = "full_text"
"""In the details of a failure: reference of its whole text and traceback in the payload store."""
METADATA_CACHED = "dagwright-cached"
"""Metadata of a result payload, JSON `{"made_at", "run_id", "node_id"}`: the earlier call that
made the result, and the time of that call (RFC 3339)."""
METADATA_USAGE = "dagwright-usage"
"""Metadata of a result payload, JSON of `core.model.states.Usage`: model usage of the attempt; missing if the attempt
called no model."""
DETAIL_USAGE = "usage"
"""In the details of a failure: model usage of the failed attempt, in the same form."""
METADATA_LINEAGE = "dagwright-lineage"
"""Metadata of a result payload, JSON of `core.model.lineage.LineageEntries`: files and URLs that the attempt has read;
missing if the attempt reported no files or URLs."""
DETAIL_LINEAGE = "lineage"
"""In the details of a failure and in the closing event: files and URLs that were read, in the same form."""

ERROR_ASK_PERSON = "ask_person"
"""`ApplicationError.type` of a call that asks a person and is repeated with the answer. The first detail of the error
has the `request`, a text or an object with the fields of `human`, and may have a `checkpoint` for the next call."""
ERROR_OUTCOME_UNKNOWN = "outcome_unknown"
"""Code of a `write` call that took too long, or whose worker died after the tool was called."""
ERROR_NOT_STARTED = "not_started"
"""Code of a call that ended before its tool changed anything; it may be repeated, also if it is a `write` call."""
ERROR_TOOL_PAUSED = "tool_paused"
"""`ApplicationError.type` of an attempt that found its tool paused and did nothing."""
ERROR_DEFERRED = "deferred"
"""`ApplicationError.type` of an attempt that ended without being counted; the server makes another attempt later."""
ERROR_RATE_LIMITED = "rate_limited"
"""`ApplicationError.type` of an attempt that ended, without being counted, to wait for a limit of calls."""
ERROR_TOOL_MISSING = "tool_missing"
"""`ApplicationError.type` of an attempt for which no worker on the task queue has the tool."""
ERROR_STORE_RETRY = "store_retry"
"""`ApplicationError.type` of a call that ended because the payload store did not respond. The run repeats the call some
times, each time after `ACTIVITY_AWAIT_STORE` has ended."""
ERROR_STORE_UNAVAILABLE = "store_unavailable"
"""Code of a call that failed because the payload store did not respond."""
DETAIL_UNSTORED_BYTES = "unstored_bytes"
"""In the details of an `ERROR_STORE_RETRY`: size of the result that could not be stored; 0 if an argument could not be
loaded and the tool was not called."""
ERROR_INTERNAL = "InternalError"
"""`ApplicationError.type` of a run that ended because of a defect in Dagwright itself."""
ERROR_UNKNOWN_TYPE = "UnknownWorkflowType"
"""Type of the failure of an execution with a workflow type that no worker has."""
ERROR_REJECTED = "Rejected"
"""`ApplicationError.type` of an update that was rejected; the message has the reason."""
ERROR_PLAN_FAILED = "PlanFailed"
"""`ApplicationError.type` of a run whose plan failed; its first detail is the result document."""
ERROR_STORE_REJECTED = "store_rejected"
"""Error code if the payload store permanently rejected data of the run itself."""

MEMO_TOOLS = "dagwright_tools"
"""Workflow memo: the list of `--tools` values the run was started with."""
MEMO_DIGEST = "dagwright_digest"
"""Workflow memo: digest of plan, inputs and model. `--id` attaches to an existing run only if the digests are equal."""

MEMO_NODES = "dagwright_nodes"
"""Workflow memo: how many nodes the plan has."""
MEMO_LAST_NODE_CHANGE = "dagwright_changed"
"""Workflow memo: ID of the last node that failed, was cancelled or opened a request, if no node
has started since."""
MEMO_TITLE = "dagwright_title"
"""Workflow memo: title of the plan."""

MEMO_TEMPLATE = "dagwright_template"
"""Workflow memo: name of the published plan that a run was started from."""
MEMO_TAGS = "dagwright_tags"
"""Workflow memo: object of the tags of a run, name -> value."""

MEMO_SESSION = "dagwright_session"
"""Workflow memo of the run of a turn: the name of its session. Its child runs do not have it."""
MEMO_SESSION_STATE = "dagwright_session_state"
"""Workflow memo of a session: its whole state, as `protocol.sessions` reads it."""

MEMO_OWNER = "dagwright_owner"
"""Workflow memo of a run or session that was started with an API key, and of its sub-plans: the key's owner."""

MEMO_PARENT_WORKFLOW = "dagwright_caller"
"""Workflow memo of a run that a workflow of another type has started as its child: the id of that workflow."""
MEMO_ROOT = "dagwright_root"
"""Workflow memo of the run of a sub-plan: the ID of its root run."""
MEMO_PATH = "dagwright_path"
"""Workflow memo of the run of a sub-plan: list of the tasks on the path from its root run, outermost first."""
MEMO_REQUESTS = "dagwright_requests"
"""Workflow memo: the open requests as `protocol.listings` reads them. They are only valid while the run has
`SEARCH_AWAITING`."""
MEMO_ERROR = "dagwright_error"
"""Workflow memo of a failed run: `{"code", "message", "node_id"}`."""

MEMO_STARTED_AT = "dagwright_started_at"
"""Workflow memo of a run that continued as new: RFC 3339 time at which the first execution started."""

TIMER_DEADLINE = "deadline of the run"
"""Summary of the timer that ends a run at its deadline."""
TIMER_GRACE = "waiting for running steps to stop"
"""Summary of the timer after which a cancelled run stops waiting."""
TIMER_DRAIN = "waiting for running steps before continue-as-new"
"""Summary of the timer after which a run with a long history starts new nodes anyway."""
TIMER_REQUESTS = "waiting for people"
"""Summary of the timer for the earliest deadline or reminder of all requests."""
TIMER_NOTIFY = "sending notifications about the last requests"
"""Summary of the timer after which an ended run stops waiting for its webhook."""
TIMER_SEARCH_UPDATE = "updating search attributes"
"""Summary of the timer after which search attributes are updated again."""
TIMER_CHECK_SUB_PLANS = "checking for sub-plans that ended without a report"
"""Summary of the timer between two checks of the sub-plans that an earlier execution has started."""
TIMER_CHECK_PARENT = "checking for the parent run, which has the budget"
"""Summary of the timer between two checks of a sub-plan whose calls wait for budget."""
REASON_TEMPORAL_CANCEL = "cancelled through Temporal"
"""Reason of the nodes that a cancellation through Temporal stopped."""

DEFAULT_TASK_QUEUE = "dagwright"
