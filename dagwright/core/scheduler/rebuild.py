"""Rebuild: derive the state of a run again after its records or its plan were changed from outside.

This happens after continue-as-new, when a person retries a node or sets a result, and when nodes are added.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import ABANDONED, NodeError, NodeStatus, Phase, Record, TaskRef
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.extension import Extension, extend_plan
from dagwright.core.scheduler.run_state import WORK_OF_REBUILD

if TYPE_CHECKING:
    from dagwright.core.scheduler.propagation import Propagation

_DERIVED_STATUSES = (NodeStatus.BLOCKED, NodeStatus.SKIPPED, NodeStatus.CANCELLED)
"""Final states that a node can have because of another node."""
REPLANNED_REASON = "removed when the plan was revised"
"""Reason of a node that was abandoned without a replacement."""


class Rebuild:
    """Rebuild of the derived state of one run from its records."""

    def __init__(self, propagation: "Propagation") -> None:
        self.propagation = propagation
        self.state = propagation.state

    def resume(self, records: Sequence[Record], *, error: NodeError | None, cancelled: bool, phase: Phase) -> None:
        """Continue a run from the state of another scheduler of the same plan, instead of `Scheduler.start`.

        All other state is derived from the records. Running tasks continue: the driver tracks them.

        Args:
            records: records of the nodes, in plan order.
            error, cancelled, phase: state of the run as a whole.
        """
        state = self.state
        state.records = list(records)
        state.error, state.cancelled, state.phase = error, cancelled, phase
        state.unfinished_count = sum(not record.status.is_final for record in state.records)
        for number, (node, record) in enumerate(zip(state.plan.nodes, state.records, strict=True)):
            if record.status is NodeStatus.PENDING:
                for dependency in node.dependencies:
                    if state.records[dependency].status.is_final:
                        state.dependency_counts[number].count(state.plan.nodes[dependency], state.records[dependency])
            if record.items:
                state.items.register(number, record)
            if record.status is NodeStatus.RUNNING and node.for_each is not None:
                # The task that joins results is pending, and does not count as open, until all other tasks have ended.
                open_statuses = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)
                state.items.open_counts[number] = sum(item.record.status in open_statuses for item in record.items)
            self._requeue(number, record)

    def extend(self, extension: Extension) -> None:
        """Apply an extension that an earlier execution of the run made, before `resume`.

        Raises:
            ValueError: the extension belongs to another plan.
        """
        self.state.plan = extend_plan(self.state.plan, extension)
        self.state.extensions.append(extension)
        self._rebuild_indexes(0, 0)

    def _rebuild_indexes(self, base: int, added_count: int) -> None:
        self.state.rebuild_indexes()
        self.propagation.reset_queue()
        for component in self.propagation.hooks.on_rebuild:
            component.on_rebuild(base, added_count)
        self.propagation.hooks.update()

    def decide_all(self, at: float) -> None:
        """Start, skip or block every pending node whose join can decide."""
        for number, record in enumerate(self.state.records):
            if record.status is NodeStatus.PENDING and not self.state.plan.nodes[number].dependencies:
                # Without dependencies the join has no effect, as at the start of the run.
                self.propagation.become_ready(number, at)
            elif record.status is NodeStatus.PENDING:
                self.propagation.decide(number, at)
        self.propagation.update_dependents(at)

    def _requeue(self, number: int, record: Record) -> None:
        """Put the tasks of a node into a new queue."""
        if record.status is NodeStatus.RUNNING and self.state.plan.nodes[number].for_each is not None:
            self.propagation.set_batch_width(number)
            for index, item in enumerate(record.items):
                self._requeue_task(TaskRef(number, index), item.record)
        else:
            self._requeue_task(self.state.items.node_ref(number), record)

    def _requeue_task(self, ref: TaskRef, record: Record) -> None:
        state, queue = self.state, self.propagation.queue
        if record.status is NodeStatus.READY and not state.regions.is_reported(ref.node, state.records):
            queue.push((state.plan.nodes[ref.node].priority, ref))
        elif record.status is NodeStatus.RUNNING:
            queue.occupy(ref.node)

    def charge_within_budget(self, at: float) -> None:
        """Charge the cost of a rebuild to the compute budget of the current activation, if half of it remains.

        Several commands may change the run in one activation, and the nodes that start afterwards need budget too.

        Raises:
            ComputeBudgetExceeded: the cost exceeds the remaining budget, or less than half of the budget remains.
        """
        budget = self.state.compute_budget
        budget.start(at)
        budget.require_half()
        budget.spend(self.state.rebuild_work)

    def charge_unconditionally(self, at: float) -> None:
        """Charge the cost of a rebuild even if the remaining budget is too small.

        A rebuild that no command has requested must not be rejected, because no later event would request it again.
        """
        self.state.compute_budget.start(at)
        self.state.compute_budget.charge(self.state.rebuild_work)

    def rebuild(self, at: float, *, plan: CompiledPlan | None = None, base: int = 0, added_count: int = 0) -> None:
        """Continue with changed records or an extended plan. The caller has to call `Scheduler.propagate` afterwards.

        Args:
            base, added_count: the numbers of nodes from `base` on grew by `added_count`.

        Complexity: O(V + E), a few microseconds per node or edge.
        """
        state = self.state
        state.plan = plan or state.plan
        self._rebuild_indexes(base, added_count)
        self.resume(state.records, error=state.error, cancelled=state.cancelled, phase=state.phase)
        for number, record in enumerate(state.records):
            if record.status is NodeStatus.RUNNING and record.items and not map_items.is_batched(record):
                self.propagation.restart_items(number, at)
        self.decide_all(at)

    def new_edits(self, at: float) -> "RecordEdits":
        """Return an empty set of changes to the run, which are applied together."""
        return RecordEdits(self, at)

    def reset(self, ref: TaskRef, record: Record, at: float) -> None:
        """Replace the record of a node or item. The caller has to call `rebuild` afterwards."""
        for component in self.propagation.hooks.on_node_reset:
            component.on_node_reset(ref, at)
        if ref.item is None:
            self.state.records[ref.node] = record
        else:
            self.state.records[ref.node].items[ref.item].record = record

    def limit_in_flight(self, count: int) -> None:
        """Set the number of tasks that may run at once; call it before `resume`."""
        self.state.limits_changed = True
        self.state.max_in_flight = self.state.items.max_in_flight = count
        self.propagation.queue = self.propagation.new_queue()

    def set_max_in_flight(self, count: int, at: float) -> None:
        """Change the number of tasks that may run at once, including batches of maps. Running tasks continue.

        Complexity: O(V), 1-2 microseconds per node.

        Raises:
            ComputeBudgetExceeded: the compute budget of the current activation is used up; nothing has changed.
        """
        self.state.compute_budget.start(at)
        self.state.compute_budget.spend(WORK_OF_REBUILD * len(self.state.records))
        self.limit_in_flight(count)
        for number, record in enumerate(self.state.records):
            self._requeue(number, record)


class RecordEdits:
    """Changes to the records and the plan of a run that are applied together or not at all."""

    def __init__(self, rebuild: Rebuild, at: float) -> None:
        self._rebuild = rebuild
        self._state = rebuild.state
        self._at = at
        self._records: dict[TaskRef, Record] = {}
        self._retried_ids: list[str] = []

    def put(self, ref: TaskRef, record: Record) -> None:
        """Replace a record."""
        self._records[ref] = record
        self._reopen_node_of(ref)

    def retry(self, ref: TaskRef) -> None:
        """Run a node or item again, as a new call."""
        self.put(ref, Record())
        self._retried_ids.append(self._state.id_of(ref))

    def reopen_dependents(self, number: int) -> None:
        """Reset all dependents that ended because of a node, so that they are decided again."""
        unvisited_numbers = [number]
        while unvisited_numbers:
            for dependent in self._state.dependents[unvisited_numbers.pop()]:
                record, ref = self._state.records[dependent], TaskRef(dependent)
                is_derived = record.status in _DERIVED_STATUSES and not record.attempts and not record.items
                if record.status is NodeStatus.CANCELLED:
                    is_derived = is_derived and bool(record.blocked_by)
                if is_derived and ref not in self._records:
                    self._records[ref] = Record()
                    unvisited_numbers.append(dependent)

    def apply(self) -> None:
        """Apply the changes.

        The caller has to charge the cost before, and to call `Scheduler.propagate` afterwards.
        """
        self._reset_records()
        self._rebuild.rebuild(self._at)

    def extend(self, extension: Extension) -> None:
        """Apply the changes and add nodes. The dependents of a superseded node become dependents of the new node.

        The caller has to charge the cost before, and to call `Scheduler.propagate` afterwards.
        """
        for node_id in extension.abandoned:
            number = self._state.numbers[node_id]
            self._supersede(number, reason=ABANDONED if self._state.plan.nodes[number].is_worker else REPLANNED_REASON)
        for node in extension.nodes:
            if node.supersedes is not None:
                number = self._state.numbers[node.supersedes]
                self.reopen_dependents(number)
                self._supersede(number, reason=None)
        self._reset_records()
        plan, base, added_count = extend_plan(self._state.plan, extension), extension.base, len(extension.nodes)
        self._state.records[base:base] = [Record() for _ in extension.nodes]
        self._state.extensions.append(extension)
        self._rebuild.rebuild(self._at, plan=plan, base=base, added_count=added_count)

    def _supersede(self, number: int, *, reason: str | None) -> None:
        """Mark a node as superseded, because another node replaces it or because the plan continues without it."""
        record = replace(self._state.records[number], status=NodeStatus.SUPERSEDED, reason=reason)
        record.ended_at = record.ended_at or self._at
        self._records[TaskRef(number)] = record

    def _reset_records(self) -> None:
        state = self._state
        for task_id in self._retried_ids:
            override, record = state.override_of(task_id), state.record_of(task_id)
            override.retries, override.attempts = override.retries + 1, record.attempts if record else 0
        for ref, record in self._records.items():
            self._rebuild.reset(ref, record, self._at)

    def _reopen_node_of(self, ref: TaskRef) -> None:
        """Set the node of an item to running again."""
        record, node_ref = self._state.records[ref.node], TaskRef(ref.node)
        if ref.item is not None and record.status.is_final and node_ref not in self._records:
            self._records[node_ref] = replace(
                record, status=NodeStatus.RUNNING, result=None, error=None, reason=None, ended_at=None
            )
