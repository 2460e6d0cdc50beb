"""The scheduler: a pure state machine. Events go in (a task ended), tasks that may start come out.

The workflow, the feed, the region activity and the property tests all drive this one class. It has no clock:
whoever drives it says what time it is. It never looks at a hash order: all order comes from lists.

Cost: O(V + E) over a whole run, O(out-degree) for each event; `WorkBudget` bounds what conditions and queries add.

Replay: the order in which `next_task` yields tasks is the order of commands in history; changing it breaks
running workflows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dagwright.plan import chunks
from dagwright.plan.compiled import CompiledNode, CompiledPlan
from dagwright.plan.condition_asker import ConditionAsker
from dagwright.plan.conditions import Condition, ConditionFailed
from dagwright.plan.errors import NodeError
from dagwright.plan.graph import dependents_of
from dagwright.plan.item_book import ItemBook
from dagwright.plan.items import end_of_items, items_of
from dagwright.plan.joins import Decision, Wait, why_blocked
from dagwright.plan.membership import InnerState, Membership
from dagwright.plan.projecting import largest_result_bytes
from dagwright.plan.ready_queue import ReadyQueue, gates_of
from dagwright.plan.references import Lookup
from dagwright.plan.resolution import MissingData, Scope, resolve_holes, scope_of_item
from dagwright.plan.run_end import counts_inside, counts_of, ends_left_out, output_of, status_of, unreadable
from dagwright.plan.states import Attempt, Chunk, NodeStatus, Record, RunStatus
from dagwright.plan.tasks import Task
from dagwright.plan.work import TooMuchWork, WorkBudget
from dagwright.plan.worker_results import unwrap_worker_result

MAX_IN_FLIGHT = 500
"""Tasks of one run at once (engine-findings.md 12: more would overflow the server's buffer of events).

The engine starts fewer while results travel inline (docs/decisions/0008)."""

ONE_ATTEMPT = Attempt()
"""What is assumed where a driver knows nothing of the attempts."""


class Scheduler:
    """Runs one compiled plan.

    Args:
        plan: the compiled plan.
        inputs: values of the plan's inputs; a default stands in for what is missing.
        lookups: ids of the parties that were looked up.
        max_in_flight: tasks at once, 1 to `MAX_IN_FLIGHT`.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        inputs: Mapping[str, Any],
        *,
        lookups: Mapping[Lookup, Any] | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.plan = plan
        defaults = {name: schema["default"] for name, schema in plan.inputs.items() if "default" in schema}
        self.inputs: Mapping[str, Any] = {**defaults, **inputs}
        self.lookups = lookups or {}
        self.max_in_flight = max_in_flight
        self.records = [Record() for _ in plan.nodes]
        self.error: NodeError | None = None
        self.cancelled = False
        self._stopped = False
        self._numbers = {node.id: number for number, node in enumerate(plan.nodes)}
        self._dependents = dependents_of([node.dependencies for node in plan.nodes])
        self._waits = [Wait(len(node.dependencies), node.join[0] != "all") for node in plan.nodes]
        self._unfinished = len(plan.nodes)
        bytes_of = [largest_result_bytes(node, plan.tools.get(node.tool)) for node in plan.nodes]
        self._queue = ReadyQueue(gates_of(plan), max_in_flight, bytes_of=bytes_of)
        self._budget = WorkBudget()
        self._asker = ConditionAsker(self._numbers.__contains__, self._budget)
        # One for all tasks: a run makes one for each of them otherwise, and nothing in it changes.
        self._base_scope = Scope(self._value_of, self.inputs, self.lookups, budget=self._budget)
        self._items = ItemBook(plan, self._numbers, max_in_flight=max_in_flight)
        self._settled: list[int] = []
        self._membership = Membership(plan)
        self.ended: list[int] = []
        """Numbers of the nodes that ended in the care of this scheduler, in order."""

    # What a driver asks.

    @property
    def is_finished(self) -> bool:
        """Tells whether every node is in a final state."""
        return self._unfinished == 0

    @property
    def is_stopped(self) -> bool:
        """Tells whether nothing new starts any more, because the run was cancelled or aborted."""
        return self._stopped

    @property
    def in_flight(self) -> int:
        """Count of tasks that were started and have not ended."""
        return self._queue.in_flight

    @property
    def in_flight_bytes(self) -> int:
        """What the tasks in flight may bring into the history, in sum."""
        return self._queue.in_flight_bytes

    def number_of(self, node_id: str) -> int | None:
        """Returns the number of a node, or `None` if there is no such node."""
        return self._numbers.get(node_id)

    def record_of(self, task_id: str) -> Record | None:
        """Returns the record of a node (`id`) or of an item (`id[key]`)."""
        place = self._items.find(task_id)
        return None if place is None else self._record(*place)

    def shown(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yields every node that was written, with its record, in plan order."""
        return islice(zip(self.plan.nodes, self.records, strict=True), self.plan.written_count)

    def detached_regions(self) -> Iterator[tuple[int, CompiledNode]]:
        """Yields the number and the node of each region whose inside is not in the plan."""
        numbers = range(self.plan.written_count, len(self.plan.nodes))
        return ((number, self.plan.nodes[number]) for number in numbers if self.plan.nodes[number].inner is not None)

    def ends_left_out(self) -> int:
        """Returns how many results are missing in the output of a plan that names none, as only regions hold them."""
        return ends_left_out(self.plan, self.records)

    def node_of(self, task_id: str) -> CompiledNode:
        """Returns the node of a task.

        Raises:
            KeyError: there is no such node or item.
        """
        return self.plan.nodes[self._items.place(task_id)[0]]

    def chunk_of(self, task_id: str) -> Chunk | None:
        """Returns the stretch of items that a task stands for, if it is one of a large map."""
        return self._chunk(*self._items.place(task_id))

    # Events. Each tells the dependents in its end what became of the nodes that they wait for.

    def begin(self, at: float) -> None:
        """Makes the nodes ready that wait for nothing."""
        for number, node in enumerate(self.plan.nodes):
            # A node before it that failed may have ended the run.
            if not node.dependencies and not self._stopped:
                self._become_ready(number, at)
        self._settle_dependents(at)

    def resume(self, records: Sequence[Record], *, error: NodeError | None, cancelled: bool, stopped: bool) -> None:
        """Goes on, instead of `begin`, from what another scheduler of the same plan knew between two events.

        Everything else follows from the records. Tasks that were running still are: the driver knows of them.

        Args:
            records: of the nodes, in plan order.
            error, cancelled, stopped: what the other one was told of the whole run.
        """
        self.records = list(records)
        self.error, self.cancelled, self._stopped = error, cancelled, stopped
        self._unfinished = sum(not record.status.is_final for record in self.records)
        for number, (node, record) in enumerate(zip(self.plan.nodes, self.records, strict=True)):
            if record.status is NodeStatus.PENDING:
                for needed in node.dependencies:
                    if self.records[needed].status.is_final:
                        self._waits[number].count(self.plan.nodes[needed], self.records[needed])
            if record.items:
                self._items.claim(number, record)
            if record.status is NodeStatus.RUNNING and node.for_each is not None:
                # The task that joins results has not begun to count until all others have ended.
                waiting = (NodeStatus.READY, NodeStatus.RUNNING)
                self._items.open[number] = sum(item.record.status in waiting for item in record.items)
                self._widen(number)
                for index, item in enumerate(record.items):
                    self._resume_task(number, index, item.record)
            else:
                self._resume_task(number, -1, record)

    def catch_up(self, at: float) -> None:
        """Moves on what hangs on nothing that is open, after a `resume` from nothing but the ends of nodes."""
        for number, record in enumerate(self.records):
            if record.status is NodeStatus.PENDING:
                self._decide(number, at)
        self._settle_dependents(at)

    def _resume_task(self, number: int, item: int, record: Record) -> None:
        if record.status is NodeStatus.READY and not self._membership.is_told(number, self.records):
            self._queue.push((self.plan.nodes[number].priority, number, item))
        elif record.status is NodeStatus.RUNNING:
            self._queue.occupy(number)

    def next_task(self, at: float) -> Task | None:
        """Returns the next task to start, the most urgent first, or `None` if none may start now.

        The task counts as running from here on. Nodes whose arguments cannot be resolved fail on the way.
        """
        self._budget.start(at)
        while (entry := self._queue.pop()) is not None:
            _, number, item = entry
            if self.plan.nodes[number].kind == "region" and not self._membership.is_open(number, self.records):
                # All of them hung on what failed or was skipped.
                self._queue.release(number)
                self._end(number, -1, NodeStatus.COMPLETED, at)
                continue
            try:
                task = self._make_task(number, item)
            except (MissingData, TooMuchWork) as error:
                self._queue.release(number)
                self._end_failed(number, item, unreadable(error), at)
                self._settle_dependents(at)
                continue
            record = self._record(number, item)
            record.status = NodeStatus.RUNNING
            record.started_at = at
            if item >= 0 and self.records[number].started_at is None:
                self.records[number].started_at = at
            return task
        return None

    def complete(
        self, task_id: str, value: Any, *, at: float, attempt: Attempt = ONE_ATTEMPT, is_partial: bool = False
    ) -> None:
        """Takes the result of a task; an event for a task that is not running is ignored."""
        ended = self._take_back(task_id, attempt)
        if ended is None:
            return
        number, item, record = ended
        error = None
        if self.plan.nodes[number].is_worker and self._chunk(number, item) is None:
            value, record.partial, error = unwrap_worker_result(value)
        if error is not None:
            self._end_failed(number, item, error, at)
        else:
            record.result = value
            record.partial = record.partial or is_partial
            self._end(number, item, NodeStatus.COMPLETED, at)
        self._settle_dependents(at)

    def fail(self, task_id: str, error: NodeError, *, at: float, attempt: Attempt = ONE_ATTEMPT) -> None:
        """Takes the final failure of a task; an event for a task that is not running is ignored."""
        ended = self._take_back(task_id, attempt)
        if ended is None:
            return
        number, item, _ = ended
        self._end_failed(number, item, error, at)
        self._settle_dependents(at)

    def task_cancelled(
        self, task_id: str, *, at: float, attempt: Attempt = ONE_ATTEMPT, reason: str | None = None
    ) -> None:
        """Takes the end of a task that was told to stop; an event for a task that is not running is ignored."""
        ended = self._take_back(task_id, attempt)
        if ended is None:
            return
        number, item, record = ended
        record.reason = reason or record.reason
        self._end(number, item, NodeStatus.CANCELLED, at)
        self._settle_dependents(at)

    # Regions.

    def open_members(self, region: int) -> list[int]:
        """Returns the nodes of a region that have not ended, in an order in which they can run."""
        return self._membership.open_members(region, self.records)

    def report(self, node_id: str, end: Record, *, at: float) -> bool:
        """Takes the end of a node that somebody else has run; returns whether it was awaited.

        Args:
            end: its record, in a final state.
        """
        number = self._numbers.get(node_id)
        if number is None or not self._membership.is_told(number, self.records) or self.records[number].status.is_final:
            return False
        record = self.records[number]
        record.result, record.partial, record.blocked_by = end.result, end.partial, end.blocked_by
        record.cached = end.cached
        record.attempts, record.started_at, record.tool_version = end.attempts, end.started_at, end.tool_version
        self._end(number, -1, end.status, at if end.ended_at is None else end.ended_at, error=end.error)
        self._settle_dependents(at)
        return True

    def end_slice(self, task_id: str, *, at: float, goes_on: bool, error: NodeError | None = None) -> None:
        """Takes the end of one call of a region, after the ends of the nodes that it told.

        The region is ready again if some of its nodes are open.

        Args:
            goes_on: whether another call is of use; if not, the open nodes are run one by one, without a region.
            error: why the nodes fail of a region that is of no use and whose inside is not in the plan.
        """
        calls = self.records[self._numbers[task_id]].attempts + 1
        ended = self._take_back(task_id, Attempt(calls))
        if ended is None:
            return
        number, _, record = ended
        if self._stopped:
            self._end(number, -1, NodeStatus.CANCELLED, at)
        elif not self._membership.is_open(number, self.records):
            self._end(number, -1, NodeStatus.COMPLETED, at)
        elif goes_on:
            record.status = NodeStatus.READY
            self._queue.push((self.plan.nodes[number].priority, number, -1))
        elif self.plan.nodes[number].inner is None:
            self._end(number, -1, NodeStatus.SUPERSEDED, at)
        else:
            self._end(number, -1, NodeStatus.FAILED, at, error=error)
        self._settle_dependents(at)

    def tell_inside(self, task_id: str, state: InnerState) -> None:
        """Takes what a slice told of the inside of its region as a whole."""
        self.records[self._numbers[task_id]].result = state

    def counts(self) -> Counter[NodeStatus]:
        """Returns how many of the nodes that were written are in each state, those inside of regions with them."""
        return counts_of(self.plan, self.records)

    def counts_inside(self, region: int) -> Counter[NodeStatus]:
        """Returns how many of the nodes of a region that are not in the plan are in each state."""
        return counts_inside(self.plan, self.records, region)

    def _end_region(self, number: int, at: float) -> None:
        """Takes the open nodes of a region that has ended: they are run one by one, or cancelled with the run."""
        for member in self.open_members(number):
            record = self.records[member]
            if self._stopped:
                record.reason = self.records[number].reason
                self._end(member, -1, NodeStatus.CANCELLED, at)
            elif self.plan.nodes[number].inner is not None:
                self._end(member, -1, NodeStatus.FAILED, at, error=self.records[number].error)
            elif record.status is NodeStatus.READY:
                self._become_ready(member, at)

    def cancel(self, at: float, *, reason: str | None = None) -> None:
        """Cancels everything that has not started; the driver stops what is running and tells how it ended.

        The first stop counts: a run that is cancelled or aborted already stays what it is.
        """
        if not self._stopped:
            self.cancelled = True
            self._stop(at, reason)

    def abort(self, error: NodeError, at: float) -> None:
        """Ends the run as failed: as `cancel`, but with an error of the run."""
        if not self._stopped:
            self.error = error
            self._stop(at, error.message)

    def _take_back(self, task_id: str, attempt: Attempt) -> tuple[int, int, Record] | None:
        """Gives back the slots of a running task; returns its place and record, or `None` if it is not running."""
        number, item = self._items.place(task_id)
        record = self._record(number, item)
        if record.status is not NodeStatus.RUNNING:
            return None
        self._queue.release(number)
        record.attempts = attempt.count
        record.started_at = attempt.started_at or record.started_at
        record.tool_version, record.cached = attempt.tool_version, attempt.cached
        return number, item, record

    def _stop(self, at: float, reason: str | None) -> None:
        self._stopped = True
        self._queue.clear()
        for number, record in enumerate(self.records):
            for position, item in enumerate(record.items):
                if item.record.status is NodeStatus.READY:
                    item.record.reason = reason
                    self._end(number, position, NodeStatus.CANCELLED, at)
            if self.plan.nodes[number].kind == "region":
                record.reason = reason
            # What a region is about to tell counts, as the end of every other node that runs.
            if record.status in (NodeStatus.PENDING, NodeStatus.READY) and not self._membership.is_running(
                number, self.records
            ):
                record.reason = reason
                self._end(number, -1, NodeStatus.CANCELLED, at)
        self._settled.clear()

    # The end of a run.

    def status(self) -> RunStatus:
        """Returns the state of the run (contract.md section 4)."""
        if not self.is_finished:
            return RunStatus.RUNNING
        if self.error is not None:
            return RunStatus.FAILED
        return RunStatus.CANCELLED if self.cancelled else status_of(self.plan, self.records)

    def output(self) -> tuple[Any, NodeError | None]:
        """Returns the output of the run; null and an error if its template cannot be resolved."""
        return output_of(self.plan, self.records, scope=Scope(self._value_of, self.inputs, self.lookups))

    # Readiness.

    def _settle_dependents(self, at: float) -> None:
        """Tells the dependents of every node that reached its end, and theirs, until nothing moves."""
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
            self.records[number].status = NodeStatus.READY
            return
        node = self.plan.nodes[number]
        condition = None if node.when is None else self._asker.condition_of(node.when)
        if condition is not None and not condition.uses_item:
            if not self._asker.holds(condition, self._base_scope):
                self._end(number, -1, NodeStatus.SKIPPED, at)
                return
            condition = None
        if node.for_each is not None:
            self._expand(number, condition, at)
        else:
            self.records[number].status = NodeStatus.READY
            self._queue.push((node.priority, number, -1))

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
            tasks = self._items.tasks_of(number, items, scope=self._base_scope)
        if isinstance(tasks, NodeError):
            self._end_failed(number, -1, tasks, at)
            return
        assert not isinstance(items, NodeError)
        first_ones = len(chunks.first_tasks(tasks))
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

    def width_of(self, number: int) -> chunks.Width:
        """Returns how wide the chunks of a large map run."""
        return self._items.width_of(number, chunks.count_of(self.records[number]))

    def _widen(self, number: int) -> None:
        """Lets each chunk of a large map take as many slots as it has items at once."""
        if chunks.is_cut(self.records[number]):
            width = self.width_of(number)
            self._queue.widen(number, at_once=width.at_once, width=width.each)

    def _start_item(self, number: int, index: int, answer: bool | ConditionFailed, at: float) -> None:
        if isinstance(answer, ConditionFailed):
            self._end_failed(number, index, unreadable(answer), at)
        elif answer:
            self.records[number].items[index].record.status = NodeStatus.READY
            self._queue.push((self.plan.nodes[number].priority, number, index))
        else:
            self._end(number, index, NodeStatus.SKIPPED, at)

    def end_chunk(self, task_id: str, end: chunks.ChunkEnd, *, at: float) -> None:
        """Takes the end of a chunk of a large map; an event for a task that is not running is ignored."""
        ended = self._take_back(task_id, ONE_ATTEMPT)
        if ended is None:
            return
        number, item, _ = ended
        chunks.take_end(self.records[number].items[item], end)
        self._end(number, item, end.status, at, error=end.error)
        self._settle_dependents(at)

    def _end_items(self, number: int, at: float) -> None:
        """Ends a node whose items have all ended; the results of a large map may have to be joined first."""
        node, record = self.plan.nodes[number], self.records[number]
        if not chunks.is_cut(record):
            status, error = end_of_items(node, record)
            if status is NodeStatus.COMPLETED:
                record.result = [item.record.result for item in record.items]
        elif (end := chunks.end_of_map(node, record, can_join=not self._stopped)) is not None:
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
        if node.on_error == "value" and (item >= 0 or node.for_each is None) and not (chunk and not chunk.count):
            record.error, record.result = error, [node.value] * chunk.count if chunk else node.value
            self._end(number, item, NodeStatus.COMPLETED, at)
        else:
            self._end(number, item, NodeStatus.FAILED, at, error=error)

    def _end(self, number: int, item: int, status: NodeStatus, at: float, *, error: NodeError | None = None) -> None:
        record = self._record(number, item)
        record.status = status
        record.ended_at = at
        record.error = error or record.error
        if item >= 0:
            self._items.open[number] -= 1
            if not self._items.open[number]:
                self._end_items(number, at)
            return
        self._unfinished -= 1
        self._settled.append(number)
        self.ended.append(number)
        if self.plan.nodes[number].kind == "region":
            self._end_region(number, at)
        if status is NodeStatus.FAILED and self.plan.on_failure == "fail_fast" and not self._stopped:
            # First the dependents learn that they are blocked; what is left then is cancelled.
            self._settle_dependents(at)
            message = f"{self.plan.nodes[number].id!r} failed: {error.message if error else ''}"
            self.abort(NodeError("fail_fast", message), at)

    # Places and values.

    def _record(self, number: int, item: int) -> Record:
        return self.records[number] if item < 0 else self.records[number].items[item].record

    def _chunk(self, number: int, item: int) -> Chunk | None:
        return self.records[number].items[item].chunk if item >= 0 else None

    def _value_of(self, node_id: str, field_name: str) -> Any:
        record = self.records[self._numbers[node_id]]
        if field_name == "result":
            return record.result if record.status is NodeStatus.COMPLETED else None
        if field_name == "status":
            return record.status.value
        return record.error.to_json() if record.error else None

    def _make_task(self, number: int, item: int) -> Task:
        """Returns the task of a ready node or item.

        Raises:
            MissingData, TooMuchWork: its arguments cannot be resolved.
        """
        node = self.plan.nodes[number]
        if item < 0:
            task_id, path, scope = node.id, [["node", node.id]], self._base_scope
        else:
            entry = self.records[number].items[item]
            task_id, path = f"{node.id}[{entry.key}]", [["node", node.id], ["item", entry.key]]
            if entry.chunk is not None:
                return Task(task_id, node, number, item, {}, path[:1], chunk=entry.chunk)
            scope = scope_of_item(self._base_scope, entry.item, index=item + node.first_index)
        arguments = resolve_holes(node.arguments, node.holes, scope=scope)
        calls = self.records[number].attempts + 1 if node.kind == "region" else 1
        return Task(task_id, node, number, item if item >= 0 else None, arguments, path, calls)
