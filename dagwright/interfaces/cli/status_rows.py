"""Select the nodes that `status` lists: counts and failures of large maps, and the rest with `--all-items`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.interfaces.cli.output import one_line

ITEMS_LISTED = 20
"""A map with at most this many items is listed completely."""
_FAILED_STATES = ("failed", "blocked", "cancelled")
_OPEN_STATES = ("waiting", "running")
_MAX_ITEMS_OF_KIND = 20
"""Maximum number of failed items, and of open items, that are listed for a larger map."""


@dataclass(frozen=True, slots=True)
class StatusRows:
    """The nodes that `status` lists.

    Args:
        counts: a line for each map whose items are not all listed.
        names: nodes and items, in document order.
        omitted: number of items that are not listed.
    """

    counts: Sequence[str]
    names: Sequence[str]
    omitted: int


def status_rows(
    nodes: Mapping[str, Mapping[str, Any]], node_of: Callable[[str], str], *, lists_all_items: bool
) -> StatusRows:
    """Select the nodes that `status` lists.

    Args:
        nodes: nodes of the document.
        node_of: returns the ID of the node to which a node or item belongs.
        lists_all_items: list every item.
    """
    items_of: dict[str, list[str]] = {}
    for name in () if lists_all_items else nodes:
        if (node := node_of(name)) != name:
            items_of.setdefault(node, []).append(name)
    large_maps = {node: items for node, items in items_of.items() if len(items) > ITEMS_LISTED}
    hidden: set[str] = set()
    for items in large_maps.values():
        hidden |= {*items} - _listed_items(nodes, items)
    counts = [
        _counts_line(node, Counter(str(nodes[item]["status"]) for item in large_maps[node])) for node in large_maps
    ]
    return StatusRows(counts, [name for name in nodes if name not in hidden], len(hidden))


def _listed_items(nodes: Mapping[str, Mapping[str, Any]], items: Sequence[str]) -> set[str]:
    failed_items = [item for item in items if nodes[item]["status"] in _FAILED_STATES]
    open_items = [item for item in items if nodes[item]["status"] in _OPEN_STATES]
    return {*failed_items[:_MAX_ITEMS_OF_KIND], *open_items[:_MAX_ITEMS_OF_KIND]}


def _counts_line(node: str, counts: Mapping[str, int]) -> str:
    # Failures first: they matter most.
    states = sorted(counts, key=lambda state: (state not in _FAILED_STATES, state not in _OPEN_STATES, state))
    summary = ", ".join(f"{counts[state]:,} {state}" for state in states)
    return f"{one_line(node)}: {sum(counts.values()):,} items: {summary}"
