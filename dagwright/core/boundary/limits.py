"""Limits of Temporal and Dagwright, in one place (docs/contributing/guards.md).

Data over these limits would end or block a run on the server. It is rejected earlier: when a plan is checked, when a
run starts, or before a task starts.

A region is a group of pure nodes, which run in batches: each activity runs one batch of nodes. The nodes of an
offloaded region are in the payload store instead of the run's plan. A call batch is an activity that makes several tool
calls.
"""

import hashlib

from dagwright.core.boundary.wire import ID_AWAIT_STORE, ID_CALL_BATCH, ID_LOAD_VALUES, INTERNAL_ID_PREFIX
from dagwright.core.text import cut_bytes, cut_characters, decode_first_bytes, one_line

RESULT_LIMIT_BYTES = 256 * 1024
"""Maximum size that one result adds to the history, such as the output of a sub-plan, or the projected parts of a
stored value. The server accepts 2 MB, and 50 MB for a whole history."""
STORED_VALUE_LIMIT_BYTES = 1_000_000_000
"""Largest encoded result in the payload store; a worker holds several copies of it in memory."""
MAX_BUILT_IN_RESULT_BYTES = 16 * 1024 * 1024
"""Maximum size that a built-in tool reads or writes; each concurrent call has a few copies of it in memory."""
ARGUMENTS_LIMIT_BYTES = 256 * 1024
"""Largest encoded arguments of one call."""
REGION_BATCH_INPUT_BYTES = 256 * 1024
"""Size of the inputs at which a region batch takes no more nodes."""
MAX_REGION_NODE_INPUT_BYTES = 1_000_000
"""Maximum size of the inputs of a region batch with a single node: half of the server's limit."""
OFFLOADED_BATCH_INPUT_BYTES = 1_750_000
"""Maximum size of the data in the input of one batch of an offloaded region. This data includes all inputs of the plan
(up to 1 MB), because the run does not know which inputs the region reads."""
REGION_BATCH_RESULT_BYTES = 256 * 1024
"""Size of the encoded results at which a region batch ends; the last result may exceed this limit."""
OFFLOADED_BATCH_STORED_BYTES = 4_000_000
"""Size of the stored results at which a batch of an offloaded region ends; the last result may exceed this limit."""
REGION_BATCH_S = 0.2
"""Time after which a region batch starts no more nodes. Between two batches, the run receives results and can be
stopped."""
CALL_BATCH_S = 0.2
"""Time after which a call batch starts no more calls. The batch then waits for each running call for up to
`SLOW_CALL_S`, so it delays a result by 0.4 s at most."""
SLOW_CALL_S = 0.2
"""A call that takes longer leaves its batch and gets a separate activity. An activity costs a tenth of this time, so
batches would save little for such calls."""
SEPARATE_CALLS_S = 60.0
"""How long the calls of a tool get separate activities instead of batches after a call of the tool was slow, or had to
wait because the tool was paused or limited."""
DETACHED_CALL_S = 10.0
"""A slow call leaves its batch but continues in its worker. The call is cancelled if no activity takes it over within
this time."""
CALL_BATCH_RESULT_BYTES = 128 * 1024
"""Size of the encoded results after which a call batch starts no more calls. Each heartbeat contains all results so
far."""
MAX_INLINE_VALUE_BYTES = 8 * 1024
"""Maximum size of a value that the history contains completely. A larger result goes to the payload store, and is
`{"ref", "bytes", "preview"}` in documents."""
MAX_INPUT_PLAN_NODES = 20_000
"""Maximum number of nodes of a compiled plan, with its sub-plans, that a run accepts in its input from any client.
Decoding this many nodes takes half a second of workflow code, which may run for two seconds at a time. Dagwright's own
clients pass plans in pages from `MAX_INLINE_PLAN_NODES` nodes on."""
INPUTS_LIMIT_BYTES = 1_000_000
"""Maximum size of the encoded values of a plan's inputs. The argument of the workflow contains these values and the
plan (up to 256 KiB)."""
RUN_INPUT_LIMIT_BYTES = 1_500_000
"""Maximum size of the encoded argument of a run's workflow; the server rejects 2 MB and more."""
MAX_INLINE_STATE_BYTES = 512 * 1024
"""Maximum size of the state in the argument of the next execution of a run that continues as new; a larger state goes
through the payload store."""
MAX_INLINE_PLAN_BYTES = 256 * 1024
"""Maximum size of the encoded plan in the argument of a run's workflow; a larger plan is passed as references to
pages in the payload store."""
MAX_INLINE_PLAN_NODES = 2_000
"""Maximum number of nodes of a plan that a client puts into the argument of a run's workflow; a plan with more nodes is
passed as references to pages in the payload store."""
MAX_PLAN_PAGE_NODES = 1_000
"""Maximum number of nodes in one page of a plan: a workflow task reads several pages in a tenth of a second."""
MAX_PLAN_PAGE_BYTES = 512 * 1024
"""Maximum size of the encoded nodes of one page, unless a single node is larger."""
MAX_PLAN_PAGES = 1_000
"""Maximum number of pages of one plan."""
MAX_RUN_NODES = 50_000
"""Maximum number of nodes that a run has in memory: all nodes of its plan, except the nodes of offloaded regions, which
are in the payload store. A run with this many nodes starts within half a second."""
MAX_PLAN_EDGES = 1_000_000
"""Maximum number of edges that a run has in memory; reading them at the start takes a quarter of a second."""
MAX_PLAN_BYTES = 32_000_000
"""Maximum size of the compiled JSON of a plan, without offloaded regions; it must fit into the history without
compression."""
MAX_PLAN_PART_BYTES = 1_000_000
"""Maximum size of the compiled JSON of one node with its sub-plan, and of the plan without its nodes. Each is one
payload, which the server limits to 2 MB."""
DOCUMENT_LIMIT_BYTES = 1_000_000
"""Maximum size of the encoded result document of a run; the server ends a run with a result over 2 MB."""
MAX_DOCUMENT_NODES = 300
"""Maximum number of nodes in the document of a query; the document of a larger run has only counts. A longer list is
unreadable in the Temporal UI, and writing and sending half a megabyte takes as long as running twenty nodes. The
command line reads the nodes from the history."""
TASK_COMMANDS_LIMIT_BYTES = 1_500_000
"""Total size of the arguments of new calls after which one workflow task starts no more calls. More than 4 MB would
block the run."""
HISTORY_LIMIT_BYTES = 40_000_000
"""Hard limit of the history size: no more tasks start, even if a drain (see `DRAIN_AT_EVENTS`) takes longer than
`HISTORY_DRAIN_S`. The server ends a run at 50 MB."""
HISTORY_LIMIT_EVENTS = 24_000
"""Hard limit of the number of events, as `HISTORY_LIMIT_BYTES`. The replay of a longer history can take more than
`WORKFLOW_TASK_S`. The server ends a run at 51,200 events."""
DRAIN_AT_EVENTS = 8_000
"""Number of events at which a run drains: it starts no new tasks, and continues as new when all running tasks have
ended. `HISTORY_DRAIN_S` limits the wait. A history of this length replays in about one second
(docs/decisions/0048)."""
DRAIN_AT_BYTES = 16_000_000
"""History size at which a run drains and continues as new, as at `DRAIN_AT_EVENTS`."""
DRAIN_AT_SIGNALS = 8_000
"""Number of signals after which a run drains and continues as new; the server rejects the 10,001st signal."""
MAX_JOINED_RESULTS_BYTES = 250_000_000
"""Maximum size of a large map's list of results; a worker holds several copies of the list in memory."""
MAX_INLINE_BATCH_RESULTS_BYTES = 2 * 1024
"""Maximum size of the inline results in the report of a map batch; larger results go through the store. There may be
500 batches."""
SMALL_BASELINE_BYTES = 1_000_000
"""Maximum size of the history of a new execution, after it has loaded its plan and state, with which the execution
continues as new as soon as the server suggests it. If the history is larger, its size must first double: otherwise, the
execution would do little more than pass on its state."""
SIGNALS_LIMIT = 10_000
"""Maximum number of signals that the server accepts for one execution."""
NO_DEADLINE_TIMER_S = 365 * 86_400.0
"""Length of the timer for requests without a deadline; after this time another timer starts."""
MIN_SEARCH_UPDATE_PAUSE_S = 5.0
"""Shortest time between two updates of search attributes (docs/contributing/guards.md F18)."""
MIN_PROGRESS_UPDATE_PAUSE_S = 30.0
"""Shortest time between two updates that change only the progress. Such an update is sent together with other workflow
commands."""
MAX_LISTED_REQUEST_BYTES = 2 * 1024
"""Maximum size of an encoded request in the memo of a run; for a larger request, the memo has only the first part of
its prompt."""
MAX_LISTED_REQUESTS_TOTAL_BYTES = 16 * 1024
"""Maximum size of all encoded requests in the memo of a run: at most 1.6 MB for a page of 100 runs."""
MAX_LISTED_ERROR_BYTES = 1_000
"""Maximum size of the error message in the memo of a failed run."""
MAX_QUEUED_NOTIFICATIONS = 1_000
"""Maximum number of notifications queued for an unavailable webhook; older notifications are dropped, with a note."""
MAX_NOTIFICATIONS_PER_ACTIVITY = 50
"""Maximum number of notifications that one activity sends."""
MAX_NOTIFICATIONS_TOTAL_BYTES = 256 * 1024
"""Maximum size of all encoded notifications that one activity sends."""
MAX_NOTIFIED_REQUEST_BYTES = 32 * 1024
"""Maximum size of an encoded request in a notification; a larger request omits the schema, options and arguments."""
MAX_NOTIFICATION_ACTIVITIES = 4
"""Maximum number of concurrent notification activities of one run. With several activities, a rejected notification
does not delay later notifications."""
NOTIFICATION_RETRY_S = 3_600.0
"""How long a failed notification is sent again and again, before it is dropped."""
NOTIFY_GRACE_S = 10.0
"""How long an ended run waits for its webhook to accept the last notifications."""
WORKFLOW_TASK_S = 4.0
"""Timeout of a workflow task, after which the server schedules it again: a worker that dies during a task delays its
run this long. Most tasks take some milliseconds; a replay of the longest history takes a second or more
(docs/decisions/0048)."""
SUB_PLAN_CHECK_S = 60.0
"""Time until a run first checks whether a sub-plan has ended without a report. Only sub-plans that the run started
before continue-as-new are checked."""
MAX_SUB_PLAN_CHECK_S = 3_600.0
"""Longest time between two such checks."""
MAX_SUB_PLANS_PER_CHECK = 500
"""Maximum number of sub-plans that one check includes."""
HISTORY_DRAIN_S = 60.0
"""How long a draining run waits for running tasks. If a task takes longer, the run starts new tasks again and drains
later, so that a long task does not delay other tasks."""
INTERNAL_HEARTBEAT_S = 3.0
"""Heartbeat timeout of the run's internal activities, after which another worker repeats them."""
LARGE_HEARTBEAT_S = 15.0
"""Heartbeat timeout of internal activities with plans and values of any size. All threads of a worker are blocked for
7 s while it reads 1 GB of JSON, for less than 1 s at 100 MB, and for some seconds while it checks 50,000 nodes on a
busy machine."""
MAX_EVENTS_PER_TASK = 6
"""Maximum number of events that a task in flight (a call or a sub-plan) adds to the history when it ends."""
MAX_FAILURE_MESSAGE_BYTES = 4 * 1024
"""Longest failure message; a message over 4 MB is never delivered."""
MAX_FAILURE_TEXT_BYTES = 10_000_000
"""Longest text of a failure with its traceback in the payload store."""
MAX_REF_BYTES = 100
"""Longest reference of the payload store."""
MAX_SUMMARY_CHARACTERS = 200
"""Longest summary of an activity or timer in the Temporal UI; the server rejects more than 400 bytes."""
MAX_NOTES = 100
"""Maximum number of notes that a run stores; notes over this limit are only counted."""
MAX_DETAIL_LINES = 50
"""Maximum number of nodes in the table that a run shows in the Temporal UI as its current details."""
CANCEL_GRACE_S = 30.0
"""How long a cancelled run waits for its running activities to stop."""
MAX_ACTIVITY_ID_PART_BYTES = 200
"""Longest name of a node or call in an activity ID; a longer name is cut and gets a hash."""
MAX_RUN_ID_BYTES = 200
"""Longest id that a user may give a run; sub-plans append their path, and Temporal accepts 1,000 bytes."""
MAX_CHILD_ID_BYTES = 900
"""Longest workflow ID of a sub-plan, which contains the ID of its parent; a longer ID is cut and gets a hash."""
MAX_DELAY_S = 86_400.0
"""Longest delay that a service may request; a longer delay is reduced to a day."""


def has_room(*, history_bytes: int, history_events: int, in_flight: int) -> bool:
    """Return whether a history has room for one more task, so that the server never ends the run.

    Args:
        history_bytes: size of the history, plus the maximum bytes that tasks in flight may add.
    """
    remaining_tasks = (HISTORY_LIMIT_EVENTS - history_events) / MAX_EVENTS_PER_TASK
    return history_bytes < HISTORY_LIMIT_BYTES and in_flight + 1 < remaining_tasks


def short_id(text: str, *, max_bytes: int) -> str:
    """Return an id that Temporal accepts: the text itself, or its first bytes, `~` and a hash of the text."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return text
    return decode_first_bytes(encoded, max_bytes - 40) + _hash_suffix(text)


def _hash_suffix(text: str) -> str:
    return f"~{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"


def load_id(call_id: str) -> str:
    """Return the id of the activity that loads the arguments of a call."""
    return f"{ID_LOAD_VALUES}{short_id(call_id, max_bytes=MAX_ACTIVITY_ID_PART_BYTES)}"


def store_wait_id(call_id: str) -> str:
    """Return the ID of the activity that waits for the payload store on behalf of a call."""
    return f"{ID_AWAIT_STORE}{short_id(call_id, max_bytes=MAX_ACTIVITY_ID_PART_BYTES)}"


def call_batch_id(call_id: str) -> str:
    """Return the ID of the activity of a call batch, which contains the ID of the first call."""
    return f"{ID_CALL_BATCH}{short_id(call_id, max_bytes=MAX_ACTIVITY_ID_PART_BYTES)}"


def activity_id(task_id: str) -> str:
    """Return the activity id of a task: the task id, shortened if needed.

    If the task id looks like the id of an internal activity, an apostrophe is added before it.
    """
    if task_id.startswith(INTERNAL_ID_PREFIX):
        return f"'{short_id(task_id, max_bytes=MAX_ACTIVITY_ID_PART_BYTES - 40)}{_hash_suffix(task_id)}"
    return short_id(task_id, max_bytes=MAX_ACTIVITY_ID_PART_BYTES)


def child_workflow_id(run_id: str, task_id: str) -> str:
    """Return the workflow id of a sub-plan. A slash in the task id is written %2F, so that ids never collide."""
    name = task_id.replace("%", "%25").replace("/", "%2F")
    return short_id(f"{run_id}/{name}", max_bytes=MAX_CHILD_ID_BYTES)


def summary_of(text: str) -> str:
    """Return a text as a one-line summary for the Temporal UI, at most 400 bytes."""
    # Compiled plans may come from other programs, with a title that is not a text.
    return cut_bytes(cut_characters(one_line(str(text)), MAX_SUMMARY_CHARACTERS), max_bytes=400)
