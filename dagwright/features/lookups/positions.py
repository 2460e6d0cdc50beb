"""Positions of lookups in a plan, so that a person can correct a lookup without a match or with several matches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.errors import pointer
from dagwright.core.expressions.references import BY_ID, LOOKUP_INPUT, Placeholder, Reference, ResultOf
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.lookups import KNOWN_AS, id_of_find_node, lookup_problems
from dagwright.core.model.states import Record


@dataclass(frozen=True, slots=True)
class LookupPosition:
    """Position of an argument that is looked up.

    Args:
        node_id: id of the node; in a sub-plan, prefixed with the ids of the outer nodes and slashes.
        argument: name of the argument.
        pointer: RFC 6901 pointer into the document as written, if it is known.
    """

    node_id: str
    argument: str
    pointer: str | None


def lookup_errors(plan: CompiledPlan, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the unresolved lookups as errors, each with its first position in the plan.

    Complexity: linear in the plan.
    """
    errors = list(lookup_problems(plan, records))
    if not errors:
        return []
    positions: dict[str, LookupPosition] = {}
    for find_id, position in _positions(plan):
        positions.setdefault(find_id, position)
    return [_with_position(problem, positions.get(find_id)) for find_id, problem in errors]


def _with_position(problem: dict[str, Any], position: LookupPosition | None) -> dict[str, Any]:
    if position is None:
        return {**problem, "pointer": None, "node_id": None}
    return {**problem, "pointer": position.pointer, "node_id": position.node_id, "argument": position.argument}


def _positions(plan: CompiledPlan) -> Iterator[tuple[str, LookupPosition]]:
    """Yield the id of the find node of each lookup, with a position at which the result is used."""
    nodes = {node.id: node for node in plan.nodes[plan.visible_count : plan.count_without_regions]}
    for number, node in enumerate(plan.nodes[: plan.visible_count]):
        for path, template in node.bindings:
            part = template[0]
            if (
                not isinstance(part, ResultOf)
                or (find_id := id_of_find_node(nodes.get(part.node_id), part.path)) is None
            ):
                continue
            argument = str(path[0])
            if node.sub_plan is not None and argument.startswith(LOOKUP_INPUT):
                position = _position_in_sub_plan(node.sub_plan, argument, prefix=f"{node.id}/")
            else:
                # Only the dialect `intents` has lookups. The document of a sub-plan is not available here.
                has_pointer = plan.dialect == "intents"
                group = _group_of(nodes[find_id].arguments.get(KNOWN_AS))
                intent_pointer = pointer("intents", number, group, argument) if has_pointer else None
                position = LookupPosition(node.id, argument, intent_pointer)
            if position is not None:
                yield find_id, position


def _group_of(known_as: str | None) -> str:
    if known_as is None:
        return "lookups"
    return "params" if known_as == BY_ID else "refs"


def _position_in_sub_plan(plan: CompiledPlan, input_name: str, *, prefix: str) -> LookupPosition | None:
    """Return the position at which a sub-plan reads an input, or `None`."""
    placeholder: Reference = Placeholder(input_name)
    for node in plan.nodes[: plan.visible_count]:
        for path, template in node.bindings:
            if template[0] != placeholder:
                continue
            if node.sub_plan is None or path[0] != input_name:
                return LookupPosition(f"{prefix}{node.id}", str(path[0]), None)
            if (position := _position_in_sub_plan(node.sub_plan, input_name, prefix=f"{prefix}{node.id}/")) is not None:
                return position
    return None
