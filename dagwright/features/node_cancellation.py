"""Cancellation of single tasks while the run goes on: they are told to stop, and awaited for a limited time."""

from collections.abc import Collection
from typing import Any

from dagwright.core.model.states import STILL_OUTSIDE
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.scheduler import Scheduler


class NodeCancellation(SchedulerComponent):
    """Awaits the end of tasks that were told to stop."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state

    def needed_hooks(self) -> Collection[str]:
        """Return no hook if no task was told to stop."""
        return self.hooks if self._state.cancelling else ()

    def cancel(self, task_id: str, *, until: float) -> None:
        """Tell a running task to stop, and await its end until then; the first time counts."""
        self._state.cancelling.setdefault(task_id, until)
        self._scheduler.update_hooks()

    def on_node_ended(self, ref: TaskRef, at: float) -> None:  # noqa: ARG002 - a hook
        """Await the task no longer."""
        if self._state.cancelling:
            self._state.cancelling.pop(self._state.id_of(ref), None)

    @property
    def next_timer(self) -> float | None:
        """When the next task is awaited no longer."""
        return min(self._state.cancelling.values(), default=None)

    def on_timer(self, at: float) -> None:
        """End the tasks that have not stopped in time."""
        due = [task_id for task_id, until in self._state.cancelling.items() if until <= at]
        if due:
            # What other deadlines have ended comes first.
            self._scheduler.propagate(at)
        for task_id in due:
            self._scheduler.task_cancelled(task_id, at=at, reason=STILL_OUTSIDE)
