"""Grouping of events by the workflow task that handled them, in the order in which the workflow received them.

The workflow receives the signals first, then the updates, then all other events (measured; docs/decisions/0026). The
history records an accepted update directly after the end of the workflow task that handled the update. Therefore a
batch is complete as soon as the history continues with an event of another type.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import (
    HistoryEvent,
)

from dagwright.protocol.history_limits import HistoryUse
from dagwright.protocol.messages import read_message

_SIGNALLED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
_CANCEL_REQUESTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED


@dataclass(slots=True)
class EventBatch:
    """Events of one workflow task.

    Args:
        at: start of the workflow task, by the clock of the workflow.
        history_use: use of the history at that time.
        events: the signals in order, then all events other than messages in order.
        updates: updates that the workflow task handled.
        has_cancel_request: whether the workflow task received Temporal's own cancel request, which is not in `events`.
    """

    at: float
    history_use: HistoryUse
    events: Sequence[HistoryEvent]
    has_cancel_request: bool = False
    updates: list[HistoryEvent] = field(default_factory=list)

    @property
    def messages_and_others(self) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        """Messages and other events, each in the order of the workflow.

        The SDK applies all messages of an activation, runs the workflow, and then applies the other events.
        """
        signal_count = sum(event.event_type == _SIGNALLED for event in self.events)
        return [*self.events[:signal_count], *self.updates], [*self.events[signal_count:]]


class EventBatches:
    """Grouping of the events of one history."""

    def __init__(self) -> None:
        self._unhandled_events: list[HistoryEvent] = []
        self._workflow_task_starts: dict[int, tuple[float, HistoryUse]] = {}
        """Id of the event that started a workflow task -> time of the start, and use of the history at that time."""
        self._message_count = 0
        self._history_use = HistoryUse(0, 0)

    def add(self, event: HistoryEvent) -> None:
        """Add an event that the workflow receives in its next workflow task."""
        self._message_count += event.event_type == _SIGNALLED
        self._unhandled_events.append(event)

    @property
    def signals(self) -> list[HistoryEvent]:
        """Signals that no completed workflow task has handled, in order."""
        return [event for event in self._unhandled_events if event.event_type == _SIGNALLED]

    def count_update(self) -> None:
        """Count an accepted update."""
        self._message_count += 1

    def start(self, event: HistoryEvent, at: float) -> None:
        """Add the start of a workflow task, which may still fail."""
        size = event.workflow_task_started_event_attributes.history_size_bytes
        self._workflow_task_starts[event.event_id] = at, HistoryUse(event.event_id, size, self._message_count)

    def complete(self, completion: HistoryEvent, at: float) -> EventBatch:
        """Return the events of a completed workflow task."""
        started_event_id = completion.workflow_task_completed_event_attributes.started_event_id
        started_at, self._history_use = self._workflow_task_starts.pop(started_event_id, (at, self._history_use))
        events, self._unhandled_events = self._unhandled_events, []
        batch = [event for event in events if event.event_id < started_event_id]
        self._unhandled_events = [event for event in events if event.event_id >= started_event_id]
        signals = [event for event in batch if event.event_type == _SIGNALLED]
        other_events = [event for event in batch if event.event_type not in (_SIGNALLED, _CANCEL_REQUESTED)]
        has_cancel_request = len(signals) + len(other_events) < len(batch)
        return EventBatch(started_at, self._history_use, [*signals, *other_events], has_cancel_request)

    def pop_unhandled(self) -> list[HistoryEvent]:
        """Return the events that no workflow task will receive, because the run has ended."""
        unhandled_events, self._unhandled_events = self._unhandled_events, []
        return unhandled_events


def read_argument(payloads: Sequence[Payload]) -> Any:
    """Return the argument of a run or message.

    Returns:
        `None` if there is no argument; a list of nulls, which is never valid, if there are several arguments.

    Raises:
        MessageInvalid: the argument is not JSON.
    """
    return read_message(payloads[0]) if len(payloads) == 1 else [None] * len(payloads) or None
