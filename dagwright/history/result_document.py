"""What a run wrote of itself: its document in the last event, and what that says of its nodes."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.core.boundary.wire import ACTIVITY_END_CANCELLED
from dagwright.core.expressions.stored_values import is_whole
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.protocol.messages import MessageInvalid, read_message

_LOCAL_ACTIVITY = "core_local_activity"
"""Name that the SDK gives the markers of local activities."""


def closing_document(event: HistoryEvent) -> dict[str, Any] | None:
    """Returns the document that a run wrote into its last event; `None` if it wrote none."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
    else:
        failure = event.workflow_execution_failed_event_attributes.failure
        payloads = failure.application_failure_info.details.payloads
    try:
        document = read_message(payloads[0]) if payloads else None
    except MessageInvalid:
        return None
    return document if isinstance(document, dict) and "nodes" in document else None


def recorded_document(event: HistoryEvent) -> dict[str, Any] | None:
    """Return the document that a cancelled run recorded in a marker; `None` if the event is another one."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != _LOCAL_ACTIVITY or "result" not in marker.details:
        return None
    try:
        call = read_message(marker.details["data"].payloads[0])
        document = read_message(marker.details["result"].payloads[0])
    except (MessageInvalid, IndexError):
        return None
    is_ours = isinstance(call, dict) and call.get("activity_type") == ACTIVITY_END_CANCELLED
    return document if is_ours and isinstance(document, dict) and "nodes" in document else None


def all_records(scheduler: Scheduler) -> Iterator[Record]:
    """Yields the records of all nodes and items."""
    for record in scheduler.records:
        yield record
        for item in record.items:
            yield item.record


def is_reference(value: Any, *, ref: str) -> bool:
    """Tells whether a value of a written document stands for one that was too large to write."""
    return isinstance(value, dict) and value.keys() == {"ref", "bytes", "preview"} and value["ref"] == ref


def take_written(record: Record, node: Mapping[str, Any], *, name: str) -> None:
    """Makes a record say what the run wrote of its node; a large value is only there as a reference, so it stays."""
    record.status = NodeStatus(node["status"])
    if is_whole(record.result) and not is_reference(node["result"], ref=f"node:{name}"):
        record.result = node["result"]
    record.error = NodeError(**node["error"]) if node["error"] else None
    record.attempts, record.partial, record.reason = node["attempts"], node["partial"], node["reason"]
    record.blocked_by, record.message = tuple(node["blocked_by"]), node.get("message")
    record.started_at, record.ended_at = _seconds(node["started_at"]), _seconds(node["ended_at"])


def _seconds(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time).timestamp()
