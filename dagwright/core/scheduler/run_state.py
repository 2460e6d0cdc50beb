"""What a scheduler knows of a run between two events, and what follows from that alone.

It exists apart from the scheduler so that what only looks stands apart from what moves nodes on. It changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dagwright.core.expressions.compute_budget import MAX_WORK, TooMuchWork, WorkBudget
from dagwright.core.expressions.condition_evaluator import ConditionAsker
from dagwright.core.expressions.projection import largest_result_bytes
from dagwright.core.expressions.references import Lookup
from dagwright.core.expressions.resolution import MissingData, Scope, resolve_holes, scope_of_item
from dagwright.core.expressions.value_refs import shown_in_arguments, with_shown
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode, CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.graph import dependents_of
from dagwright.core.model.lineage import SeenBook
from dagwright.core.model.policy import ALL_RUN, Policy
from dagwright.core.model.requests import Hand, RequestBook
from dagwright.core.model.states import Chunk, ItemRecord, NodeStatus, Phase, Record, RunStatus
from dagwright.core.model.tasks import Task, call_id
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.usage import UsageBook
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.deadline import Deadline
from dagwright.core.scheduler.extension import Extension, newest_of
from dagwright.core.scheduler.item_book import ItemBook, Place
from dagwright.core.scheduler.joins import Wait
from dagwright.core.scheduler.ready_queue import MAX_IN_FLIGHT, ReadyQueue, gates_of
from dagwright.core.scheduler.region_members import Membership
from dagwright.core.scheduler.run_end import counts_inside, counts_of, ends_left_out, output_of, status_of
from dagwright.features.budgets.budget import Budget
from dagwright.features.forks.reuse import KeptBook

WORK_OF_REMAKING = 10
"""Of each node and edge when a plan grows or records change, in the units of the work budget."""
ADDED = "append_nodes"
"""What the lineage of a node says that a person has added."""
_UNDER_WAY = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)
WithAgents = Callable[[CompiledPlan, Mapping[str, ToolDeclaration]], CompiledPlan]
"""Makes sub-plans of the nodes of a plan that `llm` agents do, given the tools that are known."""


def _as_it_is(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:  # noqa: ARG001 - see above
    """Returns a plan in which agents are what they were."""
    return plan


KeyOf = Callable[[str | None, Sequence[Sequence[str]]], str]
"""Makes an idempotency key of a scope and a path; see `Changes`."""


def _no_key(scope: str | None, path: Sequence[Sequence[str]]) -> str:  # noqa: ARG001 - see above
    """Returns what is as long as a key, for who makes no calls."""
    return "dw1_" + "0" * 36


@dataclass(frozen=True, slots=True)
class Paused:
    """Who lets nothing new start, since when (seconds since the epoch), and why."""

    at: float
    by: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Changes:
    """What has come about in a run since it began, beside what became of its nodes and was decided about them.

    Args:
        inputs: those that somebody gave after the start.
        cancelling: task that was told to stop while the run goes on -> until when it is waited for.
        extensions: what the plan has grown by.
        covered: how many nodes, from the first, somebody approved with the plan as a whole, by `covered_by`.
        kept: what the run may take over of another one, if it is a fork.
        deadline: how long the run may take.
        has_new_limits: somebody changed that, or how many tasks run at once.
        usage: what the run has used of models.
        seen: which files and addresses its nodes have looked at.
        budget: how much of them it may use, if that is limited.
        with_agents: makes sub-plans of the nodes of `llm` agents in what the plan grows by; how models are asked is no
            matter of the core. It is given once, by whoever makes the scheduler.
        all_or_nothing: whether what the run did is taken back when the run above all ends otherwise than completed.
        is_below: whether there is a run above, which decides about that.
        takes_back: whether the run only takes back what an earlier one did, whose state it goes on from.
        key_of: makes the idempotency key of a call of its scope (`None` is the run's own) and its path. It is given
            once, as `with_agents` is.
        asks: whether people are asked what a lookup means; if not, one that is unclear ends the run.
        bound: lookups that are known before -> their party, `{"id", "name", "kind", "jurisdiction"}`.
        reads_starts: whether a `write` that timed out without a recorded start counts as not called.
        planned: call that writes a plan -> its newest attempt, and how many nodes that has told. It is not handed on,
            for no run goes on in a new execution while a call is in flight.
        store_waits: task whose call waits for the payload store, or is repeated after that -> how often it has waited,
            and how many attempts of it have called its tool. It is not part of the carry either.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    cancelling: dict[str, float] = field(default_factory=dict)
    extensions: list[Extension] = field(default_factory=list)
    covered: int = 0
    covered_by: str = ""
    kept: KeptBook | None = None
    deadline: Deadline = Deadline()  # noqa: RUF009 - it never changes
    has_new_limits: bool = False
    usage: UsageBook = field(default_factory=UsageBook)
    seen: SeenBook = field(default_factory=SeenBook)
    budget: Budget | None = None
    all_or_nothing: bool = False
    is_below: bool = False
    takes_back: bool = False
    key_of: KeyOf = _no_key
    planned: dict[str, tuple[int, int]] = field(default_factory=dict)
    store_waits: dict[str, tuple[int, int]] = field(default_factory=dict)
    asks: bool = True
    bound: Mapping[Lookup, Mapping[str, Any]] = field(default_factory=dict)
    reads_starts: bool = False
    with_agents: WithAgents = _as_it_is


def is_result_of_call(record: Record, hand: Hand | None) -> bool:
    """Tells whether the result of a node or item is what its call answered, and nobody's word instead."""
    is_told = hand is not None and any(step["what"] == "set_result" for step in hand.steps)
    return record.status is NodeStatus.COMPLETED and record.error is None and not is_told


class RunState:
    """The state of one run of a compiled plan.

    It has fewer than 30 attributes: an object with 30 or more shares its keys with no other, and every access to one
    costs more, which is a twentieth of the whole of a node (CPython 3.11).

    Args:
        plan: the compiled plan.
        inputs: values of the plan's inputs; a default stands in for what is missing.
        max_in_flight: tasks at once, 1 to `MAX_IN_FLIGHT`.
        policy: which calls people are asked about.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        inputs: Mapping[str, Any],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        policy: Policy = ALL_RUN,
    ) -> None:
        self.plan = plan
        defaults = {name: schema["default"] for name, schema in plan.inputs.items() if "default" in schema}
        self.inputs: dict[str, Any] = {**defaults, **inputs}
        self.max_in_flight = max_in_flight
        self.records = [Record() for _ in plan.nodes]
        self.error: NodeError | None = None
        self.cancelled = False
        self.phase = Phase.GOING
        self.paused: Paused | None = None
        """While it is there, nothing new starts."""
        self.changes = Changes()
        self.ended: list[int] = []
        """Numbers of the nodes that ended in the care of this scheduler, in order."""
        self.requests = RequestBook()
        self.by_hand: dict[str, Hand] = {}
        """Id of a node or item -> what people decided about it, where they did."""
        self.policy = policy
        self.policy_changed = False
        self._budget = WorkBudget()
        self._derive()

    def _derive(self) -> None:
        """Makes everything that follows from the plan alone, as if nothing had happened yet."""
        plan = self.plan
        if self.changes.kept is not None:
            self.changes.kept.digests.clear()
        self._numbers = {node.id: number for number, node in enumerate(plan.nodes)}
        newest = newest_of(plan)
        # One dictionary as long as it can be: a million nodes are looked up in it.
        self._meant = self._numbers
        """Id of a node -> number of the one that stands for it now."""
        if newest:
            self._meant = self._numbers | {old: self._numbers[new] for old, new in newest.items()}
        self._dependents = dependents_of([node.dependencies for node in plan.nodes])
        self._waits = [Wait(len(node.dependencies), node.join[0] != "all") for node in plan.nodes]
        self._unfinished = len(plan.nodes)
        self._queue = self._new_queue()
        self._asker = ConditionAsker(self._numbers.__contains__, self._budget)
        # One for all tasks: a run makes one for each of them otherwise, and nothing in it changes.
        self._base_scope = Scope(self._value_of, self.inputs, budget=self._budget)
        self._items = ItemBook(plan, self._numbers, max_in_flight=self.max_in_flight)
        self._settled: list[int] = []
        self._membership = Membership(plan)
        self._may_ask = not self.policy.lets_all_run or any(
            node.kind == "human" or node.approval != "policy" for node in plan.nodes
        )

    def _new_queue(self) -> ReadyQueue:
        plan = self.plan
        bytes_of = [largest_result_bytes(node, plan.tools.get(node.tool)) for node in plan.nodes]
        of_run = self.max_in_flight if self.max_in_flight < MAX_IN_FLIGHT else None
        return ReadyQueue(gates_of(plan, of_run=of_run), MAX_IN_FLIGHT, bytes_of=bytes_of)

    def allow_in_flight(self, count: int) -> None:
        """Takes another limit, and an empty queue: whoever calls it puts in what is ready or in flight."""
        self.changes.has_new_limits = True
        self.max_in_flight = self._items.max_in_flight = count
        self._queue = self._new_queue()

    # What a driver asks.

    @property
    def deadline(self) -> Deadline:
        """How long the run may take."""
        return self.changes.deadline

    @property
    def usage(self) -> UsageBook:
        """What the run has used of models, the runs below it with it."""
        return self.changes.usage

    @property
    def budget(self) -> Budget | None:
        """How much of models the run may use, if that is limited."""
        return self.changes.budget

    @property
    def grown(self) -> int:
        """How many nodes the plan has grown by."""
        return sum(node.kind != "lookup" for extension in self.changes.extensions for node in extension.nodes)

    @property
    def cancelling(self) -> dict[str, float]:
        """Task that was told to stop while the run goes on -> until when it is waited for."""
        return self.changes.cancelling

    @property
    def is_finished(self) -> bool:
        """Tells whether every node is in a final state."""
        return self._unfinished == 0

    @property
    def is_stopped(self) -> bool:
        """Tells whether nothing new starts any more, because the run was cancelled or aborted."""
        return self.phase.is_stopped

    @property
    def takes_back(self) -> bool:
        """Tells whether the run itself takes back what was done, unless it completes: one below another does not."""
        return self.changes.takes_back or (self.changes.all_or_nothing and not self.changes.is_below)

    @property
    def in_flight(self) -> int:
        """Count of tasks that were started and have not ended."""
        return self._queue.in_flight

    @property
    def in_flight_bytes(self) -> int:
        """What the tasks in flight may bring into the history, in sum."""
        return self._queue.in_flight_bytes

    @property
    def is_waiting(self) -> bool:
        """Tells whether nothing moves until somebody answers or gives budget: nothing runs, and nothing could start."""
        is_asking = bool(self.requests.open or (self.changes.budget is not None and self.changes.budget.waiting))
        return is_asking and not (self._queue.in_flight or self._queue.has_ready or self.is_finished)

    def number_of(self, node_id: str) -> int | None:
        """Returns the number of a node, or `None` if there is no such node."""
        return self._numbers.get(node_id)

    def record_of(self, task_id: str) -> Record | None:
        """Returns the record of a node (`id`) or of an item (`id[key]`)."""
        place = self._items.find(task_id)
        return None if place is None else self._record(*place)

    def find(self, task_id: str) -> Place | None:
        """Returns what the id of a node or item stands for; of a region, which nobody wrote, nothing."""
        place = self._items.find(task_id)
        return None if place is None or self.plan.nodes[place[0]].kind == "region" else place

    def id_of(self, place: Place) -> str:
        """Returns the id of a node or item."""
        number, item = place
        node_id = self.plan.nodes[number].id
        return node_id if item < 0 else f"{node_id}[{self.records[number].items[item].key}]"

    def record_at(self, place: Place) -> Record:
        """Returns the record of a node or item."""
        return self._record(*place)

    def dependents_of(self, number: int) -> Sequence[int]:
        """Returns the nodes that wait for one, in plan order."""
        return self._dependents[number]

    def newest_id(self, node_id: str) -> str:
        """Returns the id of the node that stands for one now."""
        number = self._meant.get(node_id)
        return node_id if number is None else self.plan.nodes[number].id

    def name_of(self, number: int) -> str:
        """Returns the id under which others refer to a node: that of the first one whose place it takes."""
        node = self.plan.nodes[number]
        while node.supersedes is not None:
            node = self.plan.nodes[self._numbers[node.supersedes]]
        return node.id

    def needed_by(self, node: CompiledNode) -> list[int]:
        """Returns the nodes that one waits for, without those that nobody wrote."""
        nodes = self.plan.nodes
        return [number for number in node.dependencies if nodes[number].kind not in HIDDEN_KINDS]

    def is_inside_detached(self, number: int) -> bool:
        """Tells whether a node belongs to a region whose inside is not in the plan."""
        return self._membership.is_inside_detached(number)

    def task_of_call(self, call: str) -> str | None:
        """Returns the task whose last call has this id; `None` if there is none, as that call was given up."""
        for task_id in (call, call.rpartition("#")[0]):
            if self._items.find(task_id) is not None and self.call_of_task(task_id) == call:
                return task_id
        return None

    def call_of_task(self, task_id: str) -> str:
        """Returns the id of the last call of a task that is no region."""
        hand = self.by_hand.get(task_id)
        return task_id if hand is None else call_id(task_id, self._call_number(task_id, hand))

    def calls_of_task(self, task_id: str) -> Sequence[str]:
        """Returns the ids that calls of a task may have had, from its first to its last."""
        hand = self.by_hand.get(task_id)
        last = 1 if hand is None else self._call_number(task_id, hand)
        return [call_id(task_id, number) for number in range(1, last + 1)]

    def is_added_by_hand(self, node_id: str) -> bool:
        """Tells whether a person has added a node to the plan."""
        hand = self.by_hand.get(node_id)
        return hand is not None and any(step["what"] == ADDED for step in hand.steps)

    def is_own(self, node_id: str) -> bool:  # noqa: ARG002 - only a run with a pursuit gives ids
        """Tells whether an id is one of those that the run gives to what it adds by itself."""
        return False

    def shown(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yields every node that was written, with its record, in plan order."""
        return islice(zip(self.plan.nodes, self.records, strict=True), self.plan.written_count)

    def steps(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yields every node but the regions with its record: those that were written, and the lookups behind them."""
        return islice(zip(self.plan.nodes, self.records, strict=True), self.plan.step_count)

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

    def open_members(self, region: int) -> list[int]:
        """Returns the nodes of a region that have not ended, in an order in which they can run."""
        return self._membership.open_members(region, self.records)

    def counts(self) -> Counter[NodeStatus]:
        """Returns how many of the nodes that were written are in each state, those inside of regions with them."""
        return counts_of(self.plan, self.records)

    def counts_inside(self, region: int) -> Counter[NodeStatus]:
        """Returns how many of the nodes of a region that are not in the plan are in each state."""
        return counts_inside(self.plan, self.records, region)

    def width_of(self, number: int) -> map_batches.Width:
        """Returns how wide the chunks of a large map run."""
        return self._items.width_of(number, map_batches.count_of(self.records[number]))

    def refusal_of_remaking(self) -> str | None:
        """Returns why `remake` is never done, if the plan is too large for it."""
        nodes, edges, most = len(self.records), self._edges(), MAX_WORK // WORK_OF_REMAKING
        if nodes + edges <= most:
            return None
        return (
            f"the run has {nodes:,} nodes and {edges:,} edges; nodes are tried again, given a result or added "
            f"where both are {most:,} at most"
        )

    def _edges(self) -> int:
        return sum(map(len, self._dependents))

    # The end of a run.

    def status(self) -> RunStatus:
        """Returns the state of the run (docs/internals/states.md)."""
        if not self.is_finished:
            return RunStatus.WAITING if self.is_waiting or self._is_at_rest else RunStatus.RUNNING
        if self.error is not None:
            return RunStatus.FAILED
        return RunStatus.CANCELLED if self.cancelled else status_of(self.plan, self.records)

    @property
    def _is_at_rest(self) -> bool:
        """Tells whether the run is paused and nothing runs but runs of their own, which are paused with it."""
        if self.paused is None:
            return False
        tasks = (
            (node, item.record.status, item.chunk is not None and item.chunk.count > 0)
            for node, record in zip(self.plan.nodes, self.records, strict=True)
            for item in record.items or [ItemRecord("", None, record)]
        )
        return not any(
            status is NodeStatus.RUNNING and node.kind != "plan" and not is_chunk for node, status, is_chunk in tasks
        )

    def output(self) -> tuple[Any, NodeError | None]:
        """Returns the output of the run; null and an error if its template cannot be resolved."""
        if self.phase.is_given_up:
            # What it did is taken back.
            return None, None
        return output_of(self.plan, self.records, scope=Scope(self._value_of, self.inputs))

    # Places and values.

    def _record(self, number: int, item: int) -> Record:
        return self.records[number] if item < 0 else self.records[number].items[item].record

    def _chunk(self, number: int, item: int) -> Chunk | None:
        return self.records[number].items[item].chunk if item >= 0 else None

    def _value_of(self, node_id: str, field_name: str) -> Any:
        record = self.records[self._meant[node_id]]
        if field_name == "result":
            return record.result if record.status is NodeStatus.COMPLETED else None
        if field_name == "status":
            return record.status.value
        return record.error.to_json() if record.error else None

    @property
    def kept(self) -> KeptBook | None:
        """What the run may take over of another one, if it is a fork."""
        return self.changes.kept

    def hand_of(self, task_id: str) -> Hand:
        """Returns what people decided about a node or item, to be added to."""
        return self.by_hand.setdefault(task_id, Hand())

    def scope_of(self, number: int, item: int) -> Scope:
        """Returns where the references of a node (item -1) or of an item get their values from."""
        if item < 0:
            return self._base_scope
        place = item + self.plan.nodes[number].first_index
        return scope_of_item(self._base_scope, self.records[number].items[item].item, index=place)

    def arguments_told(self, task_id: str) -> Any:
        """Returns the arguments of a node or item as they are shown: secrets by their name, stored values by reference.

        Returns `None` if it was not begun, for what it reads may not be there yet, and of a node whose items have them.
        """
        place = self.find(task_id)
        if place is None or self._chunk(*place) is not None:
            return None
        if place[1] < 0 and self.plan.nodes[place[0]].for_each is not None:
            return None
        record = self._record(*place)
        if not record.attempts and record.status not in _UNDER_WAY:
            return None
        try:
            return with_shown(self._arguments_of(*place), shown_in_arguments)
        except (MissingData, TooMuchWork):
            return None

    def _arguments_of(self, number: int, item: int) -> Any:
        """Returns the arguments that the call of a node or item gets.

        Raises:
            MissingData, TooMuchWork: they cannot be resolved.
        """
        hand = self.by_hand.get(self.id_of((number, item))) if self.by_hand else None
        if hand is not None and hand.arguments is not None:
            return dict(hand.arguments)
        node = self.plan.nodes[number]
        return resolve_holes(node.arguments, node.holes, scope=self.scope_of(number, item))

    def _make_task(self, number: int, item: int) -> Task:
        """Returns the task of a ready node or item.

        Raises:
            MissingData, TooMuchWork: its arguments cannot be resolved.
        """
        node = self.plan.nodes[number]
        if node.undoes is not None:
            return self._undoing_task(number, node.undoes)
        if item < 0:
            task_id, path, scope = node.id, [["node", node.id]], self._base_scope
        else:
            entry = self.records[number].items[item]
            task_id, path = f"{node.id}[{entry.key}]", [["node", node.id], ["item", entry.key]]
            if entry.chunk is not None:
                return Task(task_id, node, number, item, {}, path[:1], chunk=entry.chunk)
            scope = scope_of_item(self._base_scope, entry.item, index=item + node.first_index)
        if self.by_hand and (hand := self.by_hand.get(task_id)) is not None:
            return self._task_by_hand(Task(task_id, node, number, item if item >= 0 else None, {}, path), hand)
        arguments = resolve_holes(node.arguments, node.holes, scope=scope)
        calls = self.records[number].attempts + 1 if node.kind == "region" else 1
        return Task(task_id, node, number, item if item >= 0 else None, arguments, path, calls)

    def _undoing_task(self, number: int, undone_id: str) -> Task:
        """Returns the task of a node that takes back what a call did, whose key, arguments and result it is given.

        Raises:
            MissingData, TooMuchWork: the arguments of the call cannot be resolved any more.
        """
        node, place = self.plan.nodes[number], self._items.place(undone_id)
        undone, record = self._make_task(*place), self._record(*place)
        hand = self.by_hand.get(node.id)
        path, tries = [["node", node.id]], 1 if hand is None else self._call_number(node.id, hand)
        if node.kind == "plan":
            undone.scope = record.scope
            return Task(node.id, node, number, None, undone.arguments, path, tries, below=record.below, undoes=undone)
        is_known = is_result_of_call(record, self.by_hand.get(undone_id))
        arguments = {
            "key": self.changes.key_of(record.scope, undone.path),
            "arguments": undone.arguments,
            "result": record.result if is_known else None,
        }
        answers = () if hand is None else [*hand.answers]
        return Task(node.id, node, number, None, arguments, path, tries, answers=answers)

    def _task_by_hand(self, task: Task, hand: Hand) -> Task:
        """Returns the task of a node or item about which people decided something."""
        task.arguments = self._arguments_of(task.number, -1 if task.item is None else task.item)
        task.answers = [*hand.answers]
        task.slice = self._call_number(task.id, hand)
        return task

    def _call_number(self, task_id: str, hand: Hand) -> int:
        """Returns the number of the last call of a task; a node may be called as its id would be."""
        number = 1
        for _ in range(hand.tries):
            number += 1
            while self._items.find(call_id(task_id, number)) is not None:
                number += 1
        return number
