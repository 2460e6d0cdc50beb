"""Which events a workflow saw together in one workflow task, and in which order.

The workflow is given the signals first, then the updates, then all other events (measured, docs/decisions). An update
stands in history as accepted, directly behind the end of the workflow task that took it; so a batch is whole when an
event comes that is about no update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.protocol.history_limits import HistoryUse

_SIGNALLED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
_STOPPED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED


@dataclass(slots=True)
class Batch:
    """The events of one workflow task.

    Args:
        at: when it began; it is the workflow's own clock.
        use: what had been used of the history then.
        events: signals, then the others, each in order.
        updates: those that it took.
        is_stopped: Temporal's own cancel was among the events.
    """

    at: float
    use: HistoryUse
    events: Sequence[HistoryEvent]
    is_stopped: bool = False
    updates: list[HistoryEvent] = field(default_factory=list)

    @property
    def in_order(self) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        """The messages and the other events, each in the order in which the workflow was given them.

        The SDK applies all messages of an activation, lets the workflow run, and applies the rest then.
        """
        signals = sum(event.event_type == _SIGNALLED for event in self.events)
        return [*self.events[:signals], *self.updates], [*self.events[signals:]]


class Batches:
    """Puts the events of one history together."""

    def __init__(self) -> None:
        self._waiting: list[HistoryEvent] = []
        self._begun: dict[int, tuple[float, HistoryUse]] = {}
        """Workflow tasks that have begun: event id -> when, and what had been used of the history."""
        self._messages = 0
        self._use = HistoryUse(0, 0)

    def add(self, event: HistoryEvent) -> None:
        """Adds an event that the workflow sees in its next workflow task."""
        self._messages += event.event_type == _SIGNALLED
        self._waiting.append(event)

    @property
    def signals(self) -> list[HistoryEvent]:
        """The signals that no workflow task that has ended took, in order."""
        return [waiting for waiting in self._waiting if waiting.event_type == _SIGNALLED]

    def count_update(self) -> None:
        """Takes note of an update that was accepted."""
        self._messages += 1

    def begin(self, event: HistoryEvent, at: float) -> None:
        """Takes the beginning of a workflow task, which may still fail."""
        size = event.workflow_task_started_event_attributes.history_size_bytes
        self._begun[event.event_id] = at, HistoryUse(event.event_id, size, self._messages)

    def complete(self, event: HistoryEvent, at: float) -> Batch:
        """Returns what the workflow saw in a workflow task that has ended."""
        before = event.workflow_task_completed_event_attributes.started_event_id
        begun_at, self._use = self._begun.pop(before, (at, self._use))
        batch = [waiting for waiting in self._waiting if waiting.event_id < before]
        self._waiting = [waiting for waiting in self._waiting if waiting.event_id >= before]
        signals = [seen for seen in batch if seen.event_type == _SIGNALLED]
        others = [seen for seen in batch if seen.event_type not in (_SIGNALLED, _STOPPED)]
        is_stopped = len(signals) + len(others) < len(batch)
        return Batch(begun_at, self._use, [*signals, *others], is_stopped)

    def take_rest(self) -> list[HistoryEvent]:
        """Returns the events that no workflow task will see, because the run has ended."""
        rest, self._waiting = self._waiting, []
        return rest
