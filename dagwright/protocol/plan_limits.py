"""Limits of compiled plans and calls. A plan or call that exceeds them would block its run
(docs/contributing/guards.md F8).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.boundary.limits import (
    MAX_INPUT_PLAN_NODES,
    MAX_PLAN_BYTES,
    MAX_PLAN_EDGES,
    MAX_PLAN_PART_BYTES,
    MAX_RUN_NODES,
)
from dagwright.core.compiler.compiled_checks import compiled_plan_problem
from dagwright.core.compiler.node_columns import encoded_sub_plans
from dagwright.core.compiler.offloaded_regions import reduce_to_plan_of_run
from dagwright.core.errors import DagwrightError
from dagwright.core.expressions.references import MAX_ID_BYTES
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, RetryRule, node_to_json, plan_to_json
from dagwright.core.model.graph import levels_of
from dagwright.core.model.plan import RESERVED_IDS
from dagwright.core.model.times import MAX_DURATION
from dagwright.core.model.tools import ToolDeclaration

MAX_TEMPORAL_NAME_BYTES = 1_000
"""Maximum length of an activity type or task queue, in bytes."""
_MAX_DURATION_S = MAX_DURATION.total_seconds()
_MAX_ATTEMPTS = 1_000_000
_MAX_FACTOR = 1_000
_DEFAULT_RULE = CompiledNode("").retry
"""Retry rule of nodes that declare no rule. Most calls of a run have this object, which needs no check."""


def options_problem(node: CompiledNode, tool: ToolDeclaration) -> str | None:
    """Return the first problem of the options of a call as one sentence, or `None`."""
    checks: list[tuple[str, Any, bool]] = [
        ("the name of the tool", node.tool, _is_name(node.tool)),
        ("the task queue", tool.task_queue, tool.task_queue is None or is_queue_name(tool.task_queue)),
        ("timeout_s", node.timeout_s, node.timeout_s == 0 or _is_duration(node.timeout_s)),
        ("heartbeat_s", node.heartbeat_s, node.heartbeat_s is None or _is_duration(node.heartbeat_s)),
        ("cache_s", node.cache_s, node.cache_s in (None, 0) or _is_duration(node.cache_s)),
        ("priority", node.priority, _is_within(node.priority, 1, 5)),
        ("the title", node.title, node.title is None or isinstance(node.title, str)),
    ]
    if node.retry is not _DEFAULT_RULE:
        checks += _checks_of_rule(node.retry)
    for name, value, is_valid in checks:
        if not is_valid:
            return f"{name} is {value!r:.60}, which Temporal does not accept"
    return None


def _checks_of_rule(rule: RetryRule) -> list[tuple[str, Any, bool]]:
    return [
        ("max_attempts", rule.max_attempts, _is_within(rule.max_attempts, 1, _MAX_ATTEMPTS)),
        ("first_delay_s", rule.first_delay_s, _is_duration(rule.first_delay_s)),
        ("factor", rule.factor, _is_number(rule.factor) and 1 <= rule.factor <= _MAX_FACTOR),
        ("max_delay_s", rule.max_delay_s, rule.max_delay_s is None or _is_duration(rule.max_delay_s)),
    ]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode(errors="replace")) <= MAX_TEMPORAL_NAME_BYTES


def is_queue_name(value: Any) -> bool:
    """Return whether Temporal accepts a value as the name of a task queue."""
    return _is_name(value) and not value.startswith("/_sys/")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_duration(value: Any) -> bool:
    return _is_number(value) and 0 < value <= _MAX_DURATION_S


def _is_within(value: Any, min_value: int, max_value: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and min_value <= value <= max_value


_SHORTEN_NODES = "use for_each instead of many nodes, or split the plan into sub-plans"
_SHORTEN_EDGES = "add a node that joins common dependencies, and depend on that node"
_SHORTEN_BYTES = "move long values to files that tools read, or split the plan into sub-plans"
_SHORTEN_HEAD = "shorten its output, its metadata or the defaults of its inputs"
_SHORTEN_NODE = "load long values with a tool such as read_file"
_SHORTEN_SUB_PLAN = "split it into several sub-plans"
_SEND_AS_WRITTEN = "send the plan as written, in 'plan'"


class PlanTooLarge(DagwrightError, ValueError):
    """A plan exceeds a limit. The message has the size, the limit and advice.

    Args:
        node_id: id of the node that is too large; `None` if the plan is too large.
    """

    def __init__(self, problem: str, *, size: int, limit: int, advice: str, node_id: str | None = None) -> None:
        super().__init__(f"{problem}: it has {size:,}, the limit is {limit:,}; {advice}")
        self.node_id = node_id


def reject_too_large(plan: CompiledPlan) -> None:
    """Reject a plan that is too large for a run. Nodes inside of offloaded regions are not counted.

    Args:
        plan: compiled plan with its regions, before it is sent.

    Complexity: O(V + E), about 15 us for each node of the run.

    Raises:
        PlanTooLarge: the plan exceeds a limit.
    """
    plan_of_run = reduce_to_plan_of_run(plan)
    _reject_counts(plan_of_run)
    head_bytes = encoded_size(plan_to_json(replace(plan_of_run, nodes=())))
    if head_bytes > MAX_PLAN_PART_BYTES:
        problem = "the fields of the plan other than `nodes` are too large, in bytes of its compiled form"
        raise PlanTooLarge(problem, size=head_bytes, limit=MAX_PLAN_PART_BYTES, advice=_SHORTEN_HEAD)
    sizes = [encoded_size(node_to_json(node)) for node in plan_of_run.nodes]
    for node, size in zip(plan_of_run.nodes, sizes, strict=True):
        _reject_large_node(node, size)
    if (total_bytes := head_bytes + sum(sizes)) > MAX_PLAN_BYTES:
        problem = "the plan is too large for a run, in bytes of its compiled form"
        raise PlanTooLarge(problem, size=total_bytes, limit=MAX_PLAN_BYTES, advice=_SHORTEN_BYTES)


def _reject_large_node(node: CompiledNode, size: int) -> None:
    name = f"the sub-plan {node.id!r}" if node.sub_plan is not None else f"the node {node.id!r}"
    advice = _SHORTEN_SUB_PLAN if node.sub_plan is not None else _SHORTEN_NODE
    if size > MAX_PLAN_PART_BYTES:
        problem = f"{name} is too large, in bytes of its compiled form"
        raise PlanTooLarge(problem, size=size, limit=MAX_PLAN_PART_BYTES, advice=advice, node_id=node.id)
    if (count := _count_nested_nodes(node)) > MAX_INPUT_PLAN_NODES:
        problem = f"{name} is too large, in nodes, including those of its own sub-plans"
        raise PlanTooLarge(problem, size=count, limit=MAX_INPUT_PLAN_NODES, advice=advice, node_id=node.id)


def _count_nested_nodes(node: CompiledNode) -> int:
    children = node.sub_plan.nodes if node.sub_plan is not None else ()
    return len(children) + sum(_count_nested_nodes(child) for child in children)


def _reject_counts(plan_of_run: CompiledPlan) -> None:
    if (count := len(plan_of_run.nodes)) > MAX_RUN_NODES:
        problem = "the plan has too many nodes for a run, not counting those inside of a large region of pure nodes"
        raise PlanTooLarge(problem, size=count, limit=MAX_RUN_NODES, advice=_SHORTEN_NODES)
    edges = sum(len(node.dependencies) + len(node.members) for node in plan_of_run.nodes)
    if edges > MAX_PLAN_EDGES:
        problem = "the plan has too many edges for a run, not counting those inside of a large region of pure nodes"
        raise PlanTooLarge(problem, size=edges, limit=MAX_PLAN_EDGES, advice=_SHORTEN_EDGES)


def reject_too_large_json(root_plan: Any) -> None:
    """Reject the JSON of a compiled plan if the plan is too large for the input of a run.

    This must be called before the plan is decoded, because decoding a larger plan could take the two seconds that
    workflow code has (docs/contributing/guards.md F6).

    Raises:
        PlanTooLarge: the plan exceeds a limit.
    """
    plans_to_visit, count = [root_plan], 0
    while plans_to_visit:
        plan = plans_to_visit.pop()
        nodes = plan.get("nodes") if isinstance(plan, Mapping) else None
        if plan is not root_plan and not isinstance(nodes, list):
            continue
        node_count, children = encoded_sub_plans(nodes)
        count += node_count
        for sub_plan in children if plan is root_plan else ():
            # The input of a sub-plan's run has the same limit of 2 MB, and contains other values besides the plan.
            if (size := encoded_size(sub_plan)) > MAX_PLAN_PART_BYTES:
                problem = "a sub-plan is too large, in bytes of its compiled form"
                raise PlanTooLarge(problem, size=size, limit=MAX_PLAN_PART_BYTES, advice=_SHORTEN_SUB_PLAN)
        plans_to_visit += children
    if count > MAX_INPUT_PLAN_NODES:
        problem = "the compiled plan is too large for the input of a run, in nodes, including those of its sub-plans"
        raise PlanTooLarge(problem, size=count, limit=MAX_INPUT_PLAN_NODES, advice=_SEND_AS_WRITTEN)


def graph_problem(plan: CompiledPlan, *, reported_ids: Collection[str] = ()) -> str | None:
    """Return the first problem of the nodes and edges of a compiled plan as one sentence, or `None`.

    Args:
        plan: plan as a run loads it, without the nodes of offloaded regions.
        reported_ids: ids of the nodes whose ends are part of the input of a map batch.

    Raises:
        PlanTooLarge: the plan has too many nodes or edges to be checked.
    """
    _reject_counts(plan)
    ids: set[str] = set()
    for node in plan.nodes:
        if not 0 < len(node.id.encode(errors="replace")) <= MAX_ID_BYTES:
            return f"the id {node.id[:40]!r} must be 1-{MAX_ID_BYTES} bytes of UTF-8"
        if node.id in RESERVED_IDS:
            return f"the id {node.id!r} is reserved"
        if node.id in ids:
            return f"duplicate node id {node.id!r}"
        ids.add(node.id)
        if not _are_numbers_of_nodes(node.dependencies, plan):
            return f"the dependencies of {node.id!r} are not node numbers"
        if not _are_numbers_of_nodes(node.members, plan):
            return f"the members of {node.id!r} are not node numbers"
    if levels_of(_predecessors_of(plan)) is None:
        return "the dependencies of the nodes form a cycle"
    if unreported_numbers := [
        number for number in _unreported_numbers(plan) if plan.nodes[number].id not in reported_ids
    ]:
        return f"the node {plan.nodes[unreported_numbers[0]].id!r} requires a region, which is missing"
    if (problem := compiled_plan_problem(plan)) is not None:
        return problem
    children = (graph_problem(node.sub_plan) for node in plan.nodes if node.sub_plan is not None)
    return next((problem for problem in children if problem is not None), None)


def _predecessors_of(plan: CompiledPlan) -> list[Sequence[int]]:
    """Return the numbers of the nodes that must end before each node: its dependencies, and the region that runs it."""
    predecessors: list[Sequence[int]] = [node.dependencies for node in plan.nodes]
    for region in range(plan.visible_count, len(plan.nodes)):
        for member in plan.nodes[region].members:
            predecessors[member] = (*predecessors[member], region)
    return predecessors


def _unreported_numbers(plan: CompiledPlan) -> list[int]:
    """Return the numbers of the external nodes whose end no region reports."""
    reported_numbers = {member for node in plan.nodes[plan.visible_count :] for member in node.members}
    return [
        number for number, node in enumerate(plan.nodes) if node.kind == "external" and number not in reported_numbers
    ]


def _are_numbers_of_nodes(numbers: Sequence[Any], plan: CompiledPlan) -> bool:
    if not numbers:
        return True
    # There may be many thousands of edges, so they are checked by C code.
    return set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) < len(plan.nodes)
