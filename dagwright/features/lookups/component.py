"""Resolver nodes in a run: known values are used without a call, and a run whose values cannot be resolved ends."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeStatus, Phase, Task, TaskRef
from dagwright.core.scheduler.component import UNRESOLVED_REASON, SchedulerComponent, TaskResult

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class ResolverNodes(SchedulerComponent):
    """Resolver nodes of a plan, handled by the resolver in the options of the run."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self._state = scheduler.state

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the plan has no resolver nodes."""
        plan = self._state.plan
        return self.hooks if plan.step_count > plan.written_count else ()

    def _is_resolver(self, ref: TaskRef) -> bool:
        return self._state.plan.nodes[ref.node].kind == "lookup"

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        """Complete a resolver node whose value is known."""
        node = self._state.plan.nodes[ref.node]
        if node.kind != "lookup" or (result := self._state.options.resolver.known_result(node)) is None:
            return False
        self._state.records[ref.node].result = result
        self._scheduler.propagation.end(ref, NodeStatus.COMPLETED, at)
        return True

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Prevent requests to people in a run that is not interactive."""
        if task.node.kind == "lookup" and not self._state.options.is_interactive:
            task.arguments = self._state.options.resolver.arguments_without_people(task.node, task.arguments)
        return False

    def on_result(self, ref: TaskRef, value: Any) -> TaskResult | None:
        """Store the result for reports to people, and fail the node if values are missing in the result."""
        if not self._is_resolver(ref):
            return None
        node = self._state.plan.nodes[ref.node]
        error = self._state.options.resolver.error_in(node, value)
        if error is None:
            return None
        self._state.records[ref.node].result = value
        return TaskResult(value, error)

    def on_node_ended(self, ref: TaskRef, at: float) -> None:
        """End the run after a failed resolver node: no other node may run then."""
        record = self._state.records[ref.node]
        if not self._is_resolver(ref) or record.status is not NodeStatus.FAILED or self._state.is_stopped:
            return
        is_fail_fast = self._state.plan.on_failure == "fail_fast" and self._state.phase is Phase.ACTIVE
        if record.error is not None and not is_fail_fast:
            # The error is reported once for the run, not for every node.
            self._scheduler.propagation.abort(record.error, at, reason=UNRESOLVED_REASON)
