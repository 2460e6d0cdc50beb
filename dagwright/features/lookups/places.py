"""Where in a plan a lookup stands: what a person needs to mend one that means nobody, or several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.references import BY_ID, LOOKUP_INPUT, Placeholder, Reference, ResultOf
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import pointer
from dagwright.core.model.lookups import KNOWN_AS, find_id_of, problems
from dagwright.core.model.states import Record


@dataclass(frozen=True, slots=True)
class LookupPlace:
    """An argument that is looked up.

    Args:
        node: id of the node; in a sub-plan behind those of the nodes around it, with slashes.
        argument: its name.
        pointer: RFC 6901 pointer into the document as written, if that is known.
    """

    node: str
    argument: str
    pointer: str | None


def lookup_errors(plan: CompiledPlan, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns the lookups that could not be bound as errors of a refusal: each with its first place in the plan.

    Complexity: linear in the plan.
    """
    found = list(problems(plan, records))
    if not found:
        return []
    places: dict[str, LookupPlace] = {}
    for find_id, place in _places(plan):
        places.setdefault(find_id, place)
    return [_placed(problem, places.get(find_id)) for find_id, problem in found]


def _placed(problem: dict[str, Any], place: LookupPlace | None) -> dict[str, Any]:
    if place is None:
        return {**problem, "pointer": None, "node": None}
    return {**problem, "pointer": place.pointer, "node": place.node, "argument": place.argument}


def _places(plan: CompiledPlan) -> Iterator[tuple[str, LookupPlace]]:
    """Yields the id of the node of a lookup, and where what it found stands."""
    nodes = {node.id: node for node in plan.nodes[plan.written_count : plan.step_count]}
    for number, node in enumerate(plan.nodes[: plan.written_count]):
        for path, template in node.holes:
            part = template[0]
            if not isinstance(part, ResultOf) or (find_id := find_id_of(nodes.get(part.node), part.path)) is None:
                continue
            argument = str(path[0])
            if node.sub_plan is not None and argument.startswith(LOOKUP_INPUT):
                place = _place_below(node.sub_plan, argument, above=f"{node.id}/")
            else:
                # Lookups are written in one dialect only, and a sub-plan's own document is not at hand here.
                is_known = plan.dialect == "intents"
                group = _group_of(nodes[find_id].arguments.get(KNOWN_AS))
                at = pointer("intents", number, group, argument) if is_known else None
                place = LookupPlace(node.id, argument, at)
            if place is not None:
                yield find_id, place


def _group_of(known_as: str | None) -> str:
    if known_as is None:
        return "lookups"
    return "params" if known_as == BY_ID else "refs"


def _place_below(plan: CompiledPlan, name: str, *, above: str) -> LookupPlace | None:
    """Returns where a sub-plan reads what was handed down to it under a name."""
    wanted: Reference = Placeholder(name)
    for node in plan.nodes[: plan.written_count]:
        for path, template in node.holes:
            if template[0] != wanted:
                continue
            if node.sub_plan is None or path[0] != name:
                return LookupPlace(f"{above}{node.id}", str(path[0]), None)
            if (place := _place_below(node.sub_plan, name, above=f"{above}{node.id}/")) is not None:
                return place
    return None
