"""Limits of the history of one execution, after which the run continues as new.

A call in flight does not survive continue-as-new, so a run that reaches a drain limit drains: it starts no more tasks,
and waits for the calls in flight. A call may run for hours, or wait a day for its next attempt. So a drain times out
after a while: the run starts tasks again, up to the next drain limit. At the hard limit, a drain never times out.

The engine and the history reader both use this module, so the reader knows which tasks the engine has started.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.core.boundary import limits

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


@dataclass(frozen=True, slots=True)
class HistoryUse:
    """Use of an execution's history at the start of a workflow task."""

    events: int
    size_bytes: int
    signals: int = 0


UNUSED_HISTORY = HistoryUse(0, 0)


class HistoryLimits:
    """Drain limits of one execution. Each drain that times out raises the limits.

    Args:
        baseline: use of the history when the execution had loaded its plan and its snapshot.
    """

    def __init__(self, *, baseline: HistoryUse = UNUSED_HISTORY) -> None:
        self._baseline = baseline
        self._ended_drain_count = 0
        self.is_last_execution = False
        """Whether no other execution can follow, so that only the hard limit applies."""

    def end_drain(self) -> None:
        """Record that a drain timed out: tasks start again, up to the next drain limit."""
        self._ended_drain_count += 1

    def is_draining(self, use: HistoryUse) -> bool:
        """Return whether no task may start until the calls in flight have ended."""
        if self.is_last_execution:
            return self.is_at_limit(use)
        next_drain = self._ended_drain_count + 1
        room_for_signals = limits.SIGNALS_LIMIT - limits.DRAIN_AT_SIGNALS
        return (
            use.events - self._baseline.events >= limits.DRAIN_AT_EVENTS * next_drain
            or use.size_bytes - self._baseline.size_bytes >= limits.DRAIN_AT_BYTES * next_drain
            # No drain may exceed `SIGNALS_LIMIT`, so each drain limit is closer to it than the previous drain limit.
            or use.signals >= limits.SIGNALS_LIMIT - room_for_signals // next_drain
            or self.is_at_limit(use)
        )

    def may_continue_as_new(self, use: HistoryUse) -> bool:
        """Return whether the run may continue as new as soon as the server suggests continue-as-new.

        The result is false while the history is mostly a large snapshot: the execution would do little more than pass
        on the snapshot.
        """
        baseline_bytes = self._baseline.size_bytes
        return baseline_bytes <= limits.SMALL_BASELINE_BYTES or use.size_bytes >= 2 * baseline_bytes

    def is_at_limit(self, use: HistoryUse) -> bool:
        """Return whether the hard limit is reached. A drain at the hard limit cannot time out."""
        return not limits.has_room(history_bytes=use.size_bytes, history_events=use.events, in_flight=0)

    def has_room(self, use: HistoryUse, scheduler: "RunScheduler") -> bool:
        """Return whether one more task may be in flight."""
        if self.is_draining(use):
            return False
        return limits.has_room(
            history_bytes=use.size_bytes + scheduler.in_flight_bytes,
            history_events=use.events,
            in_flight=scheduler.in_flight,
        )
