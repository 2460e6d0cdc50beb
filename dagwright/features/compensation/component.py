"""Compensation component: add nodes that undo the calls of an incomplete run, in reverse order."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeError, Phase, RunStatus, Task
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.run_state import RunTotals, make_task, status_of
from dagwright.features.compensation.compensation import (
    ERROR_COMPENSATED,
    compensation_extension,
    error_of_incomplete_run,
    is_result_of_call,
    uncompensated_calls,
)
from dagwright.features.plan_edits.extension_checks import rejection_of_extension

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class Compensation(SchedulerComponent):
    """Compensation of the calls of a run that does not complete.

    Args:
        lift_deadline: function that removes the deadline of the run, because compensation has no deadline.
    """

    def __init__(self, scheduler: "Scheduler[Any]", *, lift_deadline: Callable[[], None] = lambda: None) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._lift_deadline = lift_deadline

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the run never compensates."""
        return self.hooks if self._state.compensates else ()

    def on_quiescent(self, at: float) -> None:
        """Start to compensate when the run has ended without completing."""
        state = self._state
        if not state.is_finished or state.phase.forbids_compensation:
            return
        if state.phase is Phase.ACTIVE:
            if state.error is None and status_of(state.plan, state.records) is RunStatus.COMPLETED:
                return
            state.error = state.error or error_of_incomplete_run(state)
        self._compensate(at)

    def start(self, at: float) -> None:
        """Compensate the calls of the earlier run whose final state this run continues.

        The usage of the earlier run is not counted again.
        """
        if self._state.phase.forbids_compensation:
            return
        self._state.error = self._state.error or NodeError(ERROR_COMPENSATED, "the parent run compensates this run")
        self._state.totals = RunTotals()
        self._compensate(at)

    def _compensate(self, at: float) -> None:
        """Add the compensation nodes; all nodes of the run have ended."""
        if self._state.is_stopped:
            # A stopped run has to end even if it is paused.
            self._state.paused = None
        self._state.phase = Phase.COMPENSATING
        extension = compensation_extension(self._state)
        if extension is None or rejection_of_extension(self._state, extension) is not None:
            return
        self._lift_deadline()
        self._scheduler.rebuild.charge_unconditionally(at)
        self._scheduler.rebuild.new_edits(at).extend(extension)
        self._scheduler.propagation.update(at)

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Set the arguments of a compensation task: idempotency key, arguments and result of the compensated call.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: the arguments of the call cannot be resolved any more.
        """
        state, compensated_id = self._state, task.node.compensates
        if compensated_id is None:
            return False
        ref = state.items.ref(compensated_id)
        compensated_task, record = make_task(state, ref), state.record(ref)
        task.compensated_task = compensated_task if task.node.kind == "plan" else None
        if task.node.kind == "plan":
            compensated_task.scope = record.scope
            task.arguments, task.child_snapshot = compensated_task.arguments, record.child_snapshot
            return False
        is_result_known = is_result_of_call(record, state.overrides.get(compensated_id))
        task.arguments = {
            "key": state.options.key_of(record.scope, compensated_task.path),
            "arguments": compensated_task.arguments,
            "result": record.result if is_result_known else None,
        }
        return False

    def run_status(self, status: RunStatus) -> RunStatus:
        """Return the status of a run that only compensates: failed if a call is not compensated."""
        if not self._state.options.only_compensates or not self._state.is_finished:
            return status
        return RunStatus.FAILED if uncompensated_calls(self._state) else RunStatus.COMPLETED
