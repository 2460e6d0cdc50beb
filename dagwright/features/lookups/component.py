"""Lookup nodes in a run: a known entity is used without a call, and a run whose entities cannot be resolved ends."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeStatus, Phase, Task, TaskRef
from dagwright.core.scheduler.component import UNRESOLVED_REASON, SchedulerComponent, TaskResult

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class LookupNodes(SchedulerComponent):
    """Handler of the lookup nodes of a plan, with the resolver in the options of the run."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self._state = scheduler.state

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the plan has no lookup nodes."""
        plan = self._state.plan
        # The lookup nodes are the nodes that are neither visible nor regions.
        return self.hooks if plan.count_without_regions > plan.visible_count else ()

    def _is_lookup(self, ref: TaskRef) -> bool:
        return self._state.plan.nodes[ref.node].kind == "lookup"

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        """Complete a lookup node whose result is known."""
        node = self._state.plan.nodes[ref.node]
        if node.kind != "lookup" or (result := self._state.options.resolver.known_result(node)) is None:
            return False
        self._state.records[ref.node].result = result
        self._scheduler.propagation.end(ref, NodeStatus.COMPLETED, at)
        return True

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Prevent requests to people in a run that is not interactive."""
        if task.node.kind == "lookup" and not self._state.options.is_interactive:
            task.arguments = self._state.options.resolver.non_interactive_arguments(task.node, task.arguments)
        return False

    def on_result(self, ref: TaskRef, value: Any) -> TaskResult | None:
        """Fail a lookup node whose result lacks entities, but store the result for reports to people."""
        if not self._is_lookup(ref):
            return None
        node = self._state.plan.nodes[ref.node]
        error = self._state.options.resolver.error_in(node, value)
        if error is None:
            return None
        self._state.records[ref.node].result = value
        return TaskResult(value, error)

    def on_node_ended(self, ref: TaskRef, at: float) -> None:
        """End the run after a failed lookup node: no other node may run then."""
        record = self._state.records[ref.node]
        if not self._is_lookup(ref) or record.status is not NodeStatus.FAILED or self._state.is_stopped:
            return
        is_fail_fast = self._state.plan.on_failure == "fail_fast" and self._state.phase is Phase.ACTIVE
        if record.error is not None and not is_fail_fast:
            # The error is reported once for the run, not for every node.
            self._scheduler.propagation.abort(record.error, at, reason=UNRESOLVED_REASON)
