"""What `describe` knows of a run and no event tells: calls in flight, and a workflow task that fails or waits."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.boundary.usage import USAGE_INDEX, wait_of_heartbeat
from dagwright.core.boundary.wire import (
    ACTIVITY_NOTIFY,
    ACTIVITY_RUN_REGION,
    ERROR_STORE_UNAVAILABLE,
    PAUSED_FOR_MISSING_TOOL,
    PAUSED_FOR_TOOL,
    SEARCH_AWAITING,
)
from dagwright.core.model.states import NodeStatus
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.closing_event import TaskFailure
from dagwright.history.queues import OpenCall, Queue, is_overdue
from dagwright.history.replay import Projection
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.store import StoreUnavailable

_STATES = {
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "started",
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancelling",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED: "held",
}
_CUT_BY_SERVER = "Failure exceeds size limit."
"""What a server that keeps little of a failed attempt says instead; the failure itself, cut, is the cause."""

STORE_UNAVAILABLE = ERROR_STORE_UNAVAILABLE
"""Code of a failure, and of a note, that the payload store does not answer."""
LOOKUP_WAITS = "lookup_waits"
"""Code of a note that what is looked up before anything runs has failed and is tried again."""
_NOTES_OF_A_KIND = 10


async def decode_pending(raw: DescribeWorkflowExecutionResponse, client: Client) -> None:
    """Decode in place the heartbeats and failures of the calls in flight, if the client has a payload codec."""
    for call in raw.pending_activities:
        await decode_payloads(call, client.data_converter)


_FAILS_FOR_GOOD = 2
"""Attempts of a workflow task after which it is no accident any more."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """What the server says of a call in flight.

    Args:
        attempt: 1 for the first.
        state: `scheduled` (no worker has it), `started`, `backing_off` (waits for the next attempt), `held` (by the
            server: its tool is paused) or `cancelling`.
        last_failure: message of the last failed attempt.
        next_attempt_at: seconds since the epoch, while it backs off.
    """

    attempt: int
    state: str
    last_failure: str | None = None
    next_attempt_at: float | None = None


def pending_calls(raw: DescribeWorkflowExecutionResponse, projection: Projection) -> dict[str, PendingCall]:
    """Returns the calls of the plan in flight: task id -> call."""
    found = {}
    for call in raw.pending_activities:
        task_id = projection.task_of(call.activity_id)
        if task_id is not None:
            found[task_id] = _pending_call(call)
    return found


def _pending_call(call: PendingActivityInfo) -> PendingCall:
    state = "backing_off" if _is_backing_off(call) else _STATES.get(call.state, "scheduled")
    return PendingCall(
        attempt=call.attempt,
        state=state,
        last_failure=_said(call.last_failure) if call.HasField("last_failure") else None,
        next_attempt_at=_seconds(call.next_attempt_schedule_time) if state == "backing_off" else None,
    )


def _said(failure: Failure) -> str:
    cut = failure.message == _CUT_BY_SERVER and failure.HasField("cause")
    return failure.cause.message if cut else failure.message


def _is_backing_off(call: PendingActivityInfo) -> bool:
    is_scheduled = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return is_scheduled and call.HasField("next_attempt_schedule_time")


def _seconds(timestamp: Any) -> float:
    return float(timestamp.ToNanoseconds() / 1e9)


def open_calls(raw: DescribeWorkflowExecutionResponse, projection: Projection) -> list[OpenCall]:
    """Returns everything that the run waits for a worker to do, or that one does: its own step, then its calls."""
    own_queue = raw.execution_config.task_queue.name
    calls = [_own_step(raw.pending_workflow_task, own_queue)] if raw.HasField("pending_workflow_task") else []
    for call in raw.pending_activities:
        if call.activity_type.name == ACTIVITY_NOTIFY:
            # Nothing waits for it.
            continue
        queue = Queue(call.activity_options.task_queue.name or own_queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
        is_waiting = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        # Nobody has a call that backs off, but nobody is needed for it either.
        since = _seconds(call.scheduled_time) if is_waiting and not _is_backing_off(call) else None
        held = _held_words(call)
        is_taken = not is_waiting and held is None
        opened = OpenCall(queue, is_taken, scheduled_at=since, tool=call.activity_type.name, held=held)
        calls += _for_the_plan(opened, projection.task_of(call.activity_id), projection.scheduler)
    return calls


def _held_words(call: PendingActivityInfo) -> str | None:
    """Returns why the server holds a call back."""
    if call.state != PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED:
        return None
    paused = call.pause_info.manual
    if paused.reason.startswith((PAUSED_FOR_TOOL, PAUSED_FOR_MISSING_TOOL)):
        return str(paused.reason)
    by = f" by {paused.identity}" if paused.identity else ""
    return f"paused{by}{f': {paused.reason}' if paused.reason else ''}"


def _own_step(task: PendingWorkflowTaskInfo, queue: str) -> OpenCall:
    is_waiting = task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    since = _seconds(task.scheduled_time) if is_waiting else None
    return OpenCall(Queue(queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW), is_taken=not is_waiting, scheduled_at=since)


def _for_the_plan(call: OpenCall, task_id: str | None, scheduler: RunScheduler | None) -> list[OpenCall]:
    """Returns a call as the plan has it: that of a region stands for the nodes that it would run at once."""
    if task_id is None or scheduler is None:
        return [call]
    node = scheduler.state.node_of(task_id)
    if node.kind == "region":
        number = scheduler.state.number_of(node.id)
        assert number is not None
        members = [
            scheduler.plan.nodes[member] for member in scheduler.state.regions.open_members(number, scheduler.records)
        ]
        ready = [member for member in members if _is_ready(scheduler, member.id)]
        return [replace(call, task=member.id, tool=member.tool) for member in ready] or [replace(call, tool=node.tool)]
    tool = scheduler.plan.tools.get(node.tool)
    return [replace(call, task=task_id, is_foreign=tool is not None and tool.is_foreign)]


def _is_ready(scheduler: RunScheduler, node_id: str) -> bool:
    record = scheduler.record_of(node_id)
    return record is not None and record.status is NodeStatus.READY


def may_wait(raw: DescribeWorkflowExecutionResponse) -> bool:
    """Tells whether a run may wait: for a person, a parked tool, or a worker that has not taken something for long."""
    # It tells its attributes some seconds late; one that has nothing to do at all waits as well.
    if raw.workflow_execution_info.search_attributes.indexed_fields[SEARCH_AWAITING].data:
        return True
    if not (raw.pending_activities or raw.pending_children or raw.HasField("pending_workflow_task")):
        return True
    if any(call.paused for call in raw.pending_activities):
        return True
    since = [call.scheduled_time for call in raw.pending_activities if call.HasField("scheduled_time")]
    if raw.HasField("pending_workflow_task"):
        since.append(raw.pending_workflow_task.scheduled_time)
    return bool(raw.pending_children) or any(is_overdue(_seconds(moment)) for moment in since)


def store_notes(raw: DescribeWorkflowExecutionResponse, projection: Projection) -> list[dict[str, Any]]:
    """Returns a note for each call that waits for the payload store, of the first ten that do."""
    notes: list[dict[str, Any]] = []
    for call in raw.pending_activities:
        told = _store_words(call)
        if told is not None and len(notes) < _NOTES_OF_A_KIND:
            task_id = projection.task_of(call.activity_id)
            is_region = call.activity_type.name == ACTIVITY_RUN_REGION
            name = "a group of pure nodes" if is_region else task_id or f"the step {call.activity_type.name}"
            again = f"attempt {call.attempt}, {call.maximum_attempts or 'as many as it takes'} in all"
            # A call with a failure waits for its next attempt; the others wait for the store itself.
            is_waiting = not call.HasField("last_failure")
            until = "it continues by itself when the store answers" if is_region or is_waiting else again
            message = f"{name} waits for the payload store: {told}; {until}"
            notes.append({"code": STORE_UNAVAILABLE, "node_id": None if is_region else task_id, "message": message})
    return notes


def lookup_notes(raw: DescribeWorkflowExecutionResponse, projection: Projection) -> list[dict[str, Any]]:
    """Returns a note for each reason why something that is looked up has to be tried again: its node is never shown."""
    calls: dict[str, list[tuple[int, str]]] = {}
    for call in raw.pending_activities:
        task_id = projection.task_of(call.activity_id)
        if task_id is None or projection.scheduler is None or not call.HasField("last_failure"):
            continue
        node = projection.scheduler.state.node_of(task_id)
        if node.kind == "lookup":
            calls.setdefault(_said(call.last_failure), []).append((call.attempt, node.title or node.id))
    notes: list[dict[str, Any]] = []
    for said, those in [*calls.items()][:_NOTES_OF_A_KIND]:
        more = f" and {len(those) - 1:,} more" if len(those) > 1 else ""
        attempt = max(number for number, _ in those)
        message = f"{those[0][1]}{more}, attempt {attempt}: {said}; it is tried again by itself"
        notes.append({"code": LOOKUP_WAITS, "node_id": None, "message": message})
    return notes


def _store_words(call: PendingActivityInfo) -> str | None:
    """Returns why the payload store does not answer, if that is what a call waits for."""
    details = call.heartbeat_details.payloads
    with suppress(MessageInvalid):
        reason = wait_of_heartbeat([read_message(each) for each in details[: USAGE_INDEX + 1]])
        if reason is not None:
            return cut_bytes(reason, max_bytes=MESSAGE_LIMIT_BYTES)
    if call.activity_type.name == ACTIVITY_RUN_REGION:
        return None
    # Those that are no calls of a tool raise it as it is, and Temporal names it by its class.
    kind = call.last_failure.application_failure_info.type
    return _said(call.last_failure) if kind in (STORE_UNAVAILABLE, StoreUnavailable.__name__) else None


def task_notes(raw: DescribeWorkflowExecutionResponse, failure: TaskFailure | None) -> list[dict[str, Any]]:
    """Returns a note if the workflow task fails again and again; history holds the first failure of a series."""
    attempt = raw.pending_workflow_task.attempt
    if attempt <= _FAILS_FOR_GOOD:
        return []
    if failure is None:
        advice, cause = "no worker answered in time; it continues by itself when one does", "without an answer"
    else:
        advice = _ADVICE.get(failure.cause, "no worker can do its next step; it continues by itself when one can")
        cause = cut_bytes(failure.message, max_bytes=MESSAGE_LIMIT_BYTES)
    message = f"the run cannot continue: {advice} (its workflow task was tried {attempt - 1} times: {cause})"
    return [{"code": "workflow_task_failing", "node_id": None, "message": message}]


_OTHER_CODE = (
    "the worker's code differs from the code that started this run; stop that worker or roll it back, and the run "
    "continues by itself where it is, with nothing lost"
)
_ADVICE = {"NON_DETERMINISTIC_ERROR": _OTHER_CODE}
"""Cause of a failed workflow task -> what to do."""
