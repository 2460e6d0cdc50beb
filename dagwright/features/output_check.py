"""Output check component: fail a run whose output cannot be resolved after all its nodes have ended."""

from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import Phase, RunStatus
from dagwright.core.scheduler.component import SchedulerComponent

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class OutputCheck(SchedulerComponent):
    """Check of the output at the end of a run, after the last extension of its plan and before compensation."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler

    def on_quiescent(self, at: float) -> None:  # noqa: ARG002 - a hook
        """Resolve the output of a run that would end with success; if this fails, set the error of the run."""
        state = self._scheduler.state
        if not state.is_finished or state.phase is not Phase.ACTIVE or not state.plan.output_bindings:
            return
        if self._scheduler.status() in (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES):
            _, state.error = self._scheduler.output()
