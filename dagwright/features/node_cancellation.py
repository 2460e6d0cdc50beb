"""Cancellation of single tasks while the run continues: the run waits for a limited time until the tasks end."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import STILL_RUNNING_OUTSIDE, TaskRef
from dagwright.core.scheduler.component import SchedulerComponent

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class NodeCancellation(SchedulerComponent):
    """Cancelled tasks whose end the run awaits."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self._state = scheduler.state

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if no task is being cancelled."""
        return self.hooks if self._state.cancel_deadlines else ()

    def cancel(self, task_id: str, *, deadline_at: float) -> None:
        """Cancel a running task, and wait for its end until a deadline; a second call does not change the deadline."""
        self._state.cancel_deadlines.setdefault(task_id, deadline_at)
        self._scheduler.update_hooks()

    def on_node_ended(self, ref: TaskRef, at: float) -> None:  # noqa: ARG002 - a hook
        """Remove the task from the awaited tasks."""
        if self._state.cancel_deadlines:
            self._state.cancel_deadlines.pop(self._state.id_of(ref), None)

    @property
    def next_timer(self) -> float | None:
        """Next deadline of an awaited task."""
        return min(self._state.cancel_deadlines.values(), default=None)

    def on_timer(self, at: float) -> None:
        """End the tasks that have not stopped in time."""
        due_ids = [task_id for task_id, deadline_at in self._state.cancel_deadlines.items() if deadline_at <= at]
        if due_ids:
            # Other components may have ended tasks at this time: propagate these ends first.
            self._scheduler.propagate(at)
        for task_id in due_ids:
            self._scheduler.task_cancelled(task_id, at=at, reason=STILL_RUNNING_OUTSIDE)
