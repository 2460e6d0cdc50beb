"""Fork planning: decide, before a fork starts, which results of its source run it reuses and which nodes it runs.

A fork reuses a result of the source run if the fingerprint of the node is the same. The fork keeps the idempotency keys
of tasks that had not ended in the source run. The fork runs all other tasks. A write with an unknown outcome is never
repeated unless the user requests it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.references import Placeholder, Template, UnresolvedReference, references_in
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, has_side_effects, node_to_json, tool_of
from dagwright.core.model.graph import dependents_of
from dagwright.core.model.states import NodeStatus, Record, TaskRef
from dagwright.core.model.tools import Effects
from dagwright.core.scheduler.map_items import is_batched, is_map_batch
from dagwright.features.compensation.compensation import compensated_tasks
from dagwright.features.fork_reuse.fingerprint import fingerprint_of, fingerprint_of_map
from dagwright.features.fork_reuse.reuse import ReusableResult, ReuseTable, has_reusable_result

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_NOT_IN_DEFINITION = frozenset({"dependencies", "projections", "kind", "title", "priority", "supersedes"})
"""Fields that do not affect the call of a node. The kind is one of them, because it depends on the region."""
_STARTED_STATUSES = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)


@dataclass(frozen=True, slots=True)
class Source:
    """The run that is forked.

    Args:
        scope: scope of the run's idempotency keys.
        is_open: whether the run is still running.
    """

    run_id: str
    scope: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class ForkDifferences:
    """Differences between a fork and its source run.

    Args:
        changed_inputs: names of the inputs with other values.
        rerun_ids: ids of the nodes and items that run again, with new idempotency keys.
    """

    changed_inputs: Collection[str] = ()
    rerun_ids: Collection[str] = ()

    def reruns(self, node_id: str, task_id: str = "") -> bool:
        """Return whether a node or item runs again."""
        return node_id in self.rerun_ids or task_id in self.rerun_ids

    def rerun_ids_in_sub_plan(self, task_id: str) -> list[str]:
        """Return the ids, within the sub-plan, of the tasks of a sub-plan that run again."""
        prefix = f"{task_id}/"
        return [rerun_id.removeprefix(prefix) for rerun_id in self.rerun_ids if rerun_id.startswith(prefix)]


@dataclass(slots=True)
class ReusableResults:
    """Reusable results, and problems that prevent the fork.

    Args:
        problems: sentences about effects that may have happened and would happen again.
        changed_ids: ids of nodes whose definition in the fork differs.
        compensated_ids: nodes and items that the source run has compensated; they run again, with new idempotency keys.
    """

    table: ReuseTable = field(default_factory=ReuseTable)
    problems: list[str] = field(default_factory=list)
    changed_ids: set[str] = field(default_factory=set)
    compensated_ids: frozenset[str] = frozenset()


def find_reusable_results(
    source_scheduler: "RunScheduler", plan: CompiledPlan, *, source: Source, differences: ForkDifferences
) -> ReusableResults:
    """Return the results of a run that a fork can reuse.

    Args:
        source_scheduler: scheduler of the source run, rebuilt from its history.
        plan: plan of the fork.
    """
    return _ResultCollector(source_scheduler, plan, source, differences).collect()


class _ResultCollector:
    def __init__(
        self, source_scheduler: "RunScheduler", plan: CompiledPlan, source: Source, differences: ForkDifferences
    ) -> None:
        self._source_scheduler = source_scheduler
        self._plan = plan
        self._source = source
        self._differences = differences
        self._fork_nodes = {node.id: node for node in plan.nodes[: plan.count_without_regions]}
        self._results = ReusableResults()

    def collect(self) -> ReusableResults:
        old_nodes = {node.id: node for node, _ in self._source_scheduler.state.nodes_without_regions()}
        for node_id, node in self._fork_nodes.items():
            old_node = old_nodes.get(node_id)
            if old_node is not None and _definition(old_node, self._source_scheduler.plan) != _definition(
                node, self._plan
            ):
                self._results.changed_ids.add(node_id)
        self._results.compensated_ids, uncertain_ids = compensated_tasks(self._source_scheduler.state)
        for task_id in uncertain_ids:
            if not self._differences.reruns(task_id.partition("[")[0], task_id):
                advice = "check it, and add it to `rerun` to run it again"
                self._results.problems.append(f"it is unknown whether {task_id!r} was compensated: {advice}")
        untouched_ids = self._untouched_ids(old_nodes) if self._source.is_open else frozenset()
        for number, (node, record) in enumerate(self._source_scheduler.state.nodes_without_regions()):
            # The nodes of offloaded regions are not known here.
            is_known = node.id in self._fork_nodes and not self._source_scheduler.state.regions.is_inside_offloaded(
                number
            )
            if is_known and not self._differences.reruns(node.id):
                self._collect_node(number, node, record, is_untouched=node.id in untouched_ids)
        return self._results

    def _untouched_ids(self, old_nodes: Mapping[str, CompiledNode]) -> frozenset[str]:
        """Return the ids of the nodes that do not depend on any change, whatever the outcome of their dependencies."""
        nodes = self._plan.nodes[: self._plan.count_without_regions]
        touched_numbers = {
            number
            for number, node in enumerate(nodes)
            if node.id not in old_nodes or node.id in self._results.changed_ids or self._is_changed(node)
        }
        dependents = dependents_of([node.dependencies for node in self._plan.nodes])
        unvisited_numbers = [*touched_numbers]
        while unvisited_numbers:
            for dependent in dependents[unvisited_numbers.pop()]:
                if dependent not in touched_numbers:
                    touched_numbers.add(dependent)
                    unvisited_numbers.append(dependent)
        return frozenset(node.id for number, node in enumerate(nodes) if number not in touched_numbers)

    def _is_changed(self, node: CompiledNode) -> bool:
        """Return whether a node runs again or may read an input whose value has changed. A condition may read any
        input."""
        if any(task_id == node.id or task_id.startswith(f"{node.id}[") for task_id in self._differences.rerun_ids):
            return True
        if not self._differences.changed_inputs:
            return False
        input_names = {part.name for part in references_in(_templates(node)) if isinstance(part, Placeholder)}
        return node.when is not None or not input_names.isdisjoint(self._differences.changed_inputs)

    def _collect_node(self, number: int, node: CompiledNode, record: Record, *, is_untouched: bool) -> None:
        if is_batched(record):
            self._collect_map(number, node, record)
        elif record.items:
            for position, item in enumerate(record.items):
                task_id = f"{node.id}[{item.key}]"
                if not self._differences.reruns(node.id, task_id):
                    self._collect_task(TaskRef(number, position), task_id, item.record)
        elif node.for_each is None and (_has_started(record) or has_reusable_result(record)):
            self._collect_task(TaskRef(number), node.id, record)
        elif is_untouched and record.status is NodeStatus.PENDING:
            self._results.table.results[node.id] = ReusableResult(scope=self._scope_of(node.id, node.id, ""))

    def _collect_map(self, number: int, node: CompiledNode, record: Record) -> None:
        """Reuse the result of a large map as a whole."""
        if any(f"{node.id}[{item.key}]" in self._results.compensated_ids for item in record.items):
            return
        # Only the batches are checked: `record.items` also has the task that joins the results, which stays pending if
        # the run joins the results without a call.
        batches = [item.record for item in record.items if is_map_batch(item)]
        is_reusable = has_reusable_result(record) and all(has_reusable_result(batch) for batch in batches)
        if is_reusable:
            self._add_result(node.id, record, lambda version: self._fingerprint_of_map(number, version))
        if not is_reusable and has_side_effects(self._fork_nodes[node.id], self._plan.tools):
            advice = f"add {node.id!r} to `rerun` to run all items again"
            if self._source.is_open and not record.status.is_final:
                advice = f"let them end first, or {advice}"
            self._results.problems.append(
                f"the items of {node.id!r} run in child runs, and some may have had effects already: {advice}"
            )

    def _collect_task(self, ref: TaskRef, task_id: str, record: Record) -> None:
        if task_id in self._results.compensated_ids:
            return
        node = self._source_scheduler.plan.nodes[ref.node]
        runs_again = node.kind == "plan" and (record.partial or bool(self._differences.rerun_ids_in_sub_plan(task_id)))
        is_done = has_reusable_result(record) and not runs_again
        if is_done:
            self._add_result(task_id, record, lambda version: self._fingerprint_of(ref, version))
            return
        if (problem := self._problem(node, task_id, record)) is not None:
            self._results.problems.append(problem)
        if _has_started(record):
            try:
                fingerprint = self._fingerprint_of(ref)
            except (UnresolvedReference, ComputeBudgetExceeded):
                return
            self._results.table.results[task_id] = ReusableResult(
                fingerprint, self._scope_of(task_id, node.id, fingerprint)
            )

    def _fingerprint_of(self, ref: TaskRef, version: str | None = None) -> str:
        return fingerprint_of(
            self._source_scheduler.state, ref, version=version, table=self._source_scheduler.features.reuse.table
        )

    def _fingerprint_of_map(self, number: int, version: str | None) -> str:
        return fingerprint_of_map(
            self._source_scheduler.state, number, version=version, table=self._source_scheduler.features.reuse.table
        )

    def _add_result(self, task_id: str, record: Record, compute_fingerprint: Callable[[str | None], str]) -> None:
        try:
            fingerprint = compute_fingerprint(record.tool_version or None)
        except (UnresolvedReference, ComputeBudgetExceeded):
            return
        self._results.table.results[task_id] = ReusableResult(
            fingerprint=fingerprint,
            has_result=True,
            result=record.result,
            partial=record.partial,
            message=record.message,
            tool_version=record.tool_version,
            produced_by=record.reused or {"run_id": self._source.run_id, "node_id": task_id},
        )

    def _problem(self, node: CompiledNode, task_id: str, record: Record) -> str | None:
        """Return why a task must not run again unless the user names it, or `None`."""
        tool = tool_of(node, self._plan.tools)
        if node.kind != "tool" or tool.effects is not Effects.WRITE:
            return None
        advice = "add it to `rerun` to run it again"
        if record.status is NodeStatus.RUNNING and self._source.is_open:
            return f"{task_id!r} is a write that is running in {self._source.run_id!r}: let it end, or {advice}"
        is_unknown = record.error is not None and record.error.code == "outcome_unknown"
        if is_unknown or (record.status is NodeStatus.CANCELLED and record.attempts):
            return f"it is unknown whether {task_id!r} has had its effect: check it, and {advice}"
        return None

    def _scope_of(self, task_id: str, node_id: str, fingerprint: str) -> str:
        """Return the scope of the idempotency key of a task in the source run, which may itself be a fork."""
        table = self._source_scheduler.features.reuse.table
        entry = table.entry_with_key(task_id, node_id) if table is not None else None
        if entry is None or entry.scope is None or (entry.fingerprint and entry.fingerprint != fingerprint):
            return self._source.scope
        return entry.scope


def _has_started(record: Record) -> bool:
    return record.status in _STARTED_STATUSES or record.attempts > 0 or record.started_at is not None


def _templates(node: CompiledNode) -> Iterator[Template]:
    for _, template in (*node.bindings, *node.item_bindings, *node.approval_bindings):
        yield template
    yield from (template for template in (node.for_each, node.key) if isinstance(template, tuple))


def _definition(node: CompiledNode, plan: CompiledPlan) -> dict[str, Any]:
    """Return the fields of a node that define its call, with the ids of its dependencies."""
    encoded = {name: value for name, value in node_to_json(node).items() if name not in _NOT_IN_DEFINITION}
    return {**encoded, "needs": [plan.nodes[number].id for number in node.dependencies]}


# Prediction.


@dataclass(frozen=True, slots=True)
class ForkPrediction:
    """Prediction of a fork before it starts.

    Args:
        reused: nodes and items whose results are reused immediately.
        executed: node or item that the fork executes immediately -> reason.
        reused_if_unchanged: nodes whose results are reused if the nodes read the same values as before.
        decided_later: nodes that run or are skipped after other nodes have ended.
    """

    reused: list[str]
    executed: dict[str, str]
    reused_if_unchanged: list[str]
    decided_later: list[str]


def predict_fork(
    scheduler: "RunScheduler", source_scheduler: "RunScheduler", reuse: ReusableResults, *, differences: ForkDifferences
) -> ForkPrediction:
    """Predict which nodes of a fork reuse a result, and which nodes run.

    Args:
        scheduler: scheduler of the fork, not started yet. It must not be used afterwards.
        source_scheduler: scheduler of the source run.
    """
    scheduler.features.reuse.set_table(reuse.table)
    scheduler.start(0.0)
    while scheduler.next_task(0.0) is not None:
        pass
    result = ForkPrediction([], {}, [], [])
    for node, record in scheduler.state.visible_nodes():
        tasks = [(f"{node.id}[{item.key}]", item.record) for item in record.items] or [(node.id, record)]
        if node.for_each is not None and record.reused is not None:
            tasks = [(node.id, record)]
        for task_id, task_record in tasks:
            entry = reuse.table.results.get(task_id)
            if task_record.reused is not None:
                result.reused.append(task_id)
            elif task_record.status is NodeStatus.PENDING:
                is_reusable = (entry is not None and entry.has_result) or _has_reusable_items(reuse.table, node)
                (result.reused_if_unchanged if is_reusable else result.decided_later).append(task_id)
            elif task_record.status is not NodeStatus.SKIPPED:
                tool = scheduler.plan.tools.get(node.tool)
                version = tool.version if tool is not None else ""
                result.executed[task_id] = _run_reason(
                    node, task_id, source_scheduler, reuse, differences, version=version
                )
    return result


def _has_reusable_items(table: ReuseTable, node: CompiledNode) -> bool:
    return node.for_each is not None and any(
        task_id.startswith(f"{node.id}[") and result.has_result for task_id, result in table.results.items()
    )


def _run_reason(
    node: CompiledNode,
    task_id: str,
    source_scheduler: "RunScheduler",
    reuse: ReusableResults,
    differences: ForkDifferences,
    *,
    version: str,
) -> str:
    record = source_scheduler.record_of(task_id)
    if differences.reruns(node.id, task_id) or differences.rerun_ids_in_sub_plan(task_id):
        return "was selected to run again"
    number = source_scheduler.state.number_of(node.id)
    if record is None or number is None:
        return "is new"
    if task_id in reuse.compensated_ids:
        return "was compensated"
    if source_scheduler.state.regions.is_inside_offloaded(number):
        return "belongs to an offloaded region of pure nodes"
    if record.status is NodeStatus.FAILED or record.error is not None:
        return "had failed"
    if not has_reusable_result(record):
        return f"was {record.status.value}" if record.status.is_final else "had not ended"
    if node.id in reuse.changed_ids:
        return "was changed in the plan"
    if record.partial:
        return "had failed in part"
    entry = reuse.table.results.get(task_id)
    if entry is not None and entry.tool_version and entry.tool_version != version:
        return "has another version of its tool"
    return "reads something that has changed"
