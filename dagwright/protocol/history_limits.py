"""How far the history of one execution may grow, before the run goes on in a new one.

A call in flight does not survive the change of executions, so a run that reaches a hard mark starts nothing more and
waits for what runs. A call may run for hours, or wait a day for its next attempt: after a while the others go on,
up to the next hard mark. At the last limit nothing starts any more, however long the wait.

The engine and the feed both ask here, so that the feed knows what the engine did.
"""

from dataclasses import dataclass

from dagwright.core.boundary import limits
from dagwright.features.run_scheduler import RunScheduler


@dataclass(frozen=True, slots=True)
class HistoryUse:
    """What an execution has used of its history when a workflow task begins."""

    events: int
    size_bytes: int
    signals: int = 0


UNUSED = HistoryUse(0, 0)


class Marks:
    """The hard marks of one execution; each drain that was given up moves them on.

    Args:
        begun: what the execution had used when it had its plan and the state that was handed on.
    """

    def __init__(self, *, begun: HistoryUse = UNUSED) -> None:
        self._begun = begun
        self._given_up = 0
        self.is_last = False
        """Whether no other execution can follow: there is only the last limit then."""

    def give_up_drain(self) -> None:
        """Lets more tasks start, up to the next hard mark."""
        self._given_up += 1

    def is_draining(self, use: HistoryUse) -> bool:
        """Tells whether nothing may start until what runs has ended."""
        if self.is_last:
            return self.is_at_limit(use)
        times = self._given_up + 1
        room_for_signals = limits.SIGNALS_LIMIT - limits.DRAIN_AT_SIGNALS
        return (
            use.events - self._begun.events >= limits.DRAIN_AT_EVENTS * times
            or use.size_bytes - self._begun.size_bytes >= limits.DRAIN_AT_BYTES * times
            # The last signals before the limit are shared out, for there is no second such stretch.
            or use.signals >= limits.SIGNALS_LIMIT - room_for_signals // times
            or self.is_at_limit(use)
        )

    def is_worth_leaving(self, use: HistoryUse) -> bool:
        """Tells whether the run may leave as soon as the server suggests it.

        One that was handed a large state would else do little more than hand it on.
        """
        begun = self._begun.size_bytes
        return begun <= limits.SMALL_FIRST_TASK_BYTES or use.size_bytes >= 2 * begun

    def is_at_limit(self, use: HistoryUse) -> bool:
        """Tells whether a drain cannot be given up."""
        return not limits.has_room(history_bytes=use.size_bytes, history_events=use.events, in_flight=0)

    def has_room(self, use: HistoryUse, scheduler: RunScheduler) -> bool:
        """Tells whether one more task may be in flight."""
        if self.is_draining(use):
            return False
        return limits.has_room(
            history_bytes=use.size_bytes + scheduler.in_flight_bytes,
            history_events=use.events,
            in_flight=scheduler.in_flight,
        )
