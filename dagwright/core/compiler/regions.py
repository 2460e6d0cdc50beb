"""Group the pure nodes of a compiled plan into regions. One activity runs all nodes of a region.

The *wait set* of a pure node is the set of nodes outside its region on which it depends through pure nodes only. Pure
nodes of one task queue with equal wait sets form one region. A region can therefore start exactly when the outside
dependencies of each of its nodes are met, and no node of a region depends on a node that depends on the region.
Proof: if a non-pure node s were between two parts of a region, s would be in the wait set of the later part, hence in
the equal wait set of the earlier part, and would be its own ancestor.

Nodes keep their numbers, edges and order. A node in a region gets the kind `external`, because the region reports the
end of the node. The region is a node of the kind `region` after all nodes of the plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dagwright.core.expressions.references import MAX_ID_BYTES
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, RetryRule, copy_with_kind
from dagwright.core.model.graph import dependents_of
from dagwright.core.model.tools import Effects, ToolDeclaration

REGION_PREFIX = "region:"
"""Prefix of the id of a region; the id of its first node follows."""

_MAX_WAIT_SET_NODES = 256
"""Maximum number of nodes in a wait set; a larger wait set starts a new region, because unbounded sets would cost O(V x
E)."""

_DEFAULT_DELAYS = (RetryRule().first_delay_s, RetryRule().factor, RetryRule().max_delay_s)

_Key = tuple[str, int, int]
"""Key of a region: task queue, how often the wait set exceeded the limit on the path to the region, number of the wait
set."""


def with_regions(plan: CompiledPlan) -> CompiledPlan:
    """Return the plan with its pure nodes in regions, also in its sub-plans.

    A single pure node stays a separate activity, without a region.

    Complexity: O(V + E) steps, each over a wait set of at most 256 nodes.
    """
    nodes = [
        replace(node, sub_plan=with_regions(node.sub_plan)) if node.sub_plan is not None else node
        for node in plan.nodes
    ]
    groups = [group for group in _groups(nodes, plan.tools) if len(group) > 1]
    for number in (number for group in groups for number in group):
        nodes[number] = copy_with_kind(nodes[number], "external")
    prefix = _free_prefix(nodes)
    return replace(plan, nodes=(*nodes, *(_region_of(group, nodes, prefix) for group in groups)))


def can_be_in_region(node: CompiledNode, tool: ToolDeclaration | None) -> bool:
    """Return whether a region can run a node: one call of a pure tool that waits for all its dependencies."""
    return (
        node.kind == "tool"
        and tool is not None
        and tool.effects is Effects.PURE
        and not (tool.is_foreign or tool.worker is not None)
        and tool.max_parallel is None
        and node.join[0] == "all"
        and node.for_each is None
        and node.heartbeat_s is None
        and node.approval in ("policy", "never")
        and node.on_error != "ask"
        and (node.retry.first_delay_s, node.retry.factor, node.retry.max_delay_s) == _DEFAULT_DELAYS
    )


class _WaitSets:
    """Numbered wait sets: equal sets have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[frozenset[int], int] = {frozenset(): 0}
        self._sets: list[frozenset[int]] = [frozenset()]

    def union_of(self, set_numbers: set[int], outside_nodes: set[int]) -> int | None:
        """Return the number of the union of wait sets and outside nodes, or `None` if the union would be too large."""
        if len(set_numbers) == 1 and not outside_nodes:
            return next(iter(set_numbers))
        union = frozenset(outside_nodes).union(*(self._sets[number] for number in set_numbers))
        if set_numbers and len(union) > _MAX_WAIT_SET_NODES:
            return None
        return self.number_of(union)

    def number_of(self, wait_set: frozenset[int]) -> int:
        number = self._numbers.setdefault(wait_set, len(self._sets))
        if number == len(self._sets):
            self._sets.append(wait_set)
        return number


def _groups(nodes: Sequence[CompiledNode], tools: Mapping[str, ToolDeclaration]) -> list[list[int]]:
    """Return the regions, ordered by their smallest node number, each with its nodes in topological order."""
    eligible_numbers = {number for number, node in enumerate(nodes) if can_be_in_region(node, tools.get(node.tool))}
    if len(eligible_numbers) < 2:
        return []
    keys: dict[int, _Key] = {}
    sets = _WaitSets()
    groups: dict[_Key, list[int]] = {}
    for number in _topological_order([node.dependencies for node in nodes]):
        if number not in eligible_numbers:
            continue
        key = _key_of(number, nodes, keys, sets=sets, task_queue=tools[nodes[number].tool].task_queue or "")
        keys[number] = key
        groups.setdefault(key, []).append(number)
    return sorted(groups.values(), key=min)


def _key_of(
    number: int, nodes: Sequence[CompiledNode], keys: Mapping[int, _Key], *, sets: _WaitSets, task_queue: str
) -> _Key:
    """Return the key of the region of a pure node; `keys` has the keys of its dependencies."""
    dependencies = nodes[number].dependencies
    dependency_keys = set(map(keys.get, dependencies))
    if len(dependency_keys) == 1 and (single_key := dependency_keys.pop()) is not None and single_key[0] == task_queue:
        # Fast path for most nodes, because a node may have thousands of edges.
        return single_key
    pure_keys = {
        dependency: keys[dependency]
        for dependency in dependencies
        if dependency in keys and keys[dependency][0] == task_queue
    }
    overflow_count = max((key[1] for key in pure_keys.values()), default=0)
    region_keys = {dependency: key for dependency, key in pure_keys.items() if key[1] == overflow_count}
    wait_set_number = sets.union_of({key[2] for key in region_keys.values()}, {*dependencies} - region_keys.keys())
    if wait_set_number is None:
        return task_queue, overflow_count + 1, sets.number_of(frozenset(dependencies))
    return task_queue, overflow_count, wait_set_number


def _topological_order(dependencies: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes in topological order, ties in plan order (Kahn 1962)."""
    dependents = dependents_of(dependencies)
    remaining_counts = [len(node_dependencies) for node_dependencies in dependencies]
    order = [number for number, count in enumerate(remaining_counts) if not count]
    for number in order:
        for dependent in dependents[number]:
            remaining_counts[dependent] -= 1
            if not remaining_counts[dependent]:
                order.append(dependent)
    return order


def _region_of(members: Sequence[int], nodes: Sequence[CompiledNode], prefix: str) -> CompiledNode:
    member_set = set(members)
    first_node = nodes[min(members)]
    outside_numbers = {number for member in members for number in nodes[member].dependencies} - member_set
    region_id = prefix + first_node.id
    return CompiledNode(
        # The prefix could make a long id too long.
        id=region_id if len(region_id.encode(errors="replace")) <= MAX_ID_BYTES else f"{prefix}#{min(members)}",
        kind="region",
        tool=first_node.tool,
        title=_title_of(members, nodes),
        dependencies=tuple(sorted(outside_numbers)),
        join=("all_done", 0),
        priority=min(nodes[member].priority for member in members),
        members=tuple(members),
    )


def _title_of(members: Sequence[int], nodes: Sequence[CompiledNode]) -> str:
    first_node, last_node = nodes[members[0]], nodes[members[-1]]
    return f"{len(members)} pure steps: {first_node.title or first_node.id} … {last_node.title or last_node.id}"


def _free_prefix(nodes: Sequence[CompiledNode]) -> str:
    """Return a prefix with which no id of the plan starts."""
    prefix = REGION_PREFIX
    while any(node.id.startswith(prefix) for node in nodes):
        prefix = "~" + prefix
    return prefix
