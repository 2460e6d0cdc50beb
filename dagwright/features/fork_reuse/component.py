"""Fork reuse: a fork reuses results and idempotency keys of its source run for nodes with the same fingerprint."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.model.states import NodeStatus, Task, TaskRef
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.features.fork_reuse.fingerprint import fingerprint_of, fingerprint_of_map
from dagwright.features.fork_reuse.reuse import ReuseTable, apply_reusable_result

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler


class ForkReuse(SchedulerComponent):
    """Reuse of the source run's results in a fork."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self.table: ReuseTable | None = None
        """Results that may be reused, if the run is a fork."""

    def set_table(self, table: ReuseTable | None) -> None:
        """Set the results that may be reused."""
        self.table = table
        self._scheduler.update_hooks()

    def needed_hooks(self) -> Collection[str]:
        """Return no hooks if the run is not a fork."""
        return self.hooks if self.table is not None else ()

    def on_rebuild(self, base: int, added_count: int) -> None:  # noqa: ARG002 - a hook
        """Clear cached fingerprints of results that may have changed."""
        if self.table is not None:
            self.table.digests.clear()

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        """Complete a node or item with its result in the source run, if its fingerprint is the same."""
        state = self._state
        node = state.plan.nodes[ref.node]
        reusable_result = self.table.results.get(state.id_of(ref)) if self.table is not None else None
        if reusable_result is None or not reusable_result.has_result:
            return False
        # A region evaluates the conditions of its members itself, and members of offloaded regions are not known here.
        if node.kind == "external" and (node.when is not None or state.regions.is_inside_offloaded(ref.node)):
            return False
        is_map = node.for_each is not None and ref.item is None
        try:
            if is_map:
                fingerprint = fingerprint_of_map(state, ref.node, table=self.table)
            else:
                fingerprint = fingerprint_of(state, ref, table=self.table)
        except (UnresolvedReference, ComputeBudgetExceeded):
            return False
        is_reusable = node.kind != "lookup" or state.options.resolver.is_reusable(node, reusable_result.result)
        if fingerprint != reusable_result.fingerprint or not is_reusable:
            return False
        apply_reusable_result(state.record(ref), reusable_result)
        self._scheduler.propagation.end(ref, NodeStatus.COMPLETED, at)
        return True

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Set the idempotency key that the task had in the source run. If the task starts a child run, pass the
        reusable results to the child run."""
        reusable_result = self.table.entry_with_key(task.id, task.node.id) if self.table is not None else None
        if reusable_result is None:
            return False
        task.child_snapshot = reusable_result.child_snapshot
        has_child_runs = task.is_child_run or task.map_batch is not None
        if reusable_result.scope is None or (has_child_runs and reusable_result.fingerprint):
            return False
        has_same_call = (
            not reusable_result.fingerprint
            or fingerprint_of(self._state, task.ref, table=self.table) == reusable_result.fingerprint
        )
        task.scope = self._state.record(task.ref).scope = reusable_result.scope if has_same_call else None
        return False
