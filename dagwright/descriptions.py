"""What `describe` knows of a run and no event tells: calls in flight, and a workflow task that fails or waits."""

from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from dagwright.contracts.limits import MESSAGE_LIMIT_BYTES, cut_text
from dagwright.plan.tools import ToolDeclaration
from dagwright.projection import Projection, TaskFailure
from dagwright.queues import OpenCall, Queue

_STATES = {
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "started",
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancelling",
}
_CUT_BY_SERVER = "Failure exceeds size limit."
"""What a server that keeps little of a failed attempt says instead; the failure itself, cut, is the cause."""

_FAILS_FOR_GOOD = 2
"""Attempts of a workflow task after which it is no accident any more."""

_UNDECLARED = ToolDeclaration(name="")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """What the server says of a call in flight.

    Args:
        attempt: 1 for the first.
        state: `scheduled` (no worker has it), `started`, `backing_off` (waits for the next attempt) or
            `cancelling`.
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
    calls = []
    own_queue = raw.execution_config.task_queue.name
    if raw.HasField("pending_workflow_task"):
        task = raw.pending_workflow_task
        is_waiting = task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
        queue = Queue(own_queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        since = _seconds(task.scheduled_time) if is_waiting else None
        calls.append(OpenCall(queue, is_taken=not is_waiting, scheduled_at=since))
    tools = projection.scheduler.plan.tools if projection.scheduler else {}
    for call in raw.pending_activities:
        tool = tools.get(call.activity_type.name, _UNDECLARED)
        name = call.activity_options.task_queue.name or tool.task_queue or own_queue
        is_waiting = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        calls.append(
            OpenCall(
                Queue(name, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY),
                is_taken=not is_waiting,
                # Nobody has a call that backs off, but nobody is needed for it either.
                scheduled_at=_seconds(call.scheduled_time) if is_waiting and not _is_backing_off(call) else None,
                task=projection.task_of(call.activity_id),
                tool=call.activity_type.name,
                is_foreign=tool.is_foreign,
            )
        )
    return calls


def task_notes(raw: DescribeWorkflowExecutionResponse, failure: TaskFailure | None) -> list[dict[str, Any]]:
    """Returns a note if the workflow task fails again and again; history holds the first failure of a series."""
    attempt = raw.pending_workflow_task.attempt
    if attempt <= _FAILS_FOR_GOOD:
        return []
    if failure is None:
        cause, advice = "no worker answered in time", "it goes on by itself when one does"
    else:
        cause = cut_text(failure.message, max_bytes=MESSAGE_LIMIT_BYTES)
        advice = _ADVICE.get(failure.cause, "it goes on by itself when a worker can do it")
    message = (
        f"the run cannot go on: its workflow task has failed {attempt - 1} times ({cause}); it is tried again and "
        f"again: {advice}"
    )
    return [{"code": "workflow_task_failing", "node": None, "message": message}]


_OTHER_CODE = (
    "the worker's code is other than the code that began this run; stop that worker or roll it back, and the run goes "
    "on by itself where it is, with nothing lost"
)
_ADVICE = {"NON_DETERMINISTIC_ERROR": _OTHER_CODE}
"""Cause of a failed workflow task -> what to do."""
