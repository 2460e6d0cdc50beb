"""State of one run between two events: records, indexes derived from the plan, and queries.

Queries include the final status, the output and the node counts of a run (docs/reference/states.md). State transitions
are in `dagwright.core.scheduler.propagation`; the state of features (budgets, requests, forks) is in their components.

A region is a group of nodes that one activity executes. The nodes of an offloaded region (inner nodes) are in the
payload store. Inner nodes on which other nodes of the run depend are also nodes of the run: the members of the region.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypedDict

from dagwright.core.expressions.compute_budget import MAX_WORK, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.references import ResultOf, Scope, UnresolvedReference, resolve_bindings, scope_of_item
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode, CompiledPlan
from dagwright.core.model.graph import dependents_of
from dagwright.core.model.lineage import RunLineage
from dagwright.core.model.states import (
    ItemRecord,
    MapBatch,
    NodeError,
    NodeStatus,
    Phase,
    Record,
    RunStatus,
    RunUsage,
    Task,
    TaskRef,
    call_id,
)
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.component import RunOptions
from dagwright.core.scheduler.extension import Extension, final_replacements
from dagwright.core.scheduler.map_items import RunItems
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT, DependencyCounts

if TYPE_CHECKING:
    from dagwright.core.model.policy import Policy


class RegionState(TypedDict):
    """State of an offloaded region, stored as the result in the record of the region node.

    Args:
        batch: store reference of the result of the last region batch, which links to the results of earlier batches.
        counts: status -> number of inner nodes that have ended.
        open: number of inner nodes that have not ended.
        ends: number of completed inner nodes on which no node depends.
    """

    batch: str
    counts: dict[str, int]
    open: int
    ends: int


class RegionMembers:
    """Index of the regions of one plan: which nodes belong to which region."""

    def __init__(self, plan: CompiledPlan) -> None:
        self._nodes = plan.nodes
        regions = range(plan.visible_count, len(plan.nodes))
        self._region_of = {member: number for number in regions for member in plan.nodes[number].members}

    def open_members(self, region: int, records: Sequence[Record]) -> list[int]:
        """Return the nodes of a region that have not ended, in topological order."""
        return [member for member in self._nodes[region].members if not records[member].status.is_final]

    def is_open(self, region: int, records: Sequence[Record]) -> bool:
        """Return whether the region has nodes that have not ended."""
        if self._nodes[region].inner is None:
            return bool(self.open_members(region, records))
        state: RegionState | None = records[region].result
        return state is None or state["open"] > 0

    def is_reported(self, number: int, records: Sequence[Record]) -> bool:
        """Return whether a node runs outside the scheduler: its region or the driver reports its end."""
        if self._nodes[number].kind != "external":
            return False
        region = self._region_of.get(number)
        return region is None or not records[region].status.is_final

    def is_inside_offloaded(self, number: int) -> bool:
        """Return whether a node belongs to an offloaded region."""
        region = self._region_of.get(number)
        return region is not None and self._nodes[region].inner is not None

    def is_in_running_region(self, number: int, records: Sequence[Record]) -> bool:
        """Return whether a node belongs to a running region, which may still report the end of the node."""
        region = self._region_of.get(number)
        return region is not None and records[region].status is NodeStatus.RUNNING


def offloaded_regions(plan: CompiledPlan) -> Iterator[tuple[int, CompiledNode]]:
    """Yield the number and the node of each offloaded region."""
    numbers = range(plan.visible_count, len(plan.nodes))
    return ((number, plan.nodes[number]) for number in numbers if plan.nodes[number].inner is not None)


@dataclass(slots=True)
class NodeOverride:
    """Decisions of people about one node or item that take precedence over the plan.

    Args:
        approved: whether a person approved the call.
        arguments: arguments that replace those of the plan, or `None`.
        retries: number of retries.
        attempts: attempts of all calls before the last retry.
        answers: answers to requests that the call opened while it ran, in order: `{"request_id", "answer"}`, with
            `checkpoint` if the call saved one.
        commands: commands of people for the node, each with its actor and time: `{"command", "by", "at", …}`.
    """

    approved: bool = False
    arguments: Mapping[str, Any] | None = None
    retries: int = 0
    attempts: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)
    commands: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_manual_result(self) -> bool:
        """Whether a user set the result."""
        return any(entry["command"] == "set_result" for entry in self.commands)

    def to_json(self) -> dict[str, Any]:
        """Return the override as JSON, without fields at their default."""
        return {name: value for name, value in self._parts() if value not in (False, None, 0, [])}

    def _parts(self) -> Iterator[tuple[str, Any]]:
        return ((override_field.name, getattr(self, override_field.name)) for override_field in fields(self))


def override_from_json(encoded: Mapping[str, Any]) -> NodeOverride:
    """Parse the result of `NodeOverride.to_json`."""
    names = {override_field.name for override_field in fields(NodeOverride)}
    return NodeOverride(**{name: value for name, value in encoded.items() if name in names})


WORK_OF_REBUILD = 10
"""Cost per node and edge when nodes are added or records change, in units of the compute budget."""
ADD_NODES_COMMAND = "add_nodes"
"""Command that the override of a node contains if a person added the node."""


def _never(node_id: str) -> bool:  # noqa: ARG001 - a predicate
    return False


@dataclass(frozen=True, slots=True)
class ActivePause:
    """Actor, time (seconds since the epoch) and reason of a pause."""

    at: float
    by: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class RunTotals:
    """Totals over all calls of a run and of its child runs.

    Args:
        usage: token usage of models.
        lineage: files and URLs that the nodes have read.
    """

    usage: RunUsage = field(default_factory=RunUsage)
    lineage: RunLineage = field(default_factory=RunLineage)


class RunState:
    """State of one run of a compiled plan.

    Keep this class below 30 attributes: CPython 3.11 shares the keys of instance dictionaries with up to 30 keys.
    Access to a larger dictionary is slower, which adds 5 % to the total cost of a node.

    Args:
        inputs: values of the inputs; missing values get their defaults.
        max_in_flight: maximum number of tasks in flight, 1 to `MAX_IN_FLIGHT`.
        policy: approval rules for calls.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        inputs: Mapping[str, Any],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        policy: "Policy",
        options: RunOptions | None = None,
    ) -> None:
        self.plan = plan
        defaults = {name: schema["default"] for name, schema in plan.inputs.items() if "default" in schema}
        self.inputs: dict[str, Any] = {**defaults, **inputs}
        self.max_in_flight = max_in_flight
        self.limits_changed = False
        """Whether a person changed the deadline or `max_in_flight`."""
        self.policy = policy
        self.options = options or RunOptions()
        self.records = [Record() for _ in plan.nodes]
        self.error: NodeError | None = None
        self.cancelled = False
        self.phase = Phase.ACTIVE
        self.paused: ActivePause | None = None
        """The current pause, during which no task starts."""
        self.ended_numbers: list[int] = []
        """Numbers of the nodes that ended in this scheduler, in order."""
        self.extensions: list[Extension] = []
        """Extensions of the plan, in order."""
        self.overrides: dict[str, NodeOverride] = {}
        """Id of a node or item -> its manual override."""
        self.cancel_deadlines: dict[str, float] = {}
        """Running task that was cancelled while the run continues -> time at which the run stops waiting for it."""
        self.store_waits: dict[str, tuple[int, int]] = {}
        """Task whose call waits for the payload store -> number of waits, and number of attempts that called the tool.
        Not part of the snapshot: no run continues in a new execution while a call is in flight."""
        self.budget_may_end_queued_tasks = False
        """Whether the budget may end tasks that are queued and have not started."""
        self.totals = RunTotals()
        self.compute_budget = ComputeBudget()
        self.is_generated_id: Callable[[str], bool] = _never
        """Whether an id has the form of the ids generated for added nodes."""
        self.is_request_id: Callable[[str], bool] = _never
        """Whether an id belongs to an open or answered request to a person."""
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Compute the indexes that depend on the plan only, as if no node had started."""
        plan = self.plan
        self.numbers = {node.id: number for number, node in enumerate(plan.nodes)}
        replacements = final_replacements(plan)
        # `numbers` is only copied if a node was superseded, because a run may have a million nodes.
        self._current_numbers = self.numbers
        """Id of a node -> number of the node that superseded it, or of the node itself."""
        if replacements:
            self._current_numbers = self.numbers | {
                old_id: self.numbers[new_id] for old_id, new_id in replacements.items()
            }
        self.dependents = dependents_of([node.dependencies for node in plan.nodes])
        self.dependency_counts = [
            DependencyCounts(len(node.dependencies), node.join[0] != "all") for node in plan.nodes
        ]
        self.unfinished_count = len(plan.nodes)
        # One scope serves all tasks, because nothing in it changes.
        self.scope = Scope(self._value_of, self.inputs, budget=self.compute_budget)
        self.items = RunItems(plan, self.numbers, max_in_flight=self.max_in_flight)
        self.regions = RegionMembers(plan)

    @property
    def added_count(self) -> int:
        """Number of nodes that were added to the plan."""
        return sum(node.kind != "lookup" for extension in self.extensions for node in extension.nodes)

    @property
    def is_finished(self) -> bool:
        """Whether every node is in a final state."""
        return self.unfinished_count == 0

    @property
    def is_stopped(self) -> bool:
        """Whether no more tasks start, because the run was cancelled or aborted."""
        return self.phase.is_stopped

    @property
    def compensates(self) -> bool:
        """Whether the run compensates its calls unless it completes; for a child run, its parent compensates."""
        return self.options.only_compensates or (self.options.compensate and not self.options.is_child)

    # Nodes and items.

    def number_of(self, node_id: str) -> int | None:
        """Return the number of a node, or `None` if there is no such node."""
        return self.numbers.get(node_id)

    def find(self, task_id: str) -> TaskRef | None:
        """Return the node or item of an id; `None` for a region, because regions are not visible to users."""
        ref = self.items.find(task_id)
        return None if ref is None or self.plan.nodes[ref.node].kind == "region" else ref

    def id_of(self, ref: TaskRef) -> str:
        """Return the id of a node or item."""
        node_id = self.plan.nodes[ref.node].id
        return node_id if ref.item is None else f"{node_id}[{self.records[ref.node].items[ref.item].key}]"

    def record(self, ref: TaskRef) -> Record:
        """Return the record of a node or item."""
        number, item = ref
        return self.records[number] if item is None else self.records[number].items[item].record

    def record_of(self, task_id: str) -> Record | None:
        """Return the record of a node (`id`) or of an item (`id[key]`)."""
        ref = self.items.find(task_id)
        return None if ref is None else self.record(ref)

    def node_of(self, task_id: str) -> CompiledNode:
        """Return the node of a task.

        Raises:
            KeyError: there is no such node or item.
        """
        return self.plan.nodes[self.items.ref(task_id).node]

    def map_batch(self, ref: TaskRef) -> MapBatch | None:
        """Return the batch of items that a task runs, or `None` if the task is not a map batch."""
        return None if ref.item is None else self.records[ref.node].items[ref.item].map_batch

    def map_batch_of(self, task_id: str) -> MapBatch | None:
        """Return the batch of items that a task id names, or `None` if the task is not a map batch."""
        return self.map_batch(self.items.ref(task_id))

    def dependents_of(self, number: int) -> Sequence[int]:
        """Return the nodes that wait for a node, in plan order."""
        return self.dependents[number]

    def newest_id(self, node_id: str) -> str:
        """Return the id of the node that superseded a node, or the node's own id."""
        number = self._current_numbers.get(node_id)
        return node_id if number is None else self.plan.nodes[number].id

    def reference_id(self, number: int) -> str:
        """Return the id that references use: the id of the first node in a chain of nodes that supersede each other."""
        node = self.plan.nodes[number]
        while node.supersedes is not None:
            node = self.plan.nodes[self.numbers[node.supersedes]]
        return node.id

    def visible_dependencies(self, node: CompiledNode) -> list[int]:
        """Return the dependencies of a node without hidden nodes."""
        nodes = self.plan.nodes
        return [number for number in node.dependencies if nodes[number].kind not in HIDDEN_KINDS]

    def visible_nodes(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yield every visible node with its record, in plan order."""
        return islice(zip(self.plan.nodes, self.records, strict=True), self.plan.visible_count)

    def nodes_without_regions(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yield every visible node and every lookup with its record."""
        return islice(zip(self.plan.nodes, self.records, strict=True), self.plan.count_without_regions)

    def map_concurrency(self, number: int) -> map_items.MapConcurrency:
        """Return how many batches of a large map run at once, and how many items of each batch."""
        return self.items.map_concurrency(number, map_items.item_count(self.records[number]))

    # Overrides.

    def override_of(self, task_id: str) -> NodeOverride:
        """Return the override of a node or item, for changes; create it if it does not exist."""
        return self.overrides.setdefault(task_id, NodeOverride())

    def is_added_by_person(self, node_id: str) -> bool:
        """Return whether a person added a node to the plan."""
        override = self.overrides.get(node_id)
        return override is not None and any(entry["command"] == ADD_NODES_COMMAND for entry in override.commands)

    # Rebuild.

    @property
    def rebuild_work(self) -> int:
        """Cost of a rebuild, in units of the compute budget."""
        return WORK_OF_REBUILD * (len(self.records) + self._edge_count)

    @property
    def _edge_count(self) -> int:
        return sum(map(len, self.dependents))

    def rebuild_problem(self) -> str | None:
        """Return why the run cannot be rebuilt, or `None` if the plan is small enough."""
        node_count, limit = len(self.records), MAX_WORK // WORK_OF_REBUILD
        if node_count + self._edge_count <= limit:
            return None
        return (
            f"the run has {node_count:,} nodes and {self._edge_count:,} edges; retrying nodes, setting results and "
            f"adding nodes requires at most {limit:,} nodes and edges in total"
        )

    # Values.

    def _value_of(self, node_id: str, field_name: str) -> Any:
        record = self.records[self._current_numbers[node_id]]
        if field_name == "result":
            return record.result if record.status is NodeStatus.COMPLETED else None
        if field_name == "status":
            return record.status.value
        return record.error.to_json() if record.error else None

    def scope_of(self, ref: TaskRef) -> Scope:
        """Return the scope in which the references of a node or item are resolved."""
        number, item = ref
        if item is None:
            return self.scope
        index = item + self.plan.nodes[number].first_index
        return scope_of_item(self.scope, self.records[number].items[item].item, index=index)

    def arguments_of(self, ref: TaskRef) -> Any:
        """Return the arguments of the call of a node or item.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: they cannot be resolved.
        """
        override = self.overrides.get(self.id_of(ref)) if self.overrides else None
        if override is not None and override.arguments is not None:
            return dict(override.arguments)
        node = self.plan.nodes[ref.node]
        return resolve_bindings(node.arguments, node.bindings, scope=self.scope_of(ref))


def make_task(state: RunState, ref: TaskRef) -> Task:
    """Return the task of a ready node or item.

    Raises:
        UnresolvedReference, ComputeBudgetExceeded: the arguments cannot be resolved.
    """
    number, item = ref
    node = state.plan.nodes[number]
    if item is None:
        task_id, path, scope = node.id, [["node", node.id]], state.scope
    else:
        entry = state.records[number].items[item]
        task_id, path = f"{node.id}[{entry.key}]", [["node", node.id], ["item", entry.key]]
        if entry.map_batch is not None:
            return Task(task_id, node, ref, {}, path[:1], map_batch=entry.map_batch)
        scope = scope_of_item(state.scope, entry.item, index=item + node.first_index)
    if state.overrides and (override := state.overrides.get(task_id)) is not None:
        call_number, answers = _last_call_number(state, task_id, override), [*override.answers]
        return Task(task_id, node, ref, state.arguments_of(ref), path, call_number, answers=answers)
    arguments = resolve_bindings(node.arguments, node.bindings, scope=scope)
    call_number = state.records[number].attempts + 1 if node.kind == "region" else 1
    return Task(task_id, node, ref, arguments, path, call_number)


def last_call_id(state: RunState, task_id: str) -> str:
    """Return the id of the last call of a task that is not a region."""
    override = state.overrides.get(task_id)
    return task_id if override is None else call_id(task_id, _last_call_number(state, task_id, override))


def call_ids(state: RunState, task_id: str) -> Sequence[str]:
    """Return the ids that calls of a task may have, first to last."""
    override = state.overrides.get(task_id)
    last_number = 1 if override is None else _last_call_number(state, task_id, override)
    return [call_id(task_id, number) for number in range(1, last_number + 1)]


def task_of_call(state: RunState, searched_id: str) -> str | None:
    """Return the task whose last call has this id; `None` if no task matches, for example after a retry."""
    for task_id in (searched_id, searched_id.rpartition("#")[0]):
        if state.items.find(task_id) is not None and last_call_id(state, task_id) == searched_id:
            return task_id
    return None


def _last_call_number(state: RunState, task_id: str, override: NodeOverride) -> int:
    """Return the number of the last call of a task. Numbers whose call id is also the id of a node are skipped."""
    number = 1
    for _ in range(override.retries):
        number += 1
        while state.items.find(call_id(task_id, number)) is not None:
            number += 1
    return number


def status_of(plan: CompiledPlan, records: Sequence[Record]) -> RunStatus:
    """Return the status of a run that was not stopped and whose nodes have all ended."""
    region_states = [state for _, state in _region_states(plan, records)]
    have_regions_passed = all(
        NodeStatus(name).counts_as_completed for state in region_states for name in state["counts"]
    )
    if have_regions_passed and all(record.status.counts_as_completed for record in records):
        return RunStatus.COMPLETED
    replacements = final_replacements(plan)
    output_ids = {
        part.node_id for _, template in plan.output_bindings for part in template if isinstance(part, ResultOf)
    }
    output_ids = {replacements.get(node_id, node_id) for node_id in output_ids}
    if output_ids:
        output_records = [record for node, record in zip(plan.nodes, records, strict=True) if node.id in output_ids]
    else:
        output_records = [record for _, record, is_sink in _with_sinks(plan, records) if is_sink]
    has_region_output = not output_ids and any(state["ends"] for state in region_states)
    if has_region_output or any(record.status is NodeStatus.COMPLETED for record in output_records):
        return RunStatus.COMPLETED_WITH_FAILURES
    return RunStatus.FAILED


def only_child_runs_are_running(plan: CompiledPlan, records: Sequence[Record]) -> bool:
    """Return whether child runs are the only running tasks. Pausing a run pauses its child runs, too."""
    tasks = (
        (node, item.record.status, item.map_batch is not None and item.map_batch.count > 0)
        for node, record in zip(plan.nodes, records, strict=True)
        for item in record.items or [ItemRecord("", None, record)]
    )
    return not any(
        status is NodeStatus.RUNNING and node.kind != "plan" and not is_map_batch
        for node, status, is_map_batch in tasks
    )


def output_of(plan: CompiledPlan, records: Sequence[Record], *, scope: Scope) -> tuple[Any, NodeError | None]:
    """Return the output of a run; null and an error if its template cannot be resolved."""
    if plan.output is None and not plan.output_bindings:
        return {
            node.id: record.result
            for node, record, is_sink in _with_sinks(plan, records)
            if is_sink and record.status is NodeStatus.COMPLETED
        }, None
    try:
        return resolve_bindings(plan.output, plan.output_bindings, scope=scope), None
    except UnresolvedReference as error:
        return None, NodeError("missing_data", f"output: {error}")
    except ComputeBudgetExceeded as error:
        return None, NodeError("too_large", f"output: {error}")


def omitted_sink_count(plan: CompiledPlan, records: Sequence[Record]) -> int:
    """Return how many completed sinks are missing in the output of a plan that declares no output.

    They are sinks of offloaded regions, whose records are not part of the run.
    """
    if plan.output is not None or plan.output_bindings:
        return 0
    count = 0
    for region, state in _region_states(plan, records):
        member_ids = {plan.nodes[member].id for member in region.members}
        count += state["ends"]
        if member_ids:
            count -= sum(
                is_sink and node.id in member_ids and record.status is NodeStatus.COMPLETED
                for node, record, is_sink in _with_sinks(plan, records)
            )
    return count


def _region_states(plan: CompiledPlan, records: Sequence[Record]) -> "Iterator[tuple[CompiledNode, RegionState]]":
    """Yield the offloaded regions that have a state, and the state."""
    for number in range(plan.visible_count, len(plan.nodes)):
        if plan.nodes[number].inner is not None and records[number].result is not None:
            yield plan.nodes[number], records[number].result


def _with_sinks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[CompiledNode, Record, bool]]:
    """Yield every visible node with its record, and whether it is a sink (no node depends on it)."""
    visible_nodes = plan.nodes[: plan.visible_count]
    # The nodes of an offloaded region are not in the plan; the region has their dependencies.
    dependencies = set(chain.from_iterable(node.dependencies for node in plan.nodes))
    for number, (node, record) in enumerate(zip(visible_nodes, records, strict=False)):
        yield node, record, number not in dependencies


def counts_of(plan: CompiledPlan, records: Sequence[Record]) -> Counter[NodeStatus]:
    """Return status -> number of visible nodes, including those of offloaded regions."""
    counts = Counter(record.status for record in records[: plan.visible_count])
    for number in range(plan.visible_count, len(plan.nodes)):
        if plan.nodes[number].inner is not None:
            counts.update(region_counts(plan, records, number))
    return +counts


def region_counts(plan: CompiledPlan, records: Sequence[Record], number: int) -> Counter[NodeStatus]:
    """Return status -> number of nodes of an offloaded region that are not in the plan."""
    node, record = plan.nodes[number], records[number]
    state: RegionState | None = record.result
    open_status = record.status if record.status.is_final else NodeStatus.PENDING
    counts = Counter({NodeStatus(name): count for name, count in (state["counts"] if state else {}).items()})
    counts[open_status] += state["open"] if state else node.inner_count
    member_statuses = [records[member].status for member in node.members]
    counts.subtract(status if status.is_final else open_status for status in member_statuses)
    return +counts
