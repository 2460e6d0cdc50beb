"""Extensions: nodes that are added to the plan of a run.

In the extended plan, the new nodes come after the visible nodes and before the hidden nodes (lookups and regions). The
definition of an existing node is never edited. A new node may replace an existing node, which it names in `supersedes`;
the dependents of the replaced node become dependents of the new node. A run stores its extensions and passes them
through continue-as-new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import (
    BINDINGS_KEY,
    Binding,
    CompiledNode,
    CompiledPlan,
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
        base: number of visible nodes of the plan that is extended.
        nodes: new nodes: first the visible nodes, then their lookups; the first node has the number `base`.
            Their dependencies are node numbers in the extended plan.
        tools: declarations of the tools of the new nodes.
        projections: id of an existing node -> projections of its result that the new nodes read.
        output: new output of the run, as JSON with null at every binding, and its bindings; `None` keeps the output.
        abandoned: ids of nodes that ended without a result and are not replaced.
    """

    base: int
    nodes: Sequence[CompiledNode]
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    projections: Mapping[str, Sequence[Projection]] = field(default_factory=dict)
    output: tuple[Any, Sequence[Binding]] | None = None
    abandoned: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the extension as JSON."""
        encoded: dict[str, Any] = {
            "base": self.base,
            "nodes": [node_to_json(node) for node in self.nodes],
            "tools": {name: tool_to_json(tool) for name, tool in self.tools.items()},
        }
        if self.projections:
            encoded["projections"] = {
                node_id: projections_to_json(projections) for node_id, projections in self.projections.items()
            }
        if self.output is not None:
            value, bindings = self.output
            encoded["output"] = [value, field_to_json(BINDINGS_KEY, bindings)]
        if self.abandoned:
            encoded["abandoned"] = list(self.abandoned)
        return encoded


def extension_from_json(encoded: Any) -> Extension:
    """Parse the JSON form of an extension.

    Raises:
        ValueError: `encoded` is not an extension.
    """
    try:
        return Extension(
            int(encoded["base"]),
            tuple(node_from_json(node) for node in encoded["nodes"]),
            {name: tool_from_json(name, tool) for name, tool in encoded["tools"].items()},
            {
                str(node_id): projections_from_json(projections)
                for node_id, projections in encoded.get("projections", {}).items()
            },
            _output_from_json(encoded.get("output")),
            tuple(str(node_id) for node_id in encoded.get("abandoned", ())),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not an extension of a plan: {error!r}") from None


def _output_from_json(encoded: Any) -> tuple[Any, Sequence[Binding]] | None:
    if encoded is None:
        return None
    value, bindings = encoded
    return value, field_from_json(BINDINGS_KEY, bindings)


def extend_plan(plan: CompiledPlan, extension: Extension) -> CompiledPlan:
    """Return the plan with the nodes of an extension, inserted before its hidden nodes.

    Raises:
        ValueError: the extension belongs to another plan, or its dependencies are invalid.
    """
    visible_count, added_count = plan.visible_count, len(extension.nodes)
    if extension.base != visible_count:
        raise ValueError(f"the extension is for a plan of {extension.base} nodes, but the plan has {visible_count}")
    numbers = {node.id: number for number, node in enumerate(plan.nodes)}
    _check_extension(extension, numbers, extended_count=len(plan.nodes) + added_count)
    replacements = {
        numbers[node.supersedes]: visible_count + index
        for index, node in enumerate(extension.nodes)
        if node.supersedes is not None
    }
    old_nodes = [
        _with_replacements(_shift_numbers(node, added_count, start=visible_count), replacements) for node in plan.nodes
    ]
    for node_id, projections in extension.projections.items():
        old_nodes[numbers[node_id]] = _with_projections(old_nodes[numbers[node_id]], projections)
    nodes = (*old_nodes[:visible_count], *extension.nodes, *old_nodes[visible_count:])
    tools = {**plan.tools, **extension.tools}
    output, bindings = extension.output or (plan.output, plan.output_bindings)
    return replace(plan, nodes=nodes, tools=tools, output=output, output_bindings=bindings)


def _check_extension(extension: Extension, numbers: Mapping[str, int], *, extended_count: int) -> None:
    base = extension.base
    end = base + len(extension.nodes)
    if any(node_id not in numbers for node_id in (*extension.projections, *extension.abandoned)):
        raise ValueError("`projections` or `abandoned` names an unknown node")
    for node in extension.nodes:
        if node.id in numbers:
            raise ValueError(f"the run already has a node {node.id!r}")
        if any(type(number) is not int or not 0 <= number < extended_count for number in node.dependencies):
            raise ValueError(f"the dependencies of {node.id!r} are not numbers of nodes")
        if node.supersedes is not None and node.supersedes not in numbers:
            raise ValueError(f"{node.id!r} supersedes an unknown node {node.supersedes!r}")
    if len({node.id for node in extension.nodes}) < len(extension.nodes):
        raise ValueError("duplicate node id among the new nodes")
    dependencies_among_new = [
        [number - base for number in node.dependencies if base <= number < end] for node in extension.nodes
    ]
    if (
        any(index in new_dependencies for index, new_dependencies in enumerate(dependencies_among_new))
        or levels_of(dependencies_among_new) is None
    ):
        raise ValueError("dependency cycle among the new nodes")


def _with_projections(node: CompiledNode, projections: Sequence[Projection]) -> CompiledNode:
    """Return a node whose call also returns these projections of a large result.

    A node with a sub-plan is unchanged, because the nodes of the sub-plan already make the projections of its result.
    """
    if node.sub_plan is not None:
        return node
    new_projections = list(projections)
    if node.for_each is not None:
        # The first step of a path selects an item.
        new_projections = [(path[1:], use) for path, use in projections if not isinstance(path, str) and len(path) > 1]
    if node.is_worker:
        new_projections += [(("outputs", *path), use) for path, use in new_projections if not isinstance(path, str)]
    return replace(node, projections=tuple(dict.fromkeys([*node.projections, *new_projections])))


def final_replacements(plan: CompiledPlan) -> dict[str, str]:
    """Return superseded id -> id of the node that finally replaced it."""
    replacements: dict[str, str] = {}
    for node in reversed(plan.nodes):
        if node.supersedes is not None:
            replacements[node.supersedes] = replacements.get(node.id, node.id)
    return replacements


def _shift_numbers(node: CompiledNode, added_count: int, *, start: int) -> CompiledNode:
    """Return a node with `added_count` added to the node numbers from `start` on."""
    if not any(number >= start for number in node.dependencies):
        return node
    dependencies = tuple(number + added_count if number >= start else number for number in node.dependencies)
    reads = tuple(number + added_count if number >= start else number for number in node.reads)
    return replace(node, dependencies=dependencies, reads=reads)


def _with_replacements(node: CompiledNode, replacements: Mapping[int, int]) -> CompiledNode:
    if replacements.keys().isdisjoint(node.dependencies):
        return node
    return replace(node, dependencies=tuple(replacements.get(number, number) for number in node.dependencies))
