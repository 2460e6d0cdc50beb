"""The closing event of a run and the result document in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client
from temporalio.converter import DataConverter

from dagwright.core.boundary.wire import ACTIVITY_END_CANCELLED
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.protocol.compact_documents import full_closing_document
from dagwright.protocol.conversion import decode_payloads
from dagwright.protocol.messages import MessageInvalid, read_message

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_LOCAL_ACTIVITY = "core_local_activity"
"""Name that the SDK gives the markers of local activities."""


def closing_document(event: HistoryEvent) -> dict[str, Any] | None:
    """Return the result document in the closing event of a run; `None` if the run wrote no document."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
    else:
        failure = event.workflow_execution_failed_event_attributes.failure
        payloads = failure.application_failure_info.details.payloads
    try:
        document = read_message(payloads[0]) if payloads else None
    except MessageInvalid:
        return None
    return full_closing_document(document) if _is_document(document) else None


def _is_document(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and "status" in value


def recorded_document(event: HistoryEvent) -> dict[str, Any] | None:
    """Return the document that a cancelled run recorded in a marker; `None` for any other event."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != _LOCAL_ACTIVITY or "result" not in marker.details:
        return None
    try:
        call = read_message(marker.details["data"].payloads[0])
        document = read_message(marker.details["result"].payloads[0])
    except (MessageInvalid, IndexError):
        return None
    is_end_record = isinstance(call, dict) and call.get("activity_type") == ACTIVITY_END_CANCELLED
    return full_closing_document(document) if is_end_record and _is_document(document) else None


def all_records(scheduler: "RunScheduler") -> Iterator[Record]:
    """Yield the records of all nodes and items."""
    for record in scheduler.records:
        yield record
        for item in record.items:
            yield item.record


def is_reference(value: Any, *, ref: str) -> bool:
    """Return whether a value of a result document is only a reference to a value that was too large."""
    return isinstance(value, dict) and value.keys() == {"ref", "bytes", "preview"} and value["ref"] == ref


STATUS_AT_CLOSE = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: None,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "failed",
}
"""Closing event -> status of a run without a result document; `None` means the status is in the document."""


async def closing_error(event: HistoryEvent, converter: DataConverter, *, has_document: bool) -> NodeError | None:
    """Return the error of a run from its closing event; `None` if the run ended without an error.

    A run that completed without a result document gets an error that reports the missing document.

    Args:
        converter: converter that decodes failures.
        has_document: whether the run wrote a result document.
    """
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
        error = await converter.decode_failure(event.workflow_execution_failed_event_attributes.failure)
        return NodeError(getattr(error, "type", None) or "failed", getattr(error, "message", str(error)))
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
        reason = event.workflow_execution_terminated_event_attributes.reason
        return NodeError("terminated", f"the run was terminated: {reason or 'no reason given'}")
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
        return NodeError("timed_out", "the run exceeded its execution timeout")
    ended_without_document = not has_document and STATUS_AT_CLOSE[event.event_type] is None
    return NodeError("failed", "the run ended without a document") if ended_without_document else None


def end_open_nodes(scheduler: "RunScheduler", *, error: NodeError | None, at: float) -> None:
    """Mark the open nodes of an ended run as cancelled, and drop its open requests."""
    scheduler.features.feedback.requests.drop_open()
    for record in all_records(scheduler):
        if not record.status.is_final:
            record.status, record.ended_at = NodeStatus.CANCELLED, at
            record.reason = error.message if error else None


@dataclass(frozen=True, slots=True)
class WorkflowTaskFailure:
    """Failure of a workflow task: the cause as the server names it, and a message."""

    cause: str
    message: str


def workflow_task_failure(event: HistoryEvent) -> WorkflowTaskFailure:
    """Return the failure of a workflow task."""
    attributes = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(attributes.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    message = cause.replace("_", " ").lower()
    return WorkflowTaskFailure(
        cause, f"{message}: {attributes.failure.message}" if attributes.failure.message else message
    )


_PAGE_EVENTS = 20
"""Number of events in one page. The marker with the document is one of the last ten events unless signals arrive while
the run ends."""
_MAX_PAGES = 5
_RPC_TIMEOUT = timedelta(seconds=10)


async def read_recorded_document(client: Client, run_id: str, execution_id: str | None) -> dict[str, Any] | None:
    """Return the document that a cancelled run recorded; `None` if its last events contain no document.

    Runs of earlier versions, and runs that were cancelled before they started, have recorded no document.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=run_id, run_id=execution_id or ""),
        maximum_page_size=_PAGE_EVENTS,
    )
    for _ in range(_MAX_PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(
            request, retry=True, timeout=_RPC_TIMEOUT
        )
        for event in page.history.events:
            await decode_payloads(event, client.data_converter)
            if (document := recorded_document(event)) is not None:
                return document
        if not page.next_page_token:
            return None
        request.next_page_token = page.next_page_token
    return None
