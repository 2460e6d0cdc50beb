"""Remove the nodes of large regions from the plan of a run, so that they can be stored separately.

A region is a group of pure nodes that one activity runs. The plan of the run contains all nodes outside the regions,
the region nodes, and those region members that nodes outside depend on. The members of an offloaded region form a
separate plan, which the region activity and readers of the history load from the store.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.expressions.references import Reference, ResultOf, references_in
from dagwright.core.model.compiled import CompiledNode, CompiledPlan

MIN_OFFLOADED_MEMBERS = 300
"""Minimum number of members of an offloaded region. The members of smaller regions remain in the run, so that the
Temporal UI shows them."""

MAX_OUTPUT_NODES = 1_000
"""Maximum number of sinks (nodes without dependents) that remain in a run as the output of a plan without `output`. If
there are more sinks, the offloaded sinks are missing from the output."""


@dataclass(frozen=True, slots=True)
class OffloadedRegion:
    """Nodes of an offloaded region.

    Args:
        plan: nodes of the kind `external` for dependencies outside the region, then the members in topological order.
        member_numbers: number of each member in the original plan.
        exports: numbers in `plan` of the members on which nodes outside the region depend.
        ends: numbers in `plan` of the members on which no node depends.
    """

    plan: CompiledPlan
    member_numbers: Sequence[int]
    exports: frozenset[int]
    ends: frozenset[int]


def offloaded_region_from_json(head: Mapping[str, Any], nodes: Sequence[CompiledNode]) -> OffloadedRegion:
    """Parse a `RegionDocument`.

    Args:
        head: all fields except the nodes.

    Raises:
        ValueError: `head` has another form.
    """
    try:
        plan = CompiledPlan(nodes=tuple(nodes), on_failure=head["on_failure"])
        return OffloadedRegion(plan, head["members"], frozenset(head["exports"]), frozenset(head["ends"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an offloaded region: {error!r}") from None


@dataclass(frozen=True, slots=True)
class OffloadedPlan:
    """A plan without the members of its large regions.

    Args:
        plan: plan of the run; store references of the offloaded regions are not set yet.
        region_documents: number of the region in `plan` -> its offloaded nodes.
    """

    plan: CompiledPlan
    region_documents: Mapping[int, "RegionDocument"]


@dataclass(frozen=True, slots=True)
class RegionDocument:
    """An offloaded region in the form in which it is stored.

    Args:
        nodes: dependencies outside the region, as `external`, then the members as in the original plan.
        replacements: field -> values, one for each node, that replace the values in `nodes`.
        head: all other fields, for `offloaded_region_from_json`.
    """

    nodes: Sequence[CompiledNode]
    replacements: Mapping[str, Sequence[Any]]
    head: Mapping[str, Any]


def offload_regions(plan: CompiledPlan) -> OffloadedPlan:
    """Offload the members of all large regions of a plan.

    Complexity: O(V + E).
    """
    division = _divide(plan)
    return OffloadedPlan(
        division.plan_of_run(plan),
        {division.new_numbers[number]: division.region_document(plan, number) for number in division.regions},
    )


def reduce_to_plan_of_run(plan: CompiledPlan) -> CompiledPlan:
    """Return the plan that remains in a run, without building the offloaded regions. Sub-plans are reduced too.

    Complexity: O(V + E).
    """
    run_plan = _divide(plan).plan_of_run(plan)
    if all(node.sub_plan is None for node in run_plan.nodes):
        return run_plan
    return replace(
        run_plan,
        nodes=tuple(
            replace(node, sub_plan=reduce_to_plan_of_run(node.sub_plan)) if node.sub_plan is not None else node
            for node in run_plan.nodes
        ),
    )


@dataclass(frozen=True, slots=True)
class _Division:
    """Division of a plan into the plan of the run and the offloaded regions.

    Args:
        regions: numbers of the large regions.
        members: numbers of the members of large regions, in a collection with a fast `in`.
        exports: numbers of the members on which nodes outside their region depend.
        ends: numbers of the nodes on which no node depends.
        new_numbers: number of a node that remains in the run -> its number in the plan of the run, in order.
    """

    regions: Sequence[int]
    members: Collection[int]
    exports: set[int]
    ends: set[int]
    new_numbers: Mapping[int, int]

    def plan_of_run(self, plan: CompiledPlan) -> CompiledPlan:
        if not self.regions:
            return plan
        nodes = [
            _remaining_node(plan.nodes[number], number in self.members, self.new_numbers) for number in self.new_numbers
        ]
        for number in self.regions:
            reads = tuple(sorted(self.new_numbers[source] for source in _nodes_read_by(plan, plan.nodes[number])))
            new_number = self.new_numbers[number]
            nodes[new_number] = replace(nodes[new_number], inner_count=len(plan.nodes[number].members), reads=reads)
        return replace(plan, nodes=tuple(nodes))

    def region_document(self, plan: CompiledPlan, region: int) -> RegionDocument:
        return _region_document(plan, plan.nodes[region], exports=self.exports, ends=self.ends)


def _divide(plan: CompiledPlan) -> _Division:
    count = plan.visible_count
    regions = [
        number for number in range(count, len(plan.nodes)) if len(plan.nodes[number].members) >= MIN_OFFLOADED_MEMBERS
    ]
    if not regions:
        return _Division((), (), set(), set(), {})
    region_by_member = {member: number for number in regions for member in plan.nodes[number].members}
    nodes = plan.nodes[:count]
    ends = set(range(count)).difference(*(node.dependencies for node in nodes))
    exports = _exports_of(plan, region_by_member, ends=ends)
    remaining_numbers = (
        number for number in range(len(plan.nodes)) if number not in region_by_member or number in exports
    )
    return _Division(
        regions,
        region_by_member.keys(),
        exports,
        ends,
        {number: new_number for new_number, number in enumerate(remaining_numbers)},
    )


def _exports_of(plan: CompiledPlan, region_by_member: Mapping[int, int], *, ends: set[int]) -> set[int]:
    """Return the members of regions on which the output or nodes outside their region depend."""
    exports = set[int]()
    for number in range(plan.visible_count):
        region = region_by_member.get(number)
        exports.update(
            dependency
            for dependency in plan.nodes[number].dependencies
            if region_by_member.get(dependency, region) != region
        )
    if plan.output is None and not plan.output_bindings:
        return exports | (ends & region_by_member.keys() if len(ends) <= MAX_OUTPUT_NODES else set())
    output_nodes = {part.node_id for part in _references(plan.output_bindings) if isinstance(part, ResultOf)}
    return exports | {member for member in region_by_member if plan.nodes[member].id in output_nodes}


def _remaining_node(node: CompiledNode, is_member: bool, new_numbers: Mapping[int, int]) -> CompiledNode:
    if is_member:
        return CompiledNode(id=node.id, kind="external", title=node.title, tool=node.tool, on_error=node.on_error)
    members = tuple(new_numbers[member] for member in node.members if member in new_numbers)
    return replace(
        node, dependencies=tuple(new_numbers[dependency] for dependency in node.dependencies), members=members
    )


def _region_document(plan: CompiledPlan, region: CompiledNode, *, exports: set[int], ends: set[int]) -> RegionDocument:
    new_numbers = {number: new_number for new_number, number in enumerate((*region.dependencies, *region.members))}
    outside_nodes = [plan.nodes[number] for number in region.dependencies]
    nodes = [CompiledNode(id=node.id, kind="external", on_error=node.on_error) for node in outside_nodes]
    nodes += map(plan.nodes.__getitem__, region.members)
    new_number_of = new_numbers.__getitem__
    replacements: dict[str, Sequence[Any]] = {
        "kind": ["external"] * len(outside_nodes) + ["tool"] * len(region.members),
        "dependencies": [tuple(map(new_number_of, node.dependencies)) for node in nodes],
    }
    head = {
        "format": 1,
        "on_failure": plan.on_failure,
        "members": list(region.members),
        "exports": [new_numbers[number] for number in region.members if number in exports],
        "ends": [new_numbers[number] for number in region.members if number in ends],
    }
    return RegionDocument(nodes, replacements, head)


def _nodes_read_by(plan: CompiledPlan, region: CompiledNode) -> set[int]:
    """Return the nodes outside a region whose results the region reads."""
    numbers = {plan.nodes[number].id: number for number in region.dependencies}
    outside_nodes, read_nodes = set(region.dependencies), set[int]()
    for member in region.members:
        node = plan.nodes[member]
        if outside_nodes.isdisjoint(node.dependencies):
            # A node only reads results of its dependencies.
            continue
        if node.when is not None:
            read_nodes |= outside_nodes.intersection(node.dependencies)
        referenced_ids = (part.node_id for part in _references(node.bindings) if isinstance(part, ResultOf))
        read_nodes |= {numbers[node_id] for node_id in referenced_ids if node_id in numbers}
    return read_nodes


def _references(bindings: Iterable[Any]) -> Iterable[Reference]:
    return references_in(template for _, template in bindings)
