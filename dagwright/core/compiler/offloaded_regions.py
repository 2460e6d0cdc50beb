"""Takes the inside of large regions out of a plan, so that a run never holds what only its regions read.

What is left is the plan that the run holds: its other nodes, its regions, and of the nodes inside only those that
something outside needs. The inside of a region becomes a plan of its own, for whoever runs the region or looks at it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.expressions.references import Reference, ResultOf, references_in
from dagwright.core.model.compiled import CompiledNode, CompiledPlan

DETACHED_MEMBERS = 300
"""Nodes from which on a region is taken out: fewer are worth seeing in the Temporal UI."""

OUTPUT_NODES = 1_000
"""Nodes at the ends of a plan without an `output` that a run holds for its output; beyond it only the others."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The inside of a region.

    Args:
        plan: nodes of the kind `reported` for what is needed from outside, then the region's own in an order in which
            they can run.
        places: number of each own node in the plan as it was written.
        wanted: numbers, in this plan, of the own nodes that something outside needs.
        ends: numbers, in this plan, of the own nodes that nothing waits for.
    """

    plan: CompiledPlan
    places: Sequence[int]
    wanted: frozenset[int]
    ends: frozenset[int]


def inside_from_json(head: Mapping[str, Any], nodes: Sequence[CompiledNode]) -> Inside:
    """Returns the inside of a region that was a `CutOut`.

    Args:
        head: without its nodes.

    Raises:
        ValueError: it is nothing of that kind.
    """
    try:
        plan = CompiledPlan(nodes=tuple(nodes), on_failure=head["on_failure"])
        return Inside(plan, head["places"], frozenset(head["wanted"]), frozenset(head["ends"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no inside of a region: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Detached:
    """A plan without the insides of its large regions.

    Args:
        plan: what the run holds; the references of the insides are missing.
        insides: number of the region in `plan` -> what it holds.
    """

    plan: CompiledPlan
    insides: Mapping[int, "CutOut"]


@dataclass(frozen=True, slots=True)
class CutOut:
    """The inside of a region as it is cut out, to be written.

    Args:
        nodes: those outside whose ends it needs, as `reported`, then its own as they stand in the plan.
        instead: field -> its value of each node, where that is another one than in the plan.
        head: the rest, as `inside_from_json` reads it.
    """

    nodes: Sequence[CompiledNode]
    instead: Mapping[str, Sequence[Any]]
    head: Mapping[str, Any]


def detach(plan: CompiledPlan) -> Detached:
    """Returns the plan without the insides of its large regions.

    Complexity: O(V + E).
    """
    cut = _cut(plan)
    return Detached(cut.held(plan), {cut.at[number]: cut.inside(plan, number) for number in cut.regions})


def held_by_run(plan: CompiledPlan) -> CompiledPlan:
    """Returns what a run holds of a plan, as `detach` does, and of its sub-plans; the insides are not made.

    Complexity: O(V + E).
    """
    held = _cut(plan).held(plan)
    if all(node.sub_plan is None for node in held.nodes):
        return held
    return replace(
        held,
        nodes=tuple(
            replace(node, sub_plan=held_by_run(node.sub_plan)) if node.sub_plan is not None else node
            for node in held.nodes
        ),
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a plan is cut.

    Args:
        regions: numbers of the large regions.
        inside_of: numbers of their nodes; needs a fast `in`.
        wanted: numbers of those that something outside needs.
        ends: numbers of the nodes that nothing waits for.
        at: number of a node that the run holds -> its number there, in order.
    """

    regions: Sequence[int]
    inside_of: Collection[int]
    wanted: set[int]
    ends: set[int]
    at: Mapping[int, int]

    def held(self, plan: CompiledPlan) -> CompiledPlan:
        if not self.regions:
            return plan
        nodes = [_kept_node(plan.nodes[old], old in self.inside_of, self.at) for old in self.at]
        for number in self.regions:
            reads = tuple(sorted(self.at[each] for each in _read_by(plan, plan.nodes[number])))
            new = self.at[number]
            nodes[new] = replace(nodes[new], inner_count=len(plan.nodes[number].members), reads=reads)
        return replace(plan, nodes=tuple(nodes))

    def inside(self, plan: CompiledPlan, region: int) -> CutOut:
        return _inside_of(plan, plan.nodes[region], wanted=self.wanted, ends=self.ends)


def _cut(plan: CompiledPlan) -> _Cut:
    count = plan.written_count
    regions = [
        number for number in range(count, len(plan.nodes)) if len(plan.nodes[number].members) >= DETACHED_MEMBERS
    ]
    if not regions:
        return _Cut((), (), set(), set(), {})
    region_of = {member: number for number in regions for member in plan.nodes[number].members}
    nodes = plan.nodes[:count]
    ends = set(range(count)).difference(*(node.dependencies for node in nodes))
    wanted = _wanted(plan, region_of, ends=ends)
    kept = (number for number in range(len(plan.nodes)) if number not in region_of or number in wanted)
    return _Cut(regions, region_of.keys(), wanted, ends, {old: new for new, old in enumerate(kept)})


def _wanted(plan: CompiledPlan, region_of: Mapping[int, int], *, ends: set[int]) -> set[int]:
    """Returns the nodes inside of regions that something outside of them needs."""
    wanted = set[int]()
    for number in range(plan.written_count):
        own = region_of.get(number)
        wanted.update(needed for needed in plan.nodes[number].dependencies if region_of.get(needed, own) != own)
    if plan.output is None and not plan.output_holes:
        return wanted | (ends & region_of.keys() if len(ends) <= OUTPUT_NODES else set())
    named = {part.node for part in _references(plan.output_holes) if isinstance(part, ResultOf)}
    return wanted | {member for member in region_of if plan.nodes[member].id in named}


def _kept_node(node: CompiledNode, is_inside: bool, at: Mapping[int, int]) -> CompiledNode:
    if is_inside:
        return CompiledNode(id=node.id, kind="reported", title=node.title, tool=node.tool, on_error=node.on_error)
    members = tuple(at[member] for member in node.members if member in at)
    return replace(node, dependencies=tuple(at[needed] for needed in node.dependencies), members=members)


def _inside_of(plan: CompiledPlan, region: CompiledNode, *, wanted: set[int], ends: set[int]) -> CutOut:
    at = {old: new for new, old in enumerate((*region.dependencies, *region.members))}
    outside = [plan.nodes[old] for old in region.dependencies]
    nodes = [CompiledNode(id=node.id, kind="reported", on_error=node.on_error) for node in outside]
    nodes += map(plan.nodes.__getitem__, region.members)
    numbers = at.__getitem__
    instead: dict[str, Sequence[Any]] = {
        "kind": ["reported"] * len(outside) + ["tool"] * len(region.members),
        "dependencies": [tuple(map(numbers, node.dependencies)) for node in nodes],
    }
    head = {
        "format": 1,
        "on_failure": plan.on_failure,
        "places": list(region.members),
        "wanted": [at[old] for old in region.members if old in wanted],
        "ends": [at[old] for old in region.members if old in ends],
    }
    return CutOut(nodes, instead, head)


def _read_by(plan: CompiledPlan, region: CompiledNode) -> set[int]:
    """Returns the nodes outside of a region whose results it reads."""
    numbers = {plan.nodes[number].id: number for number in region.dependencies}
    outside, read = set(region.dependencies), set[int]()
    for member in region.members:
        node = plan.nodes[member]
        if outside.isdisjoint(node.dependencies):
            # What a node reads is among its dependencies.
            continue
        if node.when is not None:
            read |= outside.intersection(node.dependencies)
        named = (part.node for part in _references(node.holes) if isinstance(part, ResultOf))
        read |= {numbers[name] for name in named if name in numbers}
    return read


def _references(holes: Iterable[Any]) -> Iterable[Reference]:
    return references_in(template for _, template in holes)
