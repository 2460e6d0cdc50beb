"""State of a run that only `describe` has: calls in flight, and a workflow task that fails or waits."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.boundary.usage_reports import USAGE_INDEX, awaited_limit, earlier_deferrals, store_wait_reason
from dagwright.core.boundary.wire import (
    ACTIVITY_CALL_BATCH,
    ACTIVITY_NOTIFY,
    ACTIVITY_RUN_REGION,
    ERROR_DEFERRED,
    ERROR_RATE_LIMITED,
    ERROR_STORE_UNAVAILABLE,
    PAUSED_FOR_MISSING_TOOL,
    PAUSED_FOR_TOOL,
    SEARCH_AWAITING,
)
from dagwright.core.model.states import NodeStatus
from dagwright.core.text import cut_bytes
from dagwright.history.closing_event import WorkflowTaskFailure
from dagwright.history.queues import OpenCall, Queue, is_overdue
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.store import StoreUnavailable

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.history.replay import HistoryReplay

_STATES = {
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "started",
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancelling",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED: "held",
}
_DEFERRAL_CODES = (ERROR_DEFERRED, ERROR_RATE_LIMITED)
_CUT_BY_SERVER = "Failure exceeds size limit."
"""Message of the failure that the server puts around a failure that was too large; the cut failure is its cause."""

STORE_UNAVAILABLE = ERROR_STORE_UNAVAILABLE
"""Code of a failure or a note that reports an unresponsive payload store."""
LOOKUP_WAITS = "lookup_waits"
"""Code of the note that a lookup before the first node has failed and is retried."""
_MAX_NOTES_OF_A_KIND = 10


async def decode_pending(raw: DescribeWorkflowExecutionResponse, client: Client) -> None:
    """Decode in place the heartbeats and failures of the calls in flight, if the client has a payload codec."""
    for activity in raw.pending_activities:
        await decode_payloads(activity, client.data_converter)


_MAX_UNREPORTED_ATTEMPTS = 2
"""Maximum number of attempts of a workflow task without a note about its failure."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Call in flight as the server describes it.

    Args:
        attempt: 1 for the first; deferred attempts do not count.
        state: `scheduled` (no worker has the call), `started`, `backing_off` (before the next attempt), `held` (paused
            by the server, because its tool is paused) or `cancelling`.
        last_failure: message of the last failed attempt.
        next_attempt_at: seconds since the epoch, for `backing_off`.
    """

    attempt: int
    state: str
    last_failure: str | None = None
    next_attempt_at: float | None = None


def pending_calls(raw: DescribeWorkflowExecutionResponse, replay: "HistoryReplay") -> dict[str, PendingCall]:
    """Return the plan's calls in flight: task id -> call."""
    calls: dict[str, PendingCall] = {}
    for activity in raw.pending_activities:
        calls |= {task_id: _pending_call(activity) for task_id in replay.tasks_of(activity.activity_id)}
    return calls


def _pending_call(activity: PendingActivityInfo) -> PendingCall:
    state = "backing_off" if _is_backing_off(activity) else _STATES.get(activity.state, "scheduled")
    return PendingCall(
        attempt=activity.attempt - earlier_deferrals(_details(activity), activity.attempt).count,
        state=state,
        last_failure=_message_of(activity.last_failure) if activity.HasField("last_failure") else None,
        next_attempt_at=_seconds(activity.next_attempt_schedule_time) if state == "backing_off" else None,
    )


def _message_of(failure: Failure) -> str:
    is_cut = failure.message == _CUT_BY_SERVER and failure.HasField("cause")
    return failure.cause.message if is_cut else failure.message


def _is_backing_off(activity: PendingActivityInfo) -> bool:
    is_scheduled = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return is_scheduled and activity.HasField("next_attempt_schedule_time")


def _seconds(timestamp: Any) -> float:
    return float(timestamp.ToNanoseconds() / 1e9)


def open_calls(raw: DescribeWorkflowExecutionResponse, replay: "HistoryReplay") -> list[OpenCall]:
    """Return all work of the run that waits for a worker or is being done: the workflow task, then the calls."""
    run_queue = raw.execution_config.task_queue.name
    calls = [_workflow_task_call(raw.pending_workflow_task, run_queue)] if raw.HasField("pending_workflow_task") else []
    for activity in raw.pending_activities:
        if activity.activity_type.name == ACTIVITY_NOTIFY:
            # The run does not wait for notifications.
            continue
        queue = Queue(activity.activity_options.task_queue.name or run_queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
        is_waiting = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        # No worker has a call that is backing off, but such a call needs no worker either.
        scheduled_at = _seconds(activity.scheduled_time) if is_waiting and not _is_backing_off(activity) else None
        pause_reason = _pause_reason(activity)
        open_call = OpenCall(
            queue,
            is_started=not is_waiting and pause_reason is None,
            scheduled_at=scheduled_at,
            tool=activity.activity_type.name,
            pause_reason=pause_reason,
            deferral_reason=_deferral_reason(activity) if pause_reason is None else None,
        )
        tasks: list[str | None] = [*replay.tasks_of(activity.activity_id)]
        for task_id in tasks or [None]:
            calls += _calls_of_plan(open_call, task_id, replay.scheduler)
    return calls


def _pause_reason(activity: PendingActivityInfo) -> str | None:
    """Return why the server has paused a call."""
    if activity.state != PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED:
        return None
    manual_pause = activity.pause_info.manual
    if manual_pause.reason.startswith((PAUSED_FOR_TOOL, PAUSED_FOR_MISSING_TOOL)):
        return str(manual_pause.reason)
    by_identity = f" by {manual_pause.identity}" if manual_pause.identity else ""
    return f"paused{by_identity}{f': {manual_pause.reason}' if manual_pause.reason else ''}"


def _deferral_reason(activity: PendingActivityInfo) -> str | None:
    """Return why a call is deferred although a worker could execute it, or `None`. The call waits before its next
    attempt or inside a worker."""
    if _is_backing_off(activity) and activity.last_failure.application_failure_info.type in _DEFERRAL_CODES:
        return _message_of(activity.last_failure)
    is_started = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return awaited_limit(_details(activity)) if is_started else None


def _details(activity: PendingActivityInfo) -> list[Any]:
    """Return the first details of the last heartbeat of a call, up to and including the usage; empty if a detail is
    invalid."""
    with suppress(MessageInvalid):
        return [read_message(detail) for detail in activity.heartbeat_details.payloads[: USAGE_INDEX + 1]]
    return []


def _workflow_task_call(task: PendingWorkflowTaskInfo, queue: str) -> OpenCall:
    is_waiting = task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    scheduled_at = _seconds(task.scheduled_time) if is_waiting else None
    return OpenCall(
        Queue(queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW), is_started=not is_waiting, scheduled_at=scheduled_at
    )


def _calls_of_plan(call: OpenCall, task_id: str | None, scheduler: "RunScheduler | None") -> list[OpenCall]:
    """Return an activity as calls of plan nodes; for a region, one call for each node that is ready."""
    if task_id is None or scheduler is None:
        return [call]
    node = scheduler.state.node_of(task_id)
    if node.kind == "region":
        number = scheduler.state.number_of(node.id)
        assert number is not None
        members = [
            scheduler.plan.nodes[member] for member in scheduler.state.regions.open_members(number, scheduler.records)
        ]
        ready_members = [member for member in members if _is_ready(scheduler, member.id)]
        calls = [replace(call, task=member.id, tool=member.tool) for member in ready_members]
        return calls or [replace(call, tool=node.tool)]
    tool = scheduler.plan.tools.get(node.tool)
    if call.tool == ACTIVITY_CALL_BATCH:
        call = replace(call, tool=node.tool)
    return [replace(call, task=task_id, is_foreign=tool is not None and tool.is_foreign)]


def _is_ready(scheduler: "RunScheduler", node_id: str) -> bool:
    record = scheduler.record_of(node_id)
    return record is not None and record.status is NodeStatus.READY


def may_wait(raw: DescribeWorkflowExecutionResponse) -> bool:
    """Return whether a run may be waiting: for a person, a paused tool, or a worker."""
    # The search attributes are some seconds late, so they are not enough. A run without any open work waits as well.
    if raw.workflow_execution_info.search_attributes.indexed_fields[SEARCH_AWAITING].data:
        return True
    if not (raw.pending_activities or raw.pending_children or raw.HasField("pending_workflow_task")):
        return True
    if any(activity.paused or _deferral_reason(activity) is not None for activity in raw.pending_activities):
        return True
    scheduled_times = [
        activity.scheduled_time for activity in raw.pending_activities if activity.HasField("scheduled_time")
    ]
    if raw.HasField("pending_workflow_task"):
        scheduled_times.append(raw.pending_workflow_task.scheduled_time)
    return bool(raw.pending_children) or any(is_overdue(_seconds(time)) for time in scheduled_times)


def store_notes(raw: DescribeWorkflowExecutionResponse, replay: "HistoryReplay") -> list[dict[str, Any]]:
    """Return notes for the calls that wait for the payload store, ten at most."""
    notes: list[dict[str, Any]] = []
    for activity in raw.pending_activities:
        reason = _store_problem(activity)
        if reason is not None and len(notes) < _MAX_NOTES_OF_A_KIND:
            task_id = replay.task_of(activity.activity_id)
            is_region = activity.activity_type.name == ACTIVITY_RUN_REGION
            name = "a group of pure nodes" if is_region else task_id or f"the step {activity.activity_type.name}"
            attempt_text = f"attempt {activity.attempt} of {activity.maximum_attempts or 'unlimited attempts'}"
            # A call with a failure waits for its next attempt; a call without a failure waits for the store itself.
            is_waiting = not activity.HasField("last_failure")
            continuation = "it continues by itself when the store responds" if is_region or is_waiting else attempt_text
            message = f"{name} waits for the payload store: {reason}; {continuation}"
            notes.append({"code": STORE_UNAVAILABLE, "node_id": None if is_region else task_id, "message": message})
    return notes


def lookup_notes(raw: DescribeWorkflowExecutionResponse, replay: "HistoryReplay") -> list[dict[str, Any]]:
    """Return a note for each failure of the lookups that are retried, because the nodes of lookups are never shown."""
    calls_by_failure: dict[str, list[tuple[int, str]]] = {}
    for activity in raw.pending_activities:
        task_id = replay.task_of(activity.activity_id)
        if task_id is None or replay.scheduler is None or not activity.HasField("last_failure"):
            continue
        node = replay.scheduler.state.node_of(task_id)
        if node.kind == "lookup":
            calls_by_failure.setdefault(_message_of(activity.last_failure), []).append(
                (activity.attempt, node.title or node.id)
            )
    notes: list[dict[str, Any]] = []
    for message_of_failure, calls_with_failure in [*calls_by_failure.items()][:_MAX_NOTES_OF_A_KIND]:
        more_text = f" and {len(calls_with_failure) - 1:,} more" if len(calls_with_failure) > 1 else ""
        attempt = max(number for number, _ in calls_with_failure)
        subject = f"{calls_with_failure[0][1]}{more_text}, attempt {attempt}"
        message = f"{subject}: {message_of_failure}; it is retried automatically"
        notes.append({"code": LOOKUP_WAITS, "node_id": None, "message": message})
    return notes


def _store_problem(activity: PendingActivityInfo) -> str | None:
    """Return why the payload store does not respond, if a call waits for it."""
    if (reason := store_wait_reason(_details(activity))) is not None:
        return cut_bytes(reason, max_bytes=MAX_FAILURE_MESSAGE_BYTES)
    if activity.activity_type.name == ACTIVITY_RUN_REGION:
        return None
    # Activities other than tool calls raise `StoreUnavailable`, and Temporal uses the name of the class as the type.
    kind = activity.last_failure.application_failure_info.type
    return _message_of(activity.last_failure) if kind in (STORE_UNAVAILABLE, StoreUnavailable.__name__) else None


def workflow_task_notes(
    raw: DescribeWorkflowExecutionResponse, failure: WorkflowTaskFailure | None
) -> list[dict[str, Any]]:
    """Return a note if the workflow task fails repeatedly; the history records only the first failure of a series."""
    attempt = raw.pending_workflow_task.attempt
    if attempt <= _MAX_UNREPORTED_ATTEMPTS:
        return []
    if failure is None:
        advice, cause = (
            "no worker responded in time; the run continues by itself when a worker responds",
            "no response",
        )
    else:
        advice = _ADVICE.get(
            failure.cause, "no worker can do its next step; the run continues by itself when a worker can"
        )
        cause = cut_bytes(failure.message, max_bytes=MAX_FAILURE_MESSAGE_BYTES)
    message = f"the run cannot continue: {advice} (its workflow task was tried {attempt - 1} times: {cause})"
    return [{"code": "workflow_task_failing", "node_id": None, "message": message}]


_CODE_DIFFERS = (
    "the worker's code differs from the code that started this run; stop that worker or roll it back, and the run "
    "continues from its current state; nothing is lost"
)
_ADVICE = {"NON_DETERMINISTIC_ERROR": _CODE_DIFFERS}
"""Cause of a failed workflow task -> advice."""
