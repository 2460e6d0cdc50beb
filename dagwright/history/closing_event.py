"""What the last event of a history tells of a run, and what a failed workflow task does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.history.result_document import all_records, take_written

CLOSED_AS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: None,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "failed",
}
"""How each closing event reads if it brings no document with it."""


async def closing_error(event: HistoryEvent, converter: DataConverter, *, has_document: bool) -> NodeError | None:
    """Returns why a run ended as it did, if it was not by its own word.

    Args:
        converter: decodes failures.
        has_document: the run wrote one.
    """
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
        error = await converter.decode_failure(event.workflow_execution_failed_event_attributes.failure)
        return NodeError(getattr(error, "type", None) or "failed", getattr(error, "message", str(error)))
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
        reason = event.workflow_execution_terminated_event_attributes.reason
        return NodeError("terminated", f"the run was terminated: {reason or 'no reason given'}")
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
        return NodeError("timed_out", "the run took over the time that its starter gave it")
    is_silent = not has_document and CLOSED_AS[event.event_type] is None
    return NodeError("failed", "the run ended without a document") if is_silent else None


def end_nodes(scheduler: Scheduler, document: Mapping[str, Any] | None, *, error: NodeError | None, at: float) -> None:
    """Gives every node the end that the run wrote; one that it wrote nothing of ended with the run at the latest.

    A run writes no nodes if it was ended by force, and their counts alone if they are many. Nobody waits for an answer
    any more.
    """
    for name, node in (document or {}).get("nodes", {}).items():
        record = scheduler.record_of(name)
        if record is not None:
            take_written(record, node, name=name)
    scheduler.requests.forget_open()
    for record in all_records(scheduler):
        if not record.status.is_final:
            record.status, record.ended_at = NodeStatus.CANCELLED, at
            record.reason = error.message if error else None


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a workflow task failed: the server's name of the cause, and all that is known in words."""

    cause: str
    message: str


def task_failure(event: HistoryEvent) -> TaskFailure:
    """Returns why a workflow task failed."""
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    words = cause.replace("_", " ").lower()
    return TaskFailure(cause, f"{words}: {failed.failure.message}" if failed.failure.message else words)
