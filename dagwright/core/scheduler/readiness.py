"""How the nodes of a run move on: when they become ready, when their items do, and what their ends bring about.

It exists apart from the scheduler, which takes the events from outside: here stands what follows from them.

Replay: the order in which nodes become ready is part of the order of commands in history.
"""

from collections.abc import Sequence

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.conditions import Condition, ConditionFailed
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import end_of_items, items_of
from dagwright.core.model.states import NodeStatus, Phase
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.joins import Decision, why_blocked
from dagwright.core.scheduler.run_end import unreadable
from dagwright.features.feedback.answering import Answering
from dagwright.features.forks.fingerprint import content_of, content_of_map
from dagwright.features.forks.reuse import take_kept
from dagwright.features.lookups.lookups import FIND_PARTY, UNBOUND, found_before, is_settled


class Readiness(Answering):
    """Moves the nodes of one run on; see `dagwright.core.scheduler.scheduler` for what comes from outside."""

    # Readiness.

    def settle(self, at: float) -> None:
        """Lets everything move on until nothing moves; an event ends with it."""
        self._tell_dependents(at)
        while self.requests.due:
            self._take_due(self.requests.due.pop(0), at)
            self._tell_dependents(at)

    def _tell_dependents(self, at: float) -> None:
        """Tells the dependents of every node that reached its end, and theirs."""
        records, waits, nodes = self.records, self._waits, self.plan.nodes
        while self._settled:
            number = self._settled.pop()
            node, record = nodes[number], records[number]
            is_completed = record.status is NodeStatus.COMPLETED
            for dependent in self._dependents[number]:
                wait = waits[dependent]
                if is_completed:
                    # By far the most cases; a plan may have a hundred edges for each node.
                    wait.remaining -= 1
                    wait.done += 1
                else:
                    wait.count(node, record)
                if (not wait.remaining or wait.is_early) and records[dependent].status is NodeStatus.PENDING:
                    self._decide(dependent, at)

    def _decide(self, number: int, at: float) -> None:
        """Moves a pending node on if its join says so."""
        decision = self._waits[number].decide(self.plan.nodes[number].join)
        if decision is Decision.START:
            self._become_ready(number, at)
        elif decision is Decision.PASS_OVER:
            self._pass_over(number, at)

    def _pass_over(self, number: int, at: float) -> None:
        wait = self._waits[number]
        record = self.records[number]
        if not wait.failed:
            self._end(number, -1, NodeStatus.SKIPPED, at)
            return
        record.blocked_by, record.error = why_blocked(wait, self._numbers, self.records)
        self._end(number, -1, NodeStatus.BLOCKED, at)

    def _become_ready(self, number: int, at: float) -> None:
        self._budget.start(at)
        try:
            self._make_ready(number, at)
        except (MissingData, ConditionFailed, TooMuchWork) as error:
            self._end_failed(number, -1, unreadable(error), at)

    def _make_ready(self, number: int, at: float) -> None:
        if self._membership.is_told(number, self.records):
            if self.changes.kept is None or not self._takes_over(number, -1, at):
                self.records[number].status = NodeStatus.READY
            return
        node = self.plan.nodes[number]
        condition = None if node.when is None else self._asker.condition_of(node.when)
        if condition is not None and not condition.uses_item:
            if not self._asker.holds(condition, self._base_scope):
                self._end(number, -1, NodeStatus.SKIPPED, at)
                return
            condition = None
        if self.changes.kept is not None and self._takes_over(number, -1, at):
            return
        if node.tool == FIND_PARTY and (found := found_before(node, self.changes.bound)) is not None:
            self.records[number].result = found
            self._end(number, -1, NodeStatus.COMPLETED, at)
        elif node.for_each is not None:
            self._expand(number, condition, at)
        elif self._may_ask:
            self._start(number, -1, at)
        else:
            self.records[number].status = NodeStatus.READY
            self._queue.push((node.priority, number, -1))

    def _takes_over(self, number: int, item: int, at: float) -> bool:
        """Ends a node or item with the result of another run, if that is the result that it would have here."""
        assert self.changes.kept is not None
        node = self.plan.nodes[number]
        kept = self.changes.kept.tasks.get(self.id_of((number, item)))
        if kept is None or not kept.has_result:
            return False
        # The condition of a node in a region is not asked here, and what a large region does is not known here.
        if node.kind == "reported" and (node.when is not None or self._membership.is_inside_detached(number)):
            return False
        is_map = node.for_each is not None and item < 0
        try:
            content = content_of_map(self, number) if is_map else content_of(self, number, item)
        except (MissingData, TooMuchWork):
            return False
        if content != kept.content or (node.tool == FIND_PARTY and not is_settled(kept.result)):
            return False
        take_kept(self._record(number, item), kept)
        self._end(number, item, NodeStatus.COMPLETED, at)
        return True

    # Items.

    def _expand(self, number: int, condition: Condition | None, at: float) -> None:
        """Makes a task of every item of a `for_each` for which the condition holds, if there is one."""
        node, record = self.plan.nodes[number], self.records[number]
        items = items_of(node, self._base_scope)
        if items is None:
            self._end(number, -1, NodeStatus.SKIPPED, at)
            return
        tasks = items
        if not isinstance(items, NodeError):
            tasks = self._items.tasks_of(number, items, scope=self._base_scope, asks=self._can_ask(number))
        if isinstance(tasks, NodeError):
            self._end_failed(number, -1, tasks, at)
            return
        assert not isinstance(items, NodeError)
        first_ones = len(map_batches.first_tasks(tasks))
        answers: Sequence[bool | ConditionFailed] = [True] * first_ones
        if condition is not None and first_ones == len(tasks):
            # Chunks ask for their items themselves.
            first = node.first_index
            answers = self._asker.hold_for_items(condition, self._base_scope, items=items, first_index=first)
        record.status, record.items = NodeStatus.RUNNING, [*tasks]
        self._items.claim(number, record)
        self._items.open[number] = first_ones
        self._widen(number)
        for index, answer in enumerate(answers):
            self._start_item(number, index, answer, at)
        if not items:
            self._end_items(number, at)

    def _widen(self, number: int) -> None:
        """Lets each chunk of a large map take as many slots as it has items at once."""
        if map_batches.is_cut(self.records[number]):
            width = self.width_of(number)
            self._queue.widen(number, at_once=width.at_once, width=width.each)

    def _start_item(self, number: int, index: int, answer: bool | ConditionFailed, at: float) -> None:
        if isinstance(answer, ConditionFailed):
            self._end_failed(number, index, unreadable(answer), at)
        elif answer and self.changes.kept is not None and self._takes_over(number, index, at):
            return
        elif answer and self._may_ask:
            self._start(number, index, at)
        elif answer:
            self.records[number].items[index].record.status = NodeStatus.READY
            self._queue.push((self.plan.nodes[number].priority, number, index))
        else:
            self._end(number, index, NodeStatus.SKIPPED, at)

    def _end_items(self, number: int, at: float) -> None:
        """Ends a node whose items have all ended; the results of a large map may have to be joined first."""
        node, record = self.plan.nodes[number], self.records[number]
        if not map_batches.is_cut(record):
            status, error = end_of_items(node, record)
            if status is NodeStatus.COMPLETED:
                record.result = [item.record.result for item in record.items]
        elif (end := map_batches.end_of_map(node, record, can_join=not self.is_stopped)) is not None:
            status, error = end
        else:
            self._items.open[number] = 1
            self._start_item(number, len(record.items) - 1, True, at)
            return
        self._end(number, -1, status, at, error=error)

    # Ends.

    def _end_failed(self, number: int, item: int, error: NodeError, at: float) -> None:
        node = self.plan.nodes[number]
        record = self._record(number, item)
        chunk = self._chunk(number, item)
        if node.on_error == "ask" and self._asks_about_error(number, item, error, at):
            return
        if node.on_error == "value" and (item >= 0 or node.for_each is None) and not (chunk and not chunk.count):
            record.error, record.result = error, [node.value] * chunk.count if chunk else node.value
            self._end(number, item, NodeStatus.COMPLETED, at)
        else:
            self._end(number, item, NodeStatus.FAILED, at, error=error)

    def _end(self, number: int, item: int, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        record = self._record(number, item)
        if record.status is NodeStatus.WAITING:
            self._close_request(self.id_of((number, item)), at)
        if self.by_hand:
            self.changes.cancelling.pop(self.id_of((number, item)), None)
        record.status = status
        record.ended_at = at
        record.error = error or record.error
        if item >= 0:
            if self.requests.early_of:
                self._drop_early(number, item)
            self._items.open[number] -= 1
            if not self._items.open[number]:
                self._end_items(number, at)
            return
        self._unfinished -= 1
        self._settled.append(number)
        self.ended.append(number)
        if self.requests.early_of:
            self._drop_early(number, -1)
        if self.plan.nodes[number].kind == "region":
            self._end_region(number, at)
        if status is NodeStatus.FAILED and self.plan.on_failure == "fail_fast" and self.phase is Phase.GOING:
            # First the dependents learn that they are blocked; what is left then is cancelled.
            self._tell_dependents(at)
            message = f"{self.plan.nodes[number].id!r} failed: {error.message if error else ''}"
            self.abort(NodeError("fail_fast", message), at)
        elif self.plan.nodes[number].kind == "lookup" and status is NodeStatus.FAILED and not self.is_stopped:
            self._end_lookup(number, at)

    def _end_lookup(self, number: int, at: float) -> None:
        """Ends the run where a lookup failed: nothing may run then."""
        error = self.records[number].error
        if error is not None:
            # What is wrong is told once, and not again with every node.
            self.abort(error, at, reason=UNBOUND)

    def _end_region(self, number: int, at: float) -> None:
        """Takes the open nodes of a region that has ended: they are run one by one, or cancelled with the run."""
        for member in self.open_members(number):
            record = self.records[member]
            if self.is_stopped:
                record.reason = self.records[number].reason
                self._end(member, -1, NodeStatus.CANCELLED, at)
            elif self.plan.nodes[number].inner is not None:
                self._end(member, -1, NodeStatus.FAILED, at, error=self.records[number].error)
            elif record.status is NodeStatus.READY:
                self._become_ready(member, at)

    # The end of all.

    def abort(self, error: NodeError, at: float, *, reason: str | None = None) -> None:
        """Ends the run as failed: as `cancel`, but with an error of the run.

        Args:
            reason: of the nodes that are cancelled, if it is not the message of the error.
        """
        if not self.is_stopped:
            self.error = error
            self._stop(at, reason or error.message)

    def _stop(self, at: float, reason: str | None) -> None:
        self.phase = Phase.CLOSED if self.phase is Phase.UNDOING else Phase.STOPPED
        self._queue.clear()
        for number, record in enumerate(self.records):
            for position, item in enumerate(record.items):
                if item.record.status in (NodeStatus.READY, NodeStatus.WAITING):
                    item.record.reason = reason
                    self._end(number, position, NodeStatus.CANCELLED, at)
            if self.plan.nodes[number].kind == "region":
                record.reason = reason
            # What a region is about to tell counts, as the end of every other node that runs.
            is_open = record.status in (NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING)
            if is_open and not self._membership.is_running(number, self.records):
                record.reason = reason
                self._end(number, -1, NodeStatus.CANCELLED, at)
        self._settled.clear()
        # What was asked before the first node could start belongs to none.
        self._close_request("", at)
