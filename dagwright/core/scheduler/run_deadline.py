"""The deadline of a run, and its end when the deadline has passed."""

from dataclasses import replace
from typing import Any

from dagwright.core.scheduler.deadline import Deadline
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.core.scheduler.timeout_report import held_up_words


class RunDeadline:
    """Limits how long a run may take; the driver keeps the timer and calls `expire`."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler
        self.deadline = Deadline()

    def set(self, limit_s: float, *, by: str | None) -> None:
        """Change how long the run may take, from its start; infinite means no limit."""
        self._scheduler.state.limits_changed = True
        self.deadline = self.deadline.set_by(by, limit_s=limit_s)

    def lift(self) -> None:
        """Remove the limit: a run that compensates for its calls has none."""
        self._scheduler.state.limits_changed = True
        self.deadline = replace(self.deadline, limit_s=None)

    def expire(self, at: float) -> None:
        """End the run as failed if its deadline has passed."""
        if not self.deadline.is_due(at):
            return
        state = self._scheduler.state
        report = held_up_words(state.plan, state.records, is_paused=state.paused is not None)
        error = self.deadline.error
        self._scheduler.abort(error, at)
        if state.error is error and report:
            state.error = replace(error, message=f"{error.message}; {report}")
        self._scheduler.propagate(at)
