"""Select the nodes and items that `status` lists.

A map is a `for_each` node. For a large map, `status` lists the counts, the failed items and the open items. With
`--all-items`, `status` lists every item.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.interfaces.cli.output import one_line

_MAX_ITEMS_OF_SMALL_MAP = 20
"""`status` lists every item of a map with at most this many items."""
_FAILED_STATES = ("failed", "blocked", "cancelled")
_OPEN_STATES = ("waiting", "running")
_MAX_ITEMS_PER_KIND = 20
"""For a larger map, `status` lists at most this many failed items, and at most this many open items."""


@dataclass(frozen=True, slots=True)
class StatusRows:
    """The nodes that `status` lists.

    Args:
        count_lines: a line for each map whose items are not all listed.
        task_ids: IDs of nodes and items, in document order.
        omitted_count: number of items that are not listed.
    """

    count_lines: Sequence[str]
    task_ids: Sequence[str]
    omitted_count: int


def status_rows(
    tasks: Mapping[str, Mapping[str, Any]], node_id_of: Callable[[str], str], *, lists_all_items: bool
) -> StatusRows:
    """Select the nodes that `status` lists.

    Args:
        tasks: ID -> node or item, as in `nodes` of the run document.
        node_id_of: converts the ID of a node or item to the ID of the node.
        lists_all_items: list every item.
    """
    item_ids_of_map: dict[str, list[str]] = {}
    for task_id in () if lists_all_items else tasks:
        if (map_id := node_id_of(task_id)) != task_id:
            item_ids_of_map.setdefault(map_id, []).append(task_id)
    large_maps = {
        map_id: item_ids for map_id, item_ids in item_ids_of_map.items() if len(item_ids) > _MAX_ITEMS_OF_SMALL_MAP
    }
    omitted_ids: set[str] = set()
    for item_ids in large_maps.values():
        omitted_ids |= {*item_ids} - _listed_item_ids(tasks, item_ids)
    count_lines = [
        _counts_line(map_id, Counter(str(tasks[item_id]["status"]) for item_id in item_ids))
        for map_id, item_ids in large_maps.items()
    ]
    return StatusRows(count_lines, [task_id for task_id in tasks if task_id not in omitted_ids], len(omitted_ids))


def _listed_item_ids(tasks: Mapping[str, Mapping[str, Any]], item_ids: Sequence[str]) -> set[str]:
    failed_ids = [item_id for item_id in item_ids if tasks[item_id]["status"] in _FAILED_STATES]
    open_ids = [item_id for item_id in item_ids if tasks[item_id]["status"] in _OPEN_STATES]
    return {*failed_ids[:_MAX_ITEMS_PER_KIND], *open_ids[:_MAX_ITEMS_PER_KIND]}


def _counts_line(map_id: str, counts: Mapping[str, int]) -> str:
    # Failures come first, because they matter most.
    states = sorted(counts, key=lambda state: (state not in _FAILED_STATES, state not in _OPEN_STATES, state))
    summary = ", ".join(f"{counts[state]:,} {state}" for state in states)
    return f"{one_line(map_id)}: {sum(counts.values()):,} items: {summary}"
