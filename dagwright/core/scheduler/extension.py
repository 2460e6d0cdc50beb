"""How a running plan grows: nodes are added behind those that were written, and take the places of others.

A node that was accepted never changes; what replaces it is a new node that says which one it supersedes, and whatever
waited for the old one waits for the new one. An extension is what a run keeps of it, and hands on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import (
    CompiledNode,
    CompiledPlan,
    Hole,
    field_from_json,
    field_to_json,
    node_from_json,
    node_to_json,
    projections_from_json,
    projections_to_json,
    tool_from_json,
    tool_to_json,
)
from dagwright.core.model.graph import levels_of
from dagwright.core.model.tools import ToolDeclaration


@dataclass(frozen=True, slots=True)
class Extension:
    """Nodes that are added to a plan.

    Args:
        base: how many written nodes the plan has that it is made for.
        nodes: the new ones, their lookups behind those that were written; the first has the number `base`. Dependencies
            are numbers of nodes, old and new; those of nodes that nobody wrote count from the plan as it will be.
        tools: declarations of the tools that they name.
        wanted: id of a node that was there -> what they name of its result, to be told if it is large.
        output: what the run gives out from now on, JSON with null at every hole, and its holes; `None` leaves it.
        given_up: ids of nodes that ended without a result and whose place nothing takes.
    """

    base: int
    nodes: Sequence[CompiledNode]
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    wanted: Mapping[str, Sequence[Projection]] = field(default_factory=dict)
    output: tuple[Any, Sequence[Hole]] | None = None
    given_up: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the extension as JSON."""
        encoded: dict[str, Any] = {
            "base": self.base,
            "nodes": [node_to_json(node) for node in self.nodes],
            "tools": {name: tool_to_json(tool) for name, tool in self.tools.items()},
        }
        if self.wanted:
            encoded["wanted"] = {node_id: projections_to_json(wanted) for node_id, wanted in self.wanted.items()}
        if self.output is not None:
            value, holes = self.output
            encoded["output"] = [value, field_to_json("holes", holes)]
        if self.given_up:
            encoded["given_up"] = list(self.given_up)
        return encoded


def extension_from_json(encoded: Any) -> Extension:
    """Returns the extension that `Extension.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        return Extension(
            int(encoded["base"]),
            tuple(node_from_json(node) for node in encoded["nodes"]),
            {name: tool_from_json(name, tool) for name, tool in encoded["tools"].items()},
            {str(name): projections_from_json(wanted) for name, wanted in encoded.get("wanted", {}).items()},
            _output_from_json(encoded.get("output")),
            tuple(str(name) for name in encoded.get("given_up", ())),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"this is no extension of a plan: {error!r}") from None


def _output_from_json(encoded: Any) -> tuple[Any, Sequence[Hole]] | None:
    if encoded is None:
        return None
    value, holes = encoded
    return value, field_from_json("holes", holes)


def extended(plan: CompiledPlan, extension: Extension) -> CompiledPlan:
    """Returns the plan with the nodes of an extension, in front of what nobody wrote of it.

    Raises:
        ValueError: it was made for another plan, or its edges are none that a run could follow.
    """
    count, added = plan.written_count, len(extension.nodes)
    if extension.base != count:
        raise ValueError(f"it was made for a plan of {extension.base} nodes, and the plan has {count}")
    numbers = {node.id: number for number, node in enumerate(plan.nodes)}
    _check(extension, numbers, count=len(plan.nodes) + added)
    instead = {
        numbers[node.supersedes]: count + place
        for place, node in enumerate(extension.nodes)
        if node.supersedes is not None
    }
    old = [_waiting_for(_moved(node, added, behind=count), instead) for node in plan.nodes]
    for node_id, wanted in extension.wanted.items():
        old[numbers[node_id]] = _telling(old[numbers[node_id]], wanted)
    nodes = (*old[:count], *extension.nodes, *old[count:])
    tools = {**plan.tools, **extension.tools}
    output, holes = extension.output or (plan.output, plan.output_holes)
    return replace(plan, nodes=nodes, tools=tools, output=output, output_holes=holes)


def _check(extension: Extension, numbers: Mapping[str, int], *, count: int) -> None:
    base = extension.base
    end = base + len(extension.nodes)
    if any(node_id not in numbers for node_id in (*extension.wanted, *extension.given_up)):
        raise ValueError("something is said of a node that is not there")
    for node in extension.nodes:
        if node.id in numbers:
            raise ValueError(f"the run has a node {node.id!r} already")
        if any(type(number) is not int or not 0 <= number < count for number in node.dependencies):
            raise ValueError(f"the dependencies of {node.id!r} are no numbers of nodes")
        if node.supersedes is not None and node.supersedes not in numbers:
            raise ValueError(f"{node.id!r} supersedes {node.supersedes!r}, which is not there")
    if len({node.id for node in extension.nodes}) < len(extension.nodes):
        raise ValueError("two of the new nodes have one id")
    among_new = [[number - base for number in node.dependencies if base <= number < end] for node in extension.nodes]
    if any(place in needed for place, needed in enumerate(among_new)) or levels_of(among_new) is None:
        raise ValueError("the dependencies of the new nodes are a circle")


def _telling(node: CompiledNode, wanted: Sequence[Projection]) -> CompiledNode:
    """Returns a node whose call, if it is still to be made, tells more parts of a large result.

    What is named of the result of a sub-plan is told inside of it, which has its plan already.
    """
    if node.sub_plan is not None:
        return node
    more = list(wanted)
    if node.for_each is not None:
        # The first step of a path leads to an item.
        more = [(path[1:], how) for path, how in wanted if not isinstance(path, str) and len(path) > 1]
    if node.is_worker:
        more += [(("outputs", *path), how) for path, how in more if not isinstance(path, str)]
    return replace(node, wanted=tuple(dict.fromkeys([*node.wanted, *more])))


def newest_of(plan: CompiledPlan) -> dict[str, str]:
    """Returns which node stands for each that was superseded: old id -> newest id."""
    newest: dict[str, str] = {}
    for node in reversed(plan.nodes):
        if node.supersedes is not None:
            newest[node.supersedes] = newest.get(node.id, node.id)
    return newest


def _moved(node: CompiledNode, added: int, *, behind: int) -> CompiledNode:
    """Returns a node whose edges to what nobody wrote lead to where that is now."""
    if not any(number >= behind for number in node.dependencies):
        return node
    moved = tuple(number + added if number >= behind else number for number in node.dependencies)
    reads = tuple(number + added if number >= behind else number for number in node.reads)
    return replace(node, dependencies=moved, reads=reads)


def _waiting_for(node: CompiledNode, instead: Mapping[int, int]) -> CompiledNode:
    if instead.keys().isdisjoint(node.dependencies):
        return node
    return replace(node, dependencies=tuple(instead.get(number, number) for number in node.dependencies))
