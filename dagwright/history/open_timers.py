"""Timers in the history of a run, and the effect of a timer that fires."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from temporalio.api.history.v1 import HistoryEvent

from dagwright.core.boundary import wire
from dagwright.core.model.states import STILL_RUNNING_OUTSIDE
from dagwright.protocol.history_limits import HistoryLimits
from dagwright.protocol.messages import read_message

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


class OpenTimers:
    """The timers that have started and not fired. The metadata field `summary` of a timer contains its kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def add(self, event: HistoryEvent) -> None:
        """Add a timer that has started."""
        summary = event.user_metadata.summary
        text = read_message(summary) if summary.data else None
        self._kinds[event.timer_started_event_attributes.timer_id] = str(text)

    def fire(
        self,
        timer_id: str,
        scheduler: "RunScheduler | None",
        limits: HistoryLimits | None,
        *,
        dispatched_tasks: Callable[[], Iterable[str]],
        at: float,
    ) -> None:
        """Apply the effect of a timer.

        Args:
            dispatched_tasks: function that returns the tasks that have been dispatched.
        """
        kind = self._kinds.pop(timer_id, None)
        if scheduler is None:
            return
        if kind == wire.TIMER_DEADLINE:
            scheduler.features.deadline.expire(at)
        elif kind == wire.TIMER_DRAIN and limits is not None:
            limits.end_drain()
        elif kind == wire.TIMER_GRACE:
            for task_id in dict.fromkeys(dispatched_tasks()):
                scheduler.task_cancelled(task_id, at=at, reason=STILL_RUNNING_OUTSIDE)
