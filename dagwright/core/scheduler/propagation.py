"""Propagation: how nodes move on, and what the end of one means for the others.

`dagwright.core.scheduler.scheduler` takes events from outside; this module derives what follows from them.

Replay: the order in which nodes become ready is part of the order of commands in history.
"""

from collections.abc import Sequence

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.condition_evaluator import ConditionEvaluator
from dagwright.core.expressions.conditions import Condition, ConditionFailed
from dagwright.core.expressions.projection import largest_result_bytes
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import end_of_items, items_of
from dagwright.core.model.states import NodeStatus, Phase
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.component import Hooks
from dagwright.core.scheduler.joins import Decision, why_blocked
from dagwright.core.scheduler.ready_queue import MAX_IN_FLIGHT, ReadyQueue, gates_of
from dagwright.core.scheduler.run_end import unreadable
from dagwright.core.scheduler.run_state import RunState


class Propagation:
    """Moves the nodes of one run on."""

    def __init__(self, state: RunState, hooks: Hooks) -> None:
        self.state = state
        self.hooks = hooks
        self.derive()

    def derive(self) -> None:
        """Start with an empty queue, after the state has derived its indexes."""
        state = self.state
        self.queue = self.new_queue()
        self._conditions = ConditionEvaluator(state.numbers.__contains__, state.compute_budget)
        self._ended: list[int] = []
        """Numbers of the nodes that have ended and whose dependents have not been updated."""

    def new_queue(self) -> ReadyQueue:
        """Return an empty queue with the limits of the run."""
        plan, limit = self.state.plan, self.state.max_in_flight
        bytes_of = [largest_result_bytes(node, plan.tools.get(node.tool)) for node in plan.nodes]
        of_run = limit if limit < MAX_IN_FLIGHT else None
        return ReadyQueue(gates_of(plan, of_run=of_run), MAX_IN_FLIGHT, bytes_of=bytes_of)

    # Dependents.

    def update(self, at: float) -> None:
        """Update all dependents of nodes that have ended, and do what had to wait for that."""
        self.update_dependents(at)
        for component in self.hooks.after_update:
            while component.after_update(at):
                self.update_dependents(at)

    def update_dependents(self, at: float) -> None:
        """Count the end of every node that has ended for its dependents, and theirs."""
        state, ended = self.state, self._ended
        records, waits, nodes = state.records, state.waits, state.plan.nodes
        while ended:
            number = ended.pop()
            node, record = nodes[number], records[number]
            is_completed = record.status is NodeStatus.COMPLETED
            for dependent in state.dependents[number]:
                wait = waits[dependent]
                if is_completed:
                    # By far the most cases; a plan may have a hundred edges for each node.
                    wait.remaining -= 1
                    wait.done += 1
                else:
                    wait.count(node, record)
                if (not wait.remaining or wait.is_early) and records[dependent].status is NodeStatus.PENDING:
                    self.decide(dependent, at)

    def decide(self, number: int, at: float) -> None:
        """Move a pending node on if its join says so."""
        decision = self.state.waits[number].decide(self.state.plan.nodes[number].join)
        if decision is Decision.START:
            self.become_ready(number, at)
        elif decision is Decision.PASS_OVER:
            self._pass_over(number, at)

    def _pass_over(self, number: int, at: float) -> None:
        state, ref = self.state, self.state.items.node(number)
        wait, record = state.waits[number], state.records[number]
        if not wait.failed:
            self.end(ref, NodeStatus.SKIPPED, at)
            return
        record.blocked_by, record.error = why_blocked(wait, state.numbers, state.records)
        self.end(ref, NodeStatus.BLOCKED, at)

    # Readiness.

    def become_ready(self, number: int, at: float) -> None:
        """Start a node whose join lets it start, unless its condition or a component decides otherwise."""
        self.state.compute_budget.start(at)
        try:
            self._make_ready(number, at)
        except (MissingData, ConditionFailed, TooMuchWork) as error:
            self.end_failed(self.state.items.node(number), unreadable(error), at)

    def _make_ready(self, number: int, at: float) -> None:
        state, ref = self.state, self.state.items.node(number)
        if state.regions.is_told(number, state.records):
            if not self._is_handled(ref, at):
                state.records[number].status = NodeStatus.READY
            return
        node = state.plan.nodes[number]
        condition = None if node.when is None else self._conditions.condition_of(node.when)
        if condition is not None and not condition.uses_item:
            if not self._conditions.evaluate(condition, state.scope):
                self.end(ref, NodeStatus.SKIPPED, at)
                return
            condition = None
        if self.hooks.on_node_ready and self._is_handled(ref, at):
            return
        if node.for_each is not None:
            self._expand(ref, condition, at)
        else:
            state.records[number].status = NodeStatus.READY
            self.queue.push((node.priority, ref))

    def _is_handled(self, ref: TaskRef, at: float) -> bool:
        return any(component.on_node_ready(ref, at) for component in self.hooks.on_node_ready)

    def enqueue(self, ref: TaskRef) -> None:
        """Queue a node or item that nothing keeps from starting."""
        self.state.record(ref).status = NodeStatus.READY
        self.queue.push((self.state.plan.nodes[ref.node].priority, ref))

    # Items.

    def _expand(self, ref: TaskRef, condition: Condition | None, at: float) -> None:
        """Create the tasks of a `for_each`: its items, or batches of them."""
        state, number = self.state, ref.node
        node, record = state.plan.nodes[number], state.records[number]
        items = items_of(node, state.scope)
        if items is None:
            self.end(ref, NodeStatus.SKIPPED, at)
            return
        tasks = items
        if not isinstance(items, NodeError):
            keeps_items = any(component.keeps_items(number) for component in self.hooks.keeps_items)
            tasks = state.items.tasks_of(number, items, scope=state.scope, asks=keeps_items)
        if isinstance(tasks, NodeError):
            self.end_failed(ref, tasks, at)
            return
        assert not isinstance(items, NodeError)
        first_ones = len(map_batches.first_tasks(tasks))
        answers: Sequence[bool | ConditionFailed] = [True] * first_ones
        if condition is not None and first_ones == len(tasks):
            # Batches evaluate the condition for their items themselves.
            first = node.first_index
            answers = self._conditions.evaluate_items(condition, state.scope, items=items, first_index=first)
        record.status, record.items = NodeStatus.RUNNING, [*tasks]
        state.items.claim(number, record)
        state.items.open[number] = first_ones
        self.widen(number)
        for index, answer in enumerate(answers):
            self._start_item(TaskRef(number, index), answer, at)
        if not items:
            self._end_items(number, at)

    def widen(self, number: int) -> None:
        """Let each batch of a large map take as many slots as it has items at once."""
        if map_batches.is_cut(self.state.records[number]):
            width = self.state.width_of(number)
            self.queue.widen(number, at_once=width.at_once, width=width.each)

    def _start_item(self, ref: TaskRef, answer: bool | ConditionFailed, at: float) -> None:
        if isinstance(answer, ConditionFailed):
            self.end_failed(ref, unreadable(answer), at)
        elif not answer:
            self.end(ref, NodeStatus.SKIPPED, at)
        elif not self._is_handled(ref, at):
            self.enqueue(ref)

    def restart_items(self, number: int, at: float) -> None:
        """Start the items of a node that were reset; the node ends if there are none, and none was open."""
        state = self.state
        items, open_count = state.records[number].items, state.items.open
        again = [index for index, item in enumerate(items) if item.record.status is NodeStatus.PENDING]
        open_count[number] += len(again)
        for index in again:
            self._start_item(TaskRef(number, index), True, at)
        if not open_count[number] and state.records[number].status is NodeStatus.RUNNING:
            self._end_items(number, at)

    def _end_items(self, number: int, at: float) -> None:
        """End a node whose items have all ended; the results of a large map may have to be joined first."""
        state = self.state
        node, record = state.plan.nodes[number], state.records[number]
        if not map_batches.is_cut(record):
            status, error = end_of_items(node, record)
            if status is NodeStatus.COMPLETED:
                record.result = [item.record.result for item in record.items]
        elif (end := map_batches.end_of_map(node, record, can_join=not state.is_stopped)) is not None:
            status, error = end
        else:
            state.items.open[number] = 1
            self._start_item(TaskRef(number, len(record.items) - 1), True, at)
            return
        self.end(state.items.node(number), status, at, error=error)

    # Ends.

    def end_failed(self, ref: TaskRef, error: NodeError, at: float) -> None:
        """End a node or item that failed, as its `on_error` says."""
        node, record, chunk = self.state.plan.nodes[ref.node], self.state.record(ref), self.state.chunk(ref)
        if any(component.on_node_failed(ref, error, at) for component in self.hooks.on_node_failed):
            return
        is_task = ref.item is not None or node.for_each is None
        if node.on_error == "value" and is_task and not (chunk and not chunk.count):
            record.error, record.result = error, [node.value] * chunk.count if chunk else node.value
            self.end(ref, NodeStatus.COMPLETED, at)
        else:
            self.end(ref, NodeStatus.FAILED, at, error=error)

    def end(self, ref: TaskRef, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        """End a node or item; `update` has to follow."""
        state = self.state
        number, item = ref
        record = state.records[number] if item is None else state.records[number].items[item].record
        record.status = status
        record.ended_at = at
        record.error = error or record.error
        if item is None:
            state.unfinished -= 1
            state.items.node_refs[number] = None
            self._ended.append(number)
            state.ended.append(number)
            for component in self.hooks.on_node_ended:
                component.on_node_ended(ref, at)
            if status is NodeStatus.FAILED or state.plan.nodes[number].kind == "region":
                self._end_run_with(number, status, at, error)
            return
        for component in self.hooks.on_node_ended:
            component.on_node_ended(ref, at)
        state.items.open[number] -= 1
        if not state.items.open[number]:
            self._end_items(number, at)

    def _end_run_with(self, number: int, status: NodeStatus, at: float, error: NodeError | None) -> None:
        """Do what the end of a node means for its region, and for a run that must not go on after a failure."""
        state, node = self.state, self.state.plan.nodes[number]
        if node.kind == "region":
            self._end_region(number, at)
        if status is not NodeStatus.FAILED:
            return
        if state.plan.on_failure == "fail_fast" and state.phase is Phase.ACTIVE:
            # First the dependents are blocked; what is left is cancelled after that.
            self.update_dependents(at)
            self.abort(NodeError("fail_fast", f"{node.id!r} failed: {error.message if error else ''}"), at)

    def _end_region(self, number: int, at: float) -> None:
        """Start the open nodes of a region that has ended one by one, or end them with it."""
        state = self.state
        region = state.records[number]
        for member in state.regions.open_members(number, state.records):
            record, ref = state.records[member], state.items.node(member)
            if state.is_stopped:
                record.reason = region.reason
                self.end(ref, NodeStatus.CANCELLED, at)
            elif state.plan.nodes[number].inner is not None:
                self.end(ref, NodeStatus.FAILED, at, error=region.error)
            elif record.status is NodeStatus.READY:
                self.become_ready(member, at)

    # Stop.

    def abort(self, error: NodeError, at: float, *, reason: str | None = None) -> None:
        """End the run as failed: as `stop`, with an error of the run.

        Args:
            reason: of the nodes that are cancelled; the message of the error by default.
        """
        if not self.state.is_stopped:
            self.state.error = error
            self.stop(at, reason or error.message)

    def stop(self, at: float, reason: str | None) -> None:
        """Cancel everything that has not started."""
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
            # A running region may still report ends of its nodes; they count as those of every other running node.
            is_open = record.status in (NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING)
            if is_open and not state.regions.is_running(number, state.records):
                record.reason = reason
                self.end(state.items.node(number), NodeStatus.CANCELLED, at)
        self._ended.clear()
        for component in self.hooks.on_stop:
            component.on_stop(at)
