"""How long the history of a run will be, as far as a plan tells: pure steps that run together are few calls."""

from collections.abc import Sequence
from typing import Any

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.graph import levels_of
from dagwright.core.validation.checked_plan import Checked

_OF_RUN = 5
_OF_CALL = 3
_OF_SUB_PLAN = 4
"""The start of a sub-plan is initiated and done; it reports its end by a signal, and closes."""
_OF_LEVEL = 3
"""A call is scheduled, started and completed; the calls of a level share a workflow task at best. Measured: a chain of
50 has 305 events, which this gives; a fan-out of 200 has 15 % more than it gives (docs/internals/temporal.md)."""
_NODES_OF_SLICE = 5_000
"""Pure steps of one call, on a machine of today."""


def expected_events(checked: Checked, held: CompiledPlan | None) -> int:
    """Returns about how many history events a run will have, if every call succeeds at once.

    A `for_each` over a result counts as no item: how many there are is not known before the run; `events_per_item` says
    what each of them adds.

    Args:
        held: the plan with its regions; `None` if it is not known which tools are pure.
    """
    items = {node.id: _items_of(node.for_each) for node in checked.nodes if node.for_each is not None}
    if held is None:
        calls = len(checked.nodes) - len(items) + sum(items.values())
        return _OF_RUN + _OF_CALL * calls + _OF_LEVEL * len(checked.levels)
    steps = [node for node in held.nodes if node.kind != "reported"]
    more_slices = sum(max(len(node.members), node.inner_count) // _NODES_OF_SLICE for node in steps)
    calls = sum(items.get(node.id, 1) for node in steps) + more_slices
    return _OF_RUN + _OF_CALL * calls + _OF_LEVEL * (_depth(held.nodes) + more_slices)


def events_per_item(checked: Checked) -> dict[str, int]:
    """Return node ID -> how many events each item adds, for the maps whose items are not known before the run."""
    maps = [node for node in checked.nodes if node.for_each is not None and not isinstance(node.for_each, list)]
    return {node.id: _OF_SUB_PLAN if node.plan is not None else _OF_CALL for node in maps}


def _items_of(for_each: Any) -> int:
    return len(for_each) if isinstance(for_each, list) else 0


def _depth(nodes: Sequence[CompiledNode]) -> int:
    """Returns the count of levels if each region is one step."""
    steps = [number for number, node in enumerate(nodes) if node.kind != "reported"]
    places = {number: place for place, number in enumerate(steps)}
    for number in steps:
        places |= dict.fromkeys(nodes[number].members, places[number])
    levels = levels_of([sorted({places[needed] for needed in nodes[number].dependencies}) for number in steps])
    return max(levels, default=-1) + 1 if levels is not None else len(steps)
