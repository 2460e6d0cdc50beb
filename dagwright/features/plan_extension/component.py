"""Plan extension component: call the extender of a run whenever no node can change any more."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeError, Phase, RunStatus
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.extension import Extension
from dagwright.features.plan_edits.extension_checks import NodeCheck, rejection_of_extension
from dagwright.features.plan_extension.extender import GoalUnreachable, PlanExtender

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState
    from dagwright.core.scheduler.scheduler import Scheduler

MAX_EXTENSIONS = 100
"""Maximum number of extensions without an event between them; normally an event precedes each extension."""
_INTERNAL_ERROR = "InternalError"


class PlanExtension(SchedulerComponent):
    """Extension of the plan of a run.

    Args:
        check_nodes: function that checks the nodes that people or models send to the run.
    """

    def __init__(self, scheduler: "Scheduler[Any]", check_nodes: NodeCheck) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self.check_nodes = check_nodes
        self.extender: PlanExtender | None = None
        self.stream_progress: dict[str, tuple[int, int]] = {}
        """Call that writes a plan -> its latest attempt, and the number of nodes that the attempt has reported.

        This progress is not part of the snapshot, because a run does not continue in a new execution while a call is in
        flight."""

    def set_extender(self, extender: PlanExtender | None) -> None:
        """Set the extender of the run; `None` means no extender."""
        self.extender = extender
        if extender is not None:
            self._state.is_generated_id = extender.is_reserved
        self._scheduler.update_hooks()

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the run has no extender."""
        return self.hooks if self.extender is not None else ()

    def on_quiescent(self, at: float) -> None:
        """Add nodes until the extender waits for nodes that it has added."""
        if self.extender is None or self._state.phase is not Phase.ACTIVE:
            return
        for _ in range(MAX_EXTENSIONS):
            next_extension = None if self._state.is_stopped else _next_extension_or_error(self.extender, self._state)
            if next_extension is None:
                return
            if isinstance(next_extension, NodeError):
                self._scheduler.abort(next_extension, at)
                return
            self._scheduler.rebuild.charge_unconditionally(at)
            self._scheduler.rebuild.new_edits(at).extend(next_extension)
            self._scheduler.propagation.update(at)
        message = f"the plan was extended {MAX_EXTENSIONS} times in a row without progress"
        self._scheduler.abort(NodeError(_INTERNAL_ERROR, message), at)

    def goal_error(self) -> NodeError | None:
        """Return why a run that has ended has not reached its goal, or `None`."""
        if self.extender is None or not self._state.is_finished:
            return None
        return self.extender.goal_error(self._state)

    def run_status(self, status: RunStatus) -> RunStatus:
        """Return `COMPLETED_WITH_FAILURES` for a completed run that has not reached its goal."""
        has_missed_goal = status is RunStatus.COMPLETED and self.goal_error() is not None
        return RunStatus.COMPLETED_WITH_FAILURES if has_missed_goal else status


def _next_extension_or_error(extender: PlanExtender, state: "RunState") -> Extension | NodeError | None:
    """Return the next extension of the plan, the error that ends the run, or `None` if nothing changes."""
    try:
        extension = extender.next_extension(state)
        rejection = None if extension is None else rejection_of_extension(state, extension)
    except GoalUnreachable as unreachable:
        return unreachable.error
    # A defect of an extender ends the run with an error, in the workflow and in history readers alike.
    except Exception as error:
        return NodeError(_INTERNAL_ERROR, f"the plan could not be extended: {type(error).__name__}: {error}")
    return extension if rejection is None else NodeError("too_large", f"the plan cannot be extended: {rejection}")
