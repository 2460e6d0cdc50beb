"""Propagation: apply state transitions of nodes and update the dependents of nodes that ended.

`dagwright.core.scheduler.scheduler` handles external events; this module derives their consequences.

Replay: the order in which nodes become ready determines the order of commands in history.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.condition_parser import ParsedCondition
from dagwright.core.expressions.conditions import ConditionEvaluator, ConditionFailed
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.stored_values import (
    MAX_COMBINED_RESULTS_BYTES,
    MAX_DECISION_PARTS_BYTES,
    MAX_FOREIGN_RESULT_BYTES,
    MAX_SMALL_VALUE_BYTES,
    MAX_VALUE_PARTS_BYTES,
)
from dagwright.core.model.states import NodeError, NodeStatus, Phase, TaskRef
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.component import Hooks
from dagwright.core.scheduler.map_items import items_of, outcome_of_items
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT, Decision, ReadyQueue, block_error, gates_of

if TYPE_CHECKING:
    from dagwright.core.model.compiled import CompiledNode
    from dagwright.core.model.tools import ToolDeclaration
    from dagwright.core.scheduler.run_state import RunState


class Propagation:
    """State transitions of the nodes of one run."""

    def __init__(self, state: "RunState", hooks: Hooks) -> None:
        self.state = state
        self.hooks = hooks
        self.reset_queue()

    def reset_queue(self) -> None:
        """Create an empty queue, after the state has rebuilt its indexes."""
        state = self.state
        self.queue = self.new_queue()
        self._conditions = ConditionEvaluator(state.numbers.__contains__, state.compute_budget)
        self._ends_to_propagate: list[int] = []
        """Numbers of the nodes that ended and whose dependents have not been updated yet."""

    def new_queue(self) -> ReadyQueue:
        """Return an empty queue with the limits of the run."""
        plan, limit = self.state.plan, self.state.max_in_flight
        result_bytes = [largest_result_bytes(node, plan.tools.get(node.tool)) for node in plan.nodes]
        run_limit = limit if limit < MAX_IN_FLIGHT else None
        return ReadyQueue(gates_of(plan, run_limit=run_limit), MAX_IN_FLIGHT, result_bytes=result_bytes)

    # Dependents.

    def update(self, at: float) -> None:
        """Update all dependents of nodes that have ended, then call the `after_update` hooks."""
        self.update_dependents(at)
        for component in self.hooks.after_update:
            while component.after_update(at):
                self.update_dependents(at)

    def update_dependents(self, at: float) -> None:
        """Update the dependents of every node that has ended, transitively."""
        state, ended_numbers = self.state, self._ends_to_propagate
        records, all_counts, nodes = state.records, state.dependency_counts, state.plan.nodes
        while ended_numbers:
            number = ended_numbers.pop()
            node, record = nodes[number], records[number]
            is_completed = record.status is NodeStatus.COMPLETED
            for dependent in state.dependents[number]:
                counts = all_counts[dependent]
                if is_completed:
                    # `count` is inlined for the most frequent case, because a plan may have 100 edges per node.
                    counts.remaining -= 1
                    counts.done += 1
                else:
                    counts.count(node, record)
                can_decide = not counts.remaining or counts.may_decide_early
                if can_decide and records[dependent].status is NodeStatus.PENDING:
                    self.decide(dependent, at)

    def decide(self, number: int, at: float) -> None:
        """Start, skip or block a pending node, if its join can decide."""
        decision = self.state.dependency_counts[number].decide(self.state.plan.nodes[number].join)
        if decision is Decision.START:
            self.become_ready(number, at)
        elif decision is Decision.SKIP_OR_BLOCK:
            self._skip_or_block(number, at)

    def _skip_or_block(self, number: int, at: float) -> None:
        state, ref = self.state, self.state.items.node_ref(number)
        counts, record = state.dependency_counts[number], state.records[number]
        if not counts.has_failure:
            self.end(ref, NodeStatus.SKIPPED, at)
            return
        record.blocked_by, record.error = block_error(counts, state.numbers, state.records)
        self.end(ref, NodeStatus.BLOCKED, at)

    # Readiness.

    def become_ready(self, number: int, at: float) -> None:
        """Make a node ready after its join, unless its condition or a component decides otherwise."""
        self.state.compute_budget.start(at)
        try:
            self._make_ready(number, at)
        except (UnresolvedReference, ConditionFailed, ComputeBudgetExceeded) as error:
            self.end_failed_task(self.state.items.node_ref(number), evaluation_error(error), at)

    def _make_ready(self, number: int, at: float) -> None:
        state, ref = self.state, self.state.items.node_ref(number)
        if state.regions.is_reported(number, state.records):
            if not self._is_taken_over(ref, at):
                state.records[number].status = NodeStatus.READY
            return
        node = state.plan.nodes[number]
        condition = None if node.when is None else self._conditions.condition_of(node.when)
        if condition is not None and not condition.uses_item:
            if not self._conditions.evaluate(condition, state.scope):
                self.end(ref, NodeStatus.SKIPPED, at)
                return
            condition = None
        if self.hooks.on_node_ready and self._is_taken_over(ref, at):
            return
        if node.for_each is not None:
            self._expand(ref, condition, at)
        else:
            state.records[number].status = NodeStatus.READY
            self.queue.push((node.priority, ref))

    def _is_taken_over(self, ref: TaskRef, at: float) -> bool:
        """Call the hooks until a component has ended the task or made it wait; return whether one has."""
        return any(component.on_node_ready(ref, at) for component in self.hooks.on_node_ready)

    def enqueue(self, ref: TaskRef) -> None:
        """Queue a node or item that may start."""
        self.state.record(ref).status = NodeStatus.READY
        self.queue.push((self.state.plan.nodes[ref.node].priority, ref))

    # Items.

    def _expand(self, ref: TaskRef, condition: ParsedCondition | None, at: float) -> None:
        """Create the tasks of a `for_each`: its items, or batches of items."""
        state, number = self.state, ref.node
        node, record = state.plan.nodes[number], state.records[number]
        items = items_of(node, state.scope)
        if items is None:
            self.end(ref, NodeStatus.SKIPPED, at)
            return
        tasks = items
        if not isinstance(items, NodeError):
            items_may_open_requests = any(
                component.items_may_open_requests(number) for component in self.hooks.items_may_open_requests
            )
            tasks = state.items.tasks_of(number, items, scope=state.scope, may_open_requests=items_may_open_requests)
        if isinstance(tasks, NodeError):
            self.end_failed_task(ref, tasks, at)
            return
        assert not isinstance(items, NodeError)
        startable_count = len(map_items.tasks_before_join(tasks))
        outcomes: Sequence[bool | ConditionFailed] = [True] * startable_count
        # If the items are in batches, child runs evaluate the condition.
        if condition is not None and startable_count == len(tasks):
            first = node.first_index
            outcomes = self._conditions.evaluate_items(condition, state.scope, items=items, first_index=first)
        record.status, record.items = NodeStatus.RUNNING, [*tasks]
        state.items.register(number, record)
        state.items.open_counts[number] = startable_count
        self.set_batch_width(number)
        for index, outcome in enumerate(outcomes):
            self._start_item(TaskRef(number, index), outcome, at)
        if not items:
            self._end_items(number, at)

    def set_batch_width(self, number: int) -> None:
        """Make each batch of a large map use one slot per item that it runs at once."""
        if map_items.is_batched(self.state.records[number]):
            concurrency = self.state.map_concurrency(number)
            self.queue.set_task_width(number, max_tasks=concurrency.max_batches, width=concurrency.max_items)

    def _start_item(self, ref: TaskRef, outcome: bool | ConditionFailed, at: float) -> None:
        """Start an item, given the outcome of its condition."""
        if isinstance(outcome, ConditionFailed):
            self.end_failed_task(ref, evaluation_error(outcome), at)
        elif not outcome:
            self.end(ref, NodeStatus.SKIPPED, at)
        elif not self._is_taken_over(ref, at):
            self.enqueue(ref)

    def restart_items(self, number: int, at: float) -> None:
        """Start the reset items of a node, and end the node if none of its items is open."""
        state = self.state
        items, open_counts = state.records[number].items, state.items.open_counts
        reset_indexes = [index for index, item in enumerate(items) if item.record.status is NodeStatus.PENDING]
        open_counts[number] += len(reset_indexes)
        for index in reset_indexes:
            self._start_item(TaskRef(number, index), True, at)
        if not open_counts[number] and state.records[number].status is NodeStatus.RUNNING:
            self._end_items(number, at)

    def _end_items(self, number: int, at: float) -> None:
        """End a node whose items have all ended, or start the task that joins the results of a large map."""
        state = self.state
        node, record = state.plan.nodes[number], state.records[number]
        if not map_items.is_batched(record):
            status, error = outcome_of_items(node, record)
            if status is NodeStatus.COMPLETED:
                record.result = [item.record.result for item in record.items]
        elif (end := map_items.finish_map(node, record, can_join=not state.is_stopped)) is not None:
            status, error = end
        else:
            state.items.open_counts[number] = 1
            self._start_item(TaskRef(number, len(record.items) - 1), True, at)
            return
        self.end(state.items.node_ref(number), status, at, error=error)

    # Ends.

    def end_failed_task(self, ref: TaskRef, error: NodeError, at: float) -> None:
        """End a node or item that failed, according to its `on_error`."""
        node, record, map_batch = self.state.plan.nodes[ref.node], self.state.record(ref), self.state.map_batch(ref)
        if any(component.on_node_failed(ref, error, at) for component in self.hooks.on_node_failed):
            return
        is_task = ref.item is not None or node.for_each is None
        joins_results = map_batch is not None and not map_batch.count
        if node.on_error == "value" and is_task and not joins_results:
            record.error, record.result = error, [node.value] * map_batch.count if map_batch else node.value
            self.end(ref, NodeStatus.COMPLETED, at)
        else:
            self.end(ref, NodeStatus.FAILED, at, error=error)

    def end(self, ref: TaskRef, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        """End a node or item. The caller has to call `update` afterwards."""
        state = self.state
        number, item = ref
        record = state.records[number] if item is None else state.records[number].items[item].record
        record.status = status
        record.ended_at = at
        record.error = error or record.error
        if item is None:
            state.unfinished_count -= 1
            state.items.node_refs[number] = None
            self._ends_to_propagate.append(number)
            state.ended_numbers.append(number)
            for component in self.hooks.on_node_ended:
                component.on_node_ended(ref, at)
            if status is NodeStatus.FAILED or state.plan.nodes[number].kind == "region":
                self._handle_region_end_or_failure(number, status, at, error)
            return
        for component in self.hooks.on_node_ended:
            component.on_node_ended(ref, at)
        state.items.open_counts[number] -= 1
        if not state.items.open_counts[number]:
            self._end_items(number, at)

    def _handle_region_end_or_failure(
        self, number: int, status: NodeStatus, at: float, error: NodeError | None
    ) -> None:
        """End the members of a region that ended, and abort a `fail_fast` run after the failure of a node."""
        state, node = self.state, self.state.plan.nodes[number]
        if node.kind == "region":
            self._end_region(number, at)
        if status is not NodeStatus.FAILED:
            return
        if state.plan.on_failure == "fail_fast" and state.phase is Phase.ACTIVE:
            # Block the dependents first; the abort cancels the other nodes.
            self.update_dependents(at)
            self.abort(NodeError("fail_fast", f"{node.id!r} failed: {error.message if error else ''}"), at)

    def _end_region(self, number: int, at: float) -> None:
        """After the end of a region, start each of its open nodes as a separate task, or end these nodes too."""
        state = self.state
        region = state.records[number]
        for member in state.regions.open_members(number, state.records):
            record, ref = state.records[member], state.items.node_ref(member)
            if state.is_stopped:
                record.reason = region.reason
                self.end(ref, NodeStatus.CANCELLED, at)
            elif state.plan.nodes[number].inner is not None:
                # The region is offloaded.
                self.end(ref, NodeStatus.FAILED, at, error=region.error)
            elif record.status is NodeStatus.READY:
                self.become_ready(member, at)

    # Stop.

    def abort(self, error: NodeError, at: float, *, reason: str | None = None) -> None:
        """Stop the run and mark it as failed.

        Args:
            reason: reason of the cancelled nodes; the message of the error by default.
        """
        if not self.state.is_stopped:
            self.state.error = error
            self.stop(at, reason or error.message)

    def stop(self, at: float, reason: str | None) -> None:
        """Cancel all nodes and items that have not started."""
        state = self.state
        state.phase = Phase.CLOSED if state.phase is Phase.COMPENSATING else Phase.STOPPED
        self.queue.clear()
        for number, record in enumerate(state.records):
            for index, item in enumerate(record.items):
                if item.record.status in (NodeStatus.READY, NodeStatus.WAITING):
                    item.record.reason = reason
                    self.end(TaskRef(number, index), NodeStatus.CANCELLED, at)
            if state.plan.nodes[number].kind == "region":
                record.reason = reason
            # The nodes of a running region count as running, because the region may still report their ends.
            is_open = record.status in (NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING)
            if is_open and not state.regions.is_in_running_region(number, state.records):
                record.reason = reason
                self.end(state.items.node_ref(number), NodeStatus.CANCELLED, at)
        self._ends_to_propagate.clear()
        for component in self.hooks.on_stop:
            component.on_stop(at)


def largest_result_bytes(node: "CompiledNode", tool: "ToolDeclaration | None") -> int:
    """Return the maximum bytes that one task's result may add to the history of its run."""
    if tool is not None and tool.is_foreign:
        return MAX_FOREIGN_RESULT_BYTES
    if node.kind not in ("tool", "lookup"):
        return MAX_COMBINED_RESULTS_BYTES
    if not node.projections:
        return MAX_SMALL_VALUE_BYTES
    has_decision_part = any(use == "whole" for _, use in node.projections)
    return MAX_SMALL_VALUE_BYTES + MAX_VALUE_PARTS_BYTES + (MAX_DECISION_PARTS_BYTES if has_decision_part else 0)


def evaluation_error(error: UnresolvedReference | ConditionFailed | ComputeBudgetExceeded) -> NodeError:
    """Return the error of a node whose condition or arguments could not be evaluated."""
    match error:
        case UnresolvedReference():
            return NodeError(error.code, str(error))
        case ConditionFailed():
            return NodeError("invalid_condition", f"when: {error}")
        case ComputeBudgetExceeded():
            return NodeError("too_large", str(error))
