"""Where in a plan a lookup stands: what a person needs to mend one that means nobody, or several."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.errors import pointer
from dagwright.plan.references import Lookup


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


def with_places(
    problems: Sequence[Mapping[str, Any]], lookups: Sequence[Lookup], plan: CompiledPlan
) -> list[dict[str, Any]]:
    """Returns problems of lookups as errors of a refusal: with the first place in the plan where each stands.

    Args:
        problems: each with the `index` of its lookup.
        lookups: in the order of those indices.

    Complexity: linear in the plan.
    """
    places: dict[Lookup, LookupPlace] = {}
    for lookup, place in _places(plan, above=""):
        places.setdefault(lookup, place)
    return [_placed(problem, lookups, places) for problem in problems]


def _placed(
    problem: Mapping[str, Any], lookups: Sequence[Lookup], places: Mapping[Lookup, LookupPlace]
) -> dict[str, Any]:
    index = problem.get("index")
    is_known = isinstance(index, int) and 0 <= index < len(lookups)
    place = places.get(lookups[index]) if isinstance(index, int) and is_known else None
    if place is None:
        return {**problem, "pointer": None, "node": None}
    return {**problem, "pointer": place.pointer, "node": place.node, "argument": place.argument}


def _places(plan: CompiledPlan, *, above: str) -> Iterator[tuple[Lookup, LookupPlace]]:
    for number, node in enumerate(plan.nodes[: plan.written_count]):
        node_id = f"{above}{node.id}"
        for path, template in node.holes:
            for part in template:
                if isinstance(part, Lookup):
                    argument = str(path[0])
                    # Lookups are written in one dialect only, and a sub-plan's own document is not at hand here.
                    is_known = plan.dialect == "intents" and not above
                    at = pointer("intents", number, "lookups", argument) if is_known else None
                    yield part, LookupPlace(node_id, argument, at)
        if node.sub_plan is not None:
            yield from _places(node.sub_plan, above=f"{node_id}/")
