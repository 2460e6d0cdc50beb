"""Plan extension: a run whose extender adds nodes whenever nothing moves any more."""

from collections.abc import Collection
from typing import Any

from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import Phase, RunStatus
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.rebuild import RecordEdits
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.plan_extension.extender import MOST_STEPS, Pursuit, next_step


class PlanExtension(SchedulerComponent):
    """Extends the plan of a run."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self.extender: Pursuit | None = None
        self.streamed: dict[str, tuple[int, int]] = {}
        """Call that writes a plan -> its newest attempt, and how many nodes that has reported.

        Not part of the snapshot: no run continues in a new execution while a call is in flight."""

    def use(self, extender: Pursuit | None) -> None:
        """Extend the plan with an extender from now on; `None` is no extender."""
        self.extender = extender
        if extender is not None:
            self._state.is_generated_id = extender.is_own
        self._scheduler.update_hooks()

    def needed_hooks(self) -> Collection[str]:
        """Return no hook if the run has no extender."""
        return self.hooks if self.extender is not None else ()

    def on_quiescent(self, at: float) -> None:
        """Add nodes until the extender waits for what it has added."""
        if self.extender is None or self._state.phase is not Phase.ACTIVE:
            return
        for _ in range(MOST_STEPS):
            step = None if self._state.is_stopped else next_step(self.extender, self._state)
            if step is None:
                return
            if isinstance(step, NodeError):
                self._scheduler.abort(step, at)
                return
            self._scheduler.rebuild.charge(at)
            RecordEdits(self._scheduler.rebuild, at).extend(step)
            self._scheduler.propagation.update(at)
        message = f"the run grew {MOST_STEPS} times at one moment, and wants to grow again"
        self._scheduler.abort(NodeError("Bug", message), at)

    def shortfall(self) -> NodeError | None:
        """Return why a run that has ended with a result has not reached its goal."""
        if self.extender is None or not self._state.is_finished:
            return None
        return self.extender.shortfall(self._state)

    def run_status(self, status: RunStatus) -> RunStatus:
        """Return that a run which has not reached its goal has completed with failures."""
        is_short = status is RunStatus.COMPLETED and self.shortfall() is not None
        return RunStatus.COMPLETED_WITH_FAILURES if is_short else status
