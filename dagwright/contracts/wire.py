"""Names on the wire: constants, never derived from Python names and never reused with another meaning.

Other programs (the Temporal UI, clients in other languages, saved histories) hold these texts, so a
rename here is a break. This module imports nothing.
"""

WORKFLOW_RUN_PLAN = "RunPlan"
WORKFLOWS = frozenset({WORKFLOW_RUN_PLAN})
"""Every workflow type of ours: whatever is in here counts as a user of stored payloads."""

SIGNAL_CANCEL = "cancel"
SIGNAL_SUB_PLAN_ENDED = "sub_plan_ended"

QUERY_STATUS = "status"
QUERY_NODE = "node"
QUERY_GRAPH = "graph"

ACTIVITY_COMPILE_PLAN = "compile_plan"
ACTIVITY_LOAD_PLAN = "load_plan"
ACTIVITY_RESOLVE_LOOKUPS = "resolve_lookups"
ACTIVITY_RUN_REGION = "run_region"
ACTIVITY_FIND_ENDED = "find_ended_sub_plans"
ACTIVITY_PUT_BLOB = "put_blob"
ACTIVITY_GET_BLOB = "get_blob"
ACTIVITY_LOAD_ITEMS = "load_items"
ACTIVITY_JOIN_ITEMS = "join_items"
ACTIVITY_LOAD_VALUES = "load_values"
"""Puts stored values into the arguments of a call to an activity that is not Dagwright's."""
OWN_ACTIVITIES = frozenset(
    {
        ACTIVITY_COMPILE_PLAN,
        ACTIVITY_LOAD_PLAN,
        ACTIVITY_RESOLVE_LOOKUPS,
        ACTIVITY_RUN_REGION,
        ACTIVITY_FIND_ENDED,
        ACTIVITY_PUT_BLOB,
        ACTIVITY_GET_BLOB,
        ACTIVITY_LOAD_ITEMS,
        ACTIVITY_JOIN_ITEMS,
        ACTIVITY_LOAD_VALUES,
    }
)
"""Activities that are no node's: every other one is a tool."""

OWN_ID_MARK = "~"
"""What the activity ids begin with that a run uses beside its steps; no step has such an id."""
ID_FIND_ENDED = f"{OWN_ID_MARK}ended sub-plans"
"""Activity id: only one looks at a time."""
ID_LOAD_VALUES = f"{OWN_ID_MARK}values of "
"""Begins the activity ids under which arguments of foreign activities are loaded; the id of the task follows."""
ID_LOAD_ITEMS = f"{OWN_ID_MARK}items"
"""Activity id: the items of the chunk of a large map that a run does."""
ID_PUT_RESULTS = f"{OWN_ID_MARK}put results"
"""Activity id, with a number behind it: a piece of the results of such a run."""
ID_PUT_STATE = f"{OWN_ID_MARK}put state"
ID_GET_STATE = f"{OWN_ID_MARK}get state"
"""Activity ids, with a number behind them: pieces of the state that a run hands on."""

SEARCH_STATE = "DagwrightState"
"""Keyword: the run state of design.md section 5."""
ANSWER_HAS_STATE = "has_search_state"
"""In the answer of `compile_plan`, or the second detail of its failure: whether the namespace has `SEARCH_STATE`. A run
that sets an attribute that is not there is stuck."""
SEARCH_AWAITING = "DagwrightAwaiting"
"""KeywordList: who or what the run waits for."""
SEARCH_SESSION = "DagwrightSession"
"""Keyword: the session a run belongs to."""

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

METADATA_ATTEMPT = "dagwright-attempt"
"""Metadata of a result payload, ASCII digits: the attempt that made the result, 1 for the first."""
METADATA_STARTED_AT = "dagwright-started-at"
"""Metadata of a result payload: RFC 3339 time at which that attempt started."""
METADATA_STORED = "dagwright-stored"
"""Metadata of a result payload, `1`: the payload is no value but tells of one in the payload store. Nothing that a tool
returns can set it, so no result is ever mistaken for a reference."""
DETAIL_WAITS_FOR = "waits_for"
"""Of the details of a region's heartbeat: why the payload store does not answer."""
DETAIL_WHOLE = "whole"
"""Of the details of a failure: reference of its whole text and traceback in the payload store."""
METADATA_CACHED = "dagwright-cached"
"""Metadata of a result payload, JSON `{"made_at", "workflow_id", "node"}`: an earlier call made the result, at that RFC
3339 time."""
METADATA_TOOL_VERSION = "dagwright-tool-version"
"""Metadata of a result payload: version of the tool that made the result."""

ERROR_BUG = "Bug"
"""`ApplicationError.type` of a run that ended by a defect of Dagwright itself."""
ERROR_PLAN_FAILED = "PlanFailed"
"""`ApplicationError.type` of a run whose plan failed; its first detail is the result document."""

MEMO_TOOLS = "dagwright_tools"
"""Workflow memo: the list of `--tools` values the run was started with."""
MEMO_DIGEST = "dagwright_digest"
"""Workflow memo: digest of plan and inputs, so that `--id` attaches only to the same run."""

MEMO_NODES = "dagwright_nodes"
"""Workflow memo: how many nodes the plan has."""
MEMO_TITLE = "dagwright_title"
"""Workflow memo: title of the plan."""

MEMO_BEGAN = "dagwright_began"
"""Workflow memo of a run that goes on in a new execution: RFC 3339 time at which the first one started."""

TIMER_DEADLINE = "deadline of the run"
"""Summary of the timer that ends a run at its deadline."""
TIMER_GRACE = "waiting for running steps to stop"
"""Summary of the timer after which a cancelled run waits no longer."""
TIMER_DRAIN = "waiting for running steps, to go on in a new history"
"""Summary of the timer after which a run with a long history starts more steps all the same."""
TIMER_LOOK = "looking for sub-plans that ended without a report"
"""Summary of the timer between two looks at the sub-plans that an execution before has started."""
REASON_STILL_OUTSIDE = "still running outside"
"""Reason of a cancelled node whose activity did not end in time."""
REASON_TEMPORAL_CANCEL = "cancelled through Temporal"
"""Reason of the nodes that Temporal's own cancel stopped."""

DEFAULT_TASK_QUEUE = "dagwright"
