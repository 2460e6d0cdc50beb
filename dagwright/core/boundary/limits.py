"""What Temporal and Dagwright take, in one place (docs/guards.md).

Whatever crosses these limits would end or wedge a run on the server, so check, start and dispatch refuse it first.
"""

import hashlib
import re

from dagwright.core.boundary.text import cut_bytes, cut_characters, first_bytes, one_line
from dagwright.core.boundary.wire import ID_AWAIT_STORE, ID_LOAD_VALUES, OWN_ID_MARK

RESULT_LIMIT_BYTES = 256 * 1024
"""What one result may add to the history. The server takes 2 MB; a whole history ends at 50 MB."""
STORED_VALUE_LIMIT_BYTES = 1_000_000_000
"""Encoded result in the payload store; a worker has it in memory several times over."""
BUILT_IN_RESULT_BYTES = 16 * 1024 * 1024
"""What a built-in tool reads or writes into one result: a worker holds it a few times over, for each call at once."""
ARGUMENTS_LIMIT_BYTES = 256 * 1024
"""Encoded arguments of one call."""
SLICE_INPUT_BYTES = 256 * 1024
"""About what the nodes of one slice of a region may need, if there is more than one."""
SLICE_INPUT_LIMIT_BYTES = 1_000_000
"""The same for a single node; half of what the server takes."""
INNER_SLICE_INPUT_BYTES = 1_750_000
"""The same for a region whose inside the run does not hold: nobody knows there which inputs it reads, so all of them go
along, and they may have a megabyte."""
SLICE_RESULT_BYTES = 256 * 1024
"""Encoded results at which a slice ends; its last one may come on top."""
INNER_SLICE_BYTES = 4_000_000
"""The same for all that a slice puts into the store, of a region whose inside the run does not hold."""
SLICE_S = 0.2
"""How long a slice starts nodes: so often the run hears of what is done, and can be stopped."""
INLINE_VALUE_BYTES = 8 * 1024
"""A larger result goes to the payload store; a larger value stands in a document as `{"ref", "bytes", "preview"}`."""
PLAN_NODES = 20_000
"""Nodes of a compiled plan that stands in the input of a run, those of its sub-plans with them: half a second of
workflow code, which has two."""
INPUTS_LIMIT_BYTES = 1_000_000
"""Encoded values of a run's inputs, which stand beside a plan of 256 KiB."""
RUN_INPUT_LIMIT_BYTES = 1_500_000
"""Encoded input of a run: the server refuses 2 MB and more."""
INLINE_STATE_BYTES = 512 * 1024
"""State of a run that goes on in a new execution, as it travels in the input; a longer one goes through the store."""
INLINE_PLAN_BYTES = 256 * 1024
"""Encoded compiled plan; a larger one travels in pages by reference."""
INLINE_PLAN_NODES = 2_000
"""Nodes of a compiled plan that travels in the input."""
PLAN_PAGE_NODES = 1_000
"""Nodes of one page of a plan: a workflow task reads some pages in a tenth of a second."""
PLAN_PAGE_BYTES = 512 * 1024
"""Encoded nodes of one page, unless a single node has more."""
PLAN_PAGES = 1_000
"""Pages of one plan."""
PLAN_STEPS = 50_000
"""Nodes of one plan that its run holds, which are all but those that only their region needs: it begins with them
within half a second."""
PLAN_EDGES = 1_000_000
"""Edges between them: they are followed in a quarter of a second before anything starts."""
PLAN_BYTES = 32_000_000
"""Compiled JSON that a run holds: it comes through the history, where it has no more even if it cannot be packed."""
PLAN_PART_BYTES = 1_000_000
"""Compiled JSON of one node, its sub-plan with it, and of the plan without its nodes: each travels in one piece, of
which the server takes 2 MB."""
DOCUMENT_LIMIT_BYTES = 1_000_000
"""Encoded result document of a run; the server ends a run whose result has over 2 MB."""
DOCUMENT_NODES = 300
"""Steps of a plan beyond which such a document only counts them: nobody reads through more in the Temporal UI, and to
write and send half a megabyte takes as long as twenty steps. The commands take them out of the history."""
TASK_COMMANDS_LIMIT_BYTES = 1_500_000
"""Arguments that one workflow task sends; over 4 MB in sum wedges the run."""
HISTORY_LIMIT_BYTES = 40_000_000
"""History at which nothing more is started; the server ends a run at 50 MB."""
HISTORY_LIMIT_EVENTS = 24_000
"""Events at which nothing more is started: what has more may not replay within `WORKFLOW_TASK_S`. The server ends a run
at 51,200."""
HARD_MARK_EVENTS = 8_000
"""Events at which a run starts nothing more, waits for what runs, and goes on in a new execution: it replays in about
a second (docs/decisions/0048)."""
HARD_MARK_BYTES = 16_000_000
"""History size at which it does the same."""
HARD_MARK_SIGNALS = 8_000
"""Signals at which it does the same; the server refuses the 10,001st."""
JOINED_LIMIT_BYTES = 250_000_000
"""Results of all items of a large map, in the list that they make; a worker has it in memory several times over."""
ITEMS_HANDED_UP_BYTES = 2 * 1024
"""Results of a chunk of a large map that stand in its report; larger ones go through the store. There may be 500."""
SMALL_BEGINNING_BYTES = 1_000_000
"""History with which an execution may begin and still go on in a new one as soon as the server suggests it."""
SIGNALS_LIMIT = 10_000
"""Signals that the server takes for one execution."""
FAR_ALARM_S = 365 * 86_400.0
"""Length of the timer that stands for requests without a deadline; when it has passed there is another."""
TELLING_PAUSE_S = 5.0
"""Shortest time between two writes of search attributes (docs/guards.md F18)."""
NOTICES_KEPT = 1_000
"""Notices for a hook that does not take them; older ones are forgotten, with a note."""
NOTICES_TOGETHER = 50
"""Notices that one activity tells."""
NOTICES_BYTES = 256 * 1024
"""Encoded notices of one activity."""
NOTICE_BYTES = 32 * 1024
"""Encoded request in a notice; of a larger one the schema, the options and the arguments are left out."""
NOTIFIED_AT_ONCE = 4
"""Activities of one run that tell notices: one that the hook does not take should not hold up the others."""
NOTIFY_FOR_S = 3_600.0
"""How long a notice is tried again and again."""
NOTIFY_GRACE_S = 10.0
"""How long a run that has ended waits for its hook to take the last notices."""
WORKFLOW_TASK_S = 4.0
"""How long the server waits for a workflow task until it hands it out again: so long a worker that dies in the middle
of one holds its run up. Most take some milliseconds; one that has to replay the longest history takes a second or more
(docs/decisions/0048)."""
LOOK_S = 60.0
"""Time until a run looks for the first time for sub-plans of executions before that ended without a report."""
LOOK_MOST_S = 3_600.0
"""Longest time between two such looks."""
LOOKED_AT = 500
"""Sub-plans looked at at once."""
DRAIN_S = 60.0
"""How long a run at a hard mark waits for what runs; a call that takes longer does not hold the others up."""
OWN_HEARTBEAT_S = 3.0
"""Heartbeats of the activities of a run's own, which any worker may repeat: so soon another one takes over."""
LARGE_HEARTBEAT_S = 15.0
"""The same for those that take plans and values of any size: reading 1 GB of JSON stops all threads of a worker for
7 s, 100 MB for less than one; checking 50,000 nodes stops them for seconds on a busy machine."""
EVENTS_PER_TASK = 6
"""Events that a task in flight may still add, when it ends alone."""
MESSAGE_LIMIT_BYTES = 4 * 1024
"""Failure message; one over 4 MB never arrives."""
FAILURE_TEXT_BYTES = 10_000_000
"""Whole text of a failure, and its traceback, in the payload store."""
REF_BYTES = 100
"""Reference of the payload store."""
SUMMARY_CHARACTERS = 200
"""Summary of an activity or timer in the Temporal UI; the server refuses over 400 bytes."""
NOTES = 100
"""Notes that a run keeps; of those beyond it only the count is told."""
DETAIL_LINES = 50
"""Lines of the live table in the current details."""
CANCEL_GRACE_S = 30.0
"""How long a cancelled run waits for its running activities to stop."""
ACTIVITY_ID_BYTES = 200
WORKFLOW_ID_BYTES = 200
"""Longest id a user may give a run; sub-plans put their path behind it, and Temporal takes 1,000 bytes."""
CHILD_ID_BYTES = 900
MAX_DELAY_S = 86_400.0
"""A service that asks for a longer delay waits a day at most."""


def has_room(*, history_bytes: int, history_events: int, in_flight: int) -> bool:
    """Tells whether a history can take one more task, so that the server never ends the run.

    Args:
        history_bytes: what it has, and what those in flight may bring.
    """
    by_events = (HISTORY_LIMIT_EVENTS - history_events) / EVENTS_PER_TASK
    return history_bytes < HISTORY_LIMIT_BYTES and in_flight + 1 < by_events


_SHORTENED = re.compile(r"~[0-9a-f]{32}\Z")


def short_id(text: str, *, max_bytes: int) -> str:
    """Returns an id that Temporal takes: the text itself, or its beginning, `~` and a hash of the whole."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return text
    return first_bytes(encoded, max_bytes - 40) + _hash_mark(text)


def _hash_mark(text: str) -> str:
    return f"~{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"


def load_id(call_id: str) -> str:
    """Returns the id of the activity that loads the arguments of a call."""
    return f"{ID_LOAD_VALUES}{short_id(call_id, max_bytes=ACTIVITY_ID_BYTES)}"


def store_wait_id(call_id: str) -> str:
    """Return the ID of the activity that waits for the payload store, for a call."""
    return f"{ID_AWAIT_STORE}{short_id(call_id, max_bytes=ACTIVITY_ID_BYTES)}"


def activity_id(task_id: str) -> str:
    """Returns the activity id of a task: the task's own id if it is short enough, and never one of the run's own."""
    if task_id.startswith(OWN_ID_MARK):
        return f"'{short_id(task_id, max_bytes=ACTIVITY_ID_BYTES - 40)}{_hash_mark(task_id)}"
    return short_id(task_id, max_bytes=ACTIVITY_ID_BYTES)


def child_workflow_id(workflow_id: str, task_id: str) -> str:
    """Returns the workflow id of a sub-plan; a slash of the task's own is written %2F, so that no two ids collide."""
    name = task_id.replace("%", "%25").replace("/", "%2F")
    return short_id(f"{workflow_id}/{name}", max_bytes=CHILD_ID_BYTES)


def task_of_child(workflow_id: str, child_id: str) -> str | None:
    """Returns the task whose sub-plan has that workflow id; `None` if the id was shortened."""
    if _SHORTENED.search(child_id):
        return None
    name = child_id.removeprefix(f"{workflow_id}/")
    task_id = name.replace("%2F", "/").replace("%25", "%")
    return task_id if child_workflow_id(workflow_id, task_id) == child_id else None


def summary_of(text: str) -> str:
    """Returns a text as a one-line summary for the Temporal UI, at most 400 bytes."""
    # A compiled plan may come from anywhere, with a title that is no text.
    return cut_bytes(cut_characters(one_line(str(text)), SUMMARY_CHARACTERS), max_bytes=400)
