"""Fold a graph of many nodes into a diagram with few boxes, each for several nodes of one level and tool. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.run_state import offloaded_regions, region_counts
from dagwright.planning.rounds.rounds_documents import drawn_dependencies, groups_of

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

BOXES = 200
ARROWS = 450
"""Mermaid draws no graph with more than 500 edges."""
_LEVELS = 40
"""Levels of a diagram whose boxes are split by tool. With more levels, several levels are merged into one box."""

_WORST_FIRST = (
    NodeStatus.FAILED,
    NodeStatus.RUNNING,
    NodeStatus.WAITING,
    NodeStatus.READY,
    NodeStatus.BLOCKED,
    NodeStatus.CANCELLED,
    NodeStatus.PENDING,
    NodeStatus.COMPLETED,
    NodeStatus.SKIPPED,
    NodeStatus.SUPERSEDED,
)
"""Priority of the states for the colour of a box with several nodes."""


@dataclass(slots=True)
class _Box:
    """A box of the diagram.

    Args:
        name: ID of its node, or a label for several nodes.
        counts: number of nodes per state.
        needs: positions of the boxes with an edge to this box, distinct.
        is_partial: whether its node returned a partial result.
        group: subgraph of the box, such as the round of a question.
    """

    name: str
    title: str | None
    tool: str
    counts: Counter[NodeStatus]
    needs: Sequence[int] = ()
    is_partial: bool = False
    group: str | None = None

    def to_json(self, box_id: str) -> dict[str, Any]:
        status = next((status for status in _WORST_FIRST if self.counts[status]), NodeStatus.PENDING)
        drawn = {"node_id": box_id, "title": self.title, "status": status.value, "tool": self.tool or None}
        if self.counts.total() == 1:
            partial = {"partial": True} if self.is_partial else {}
            return {**drawn, **partial, **({"group": self.group} if self.group is not None else {})}
        states = [f"{count:,} {status.value}" for status, count in sorted(self.counts.items())]
        return {**drawn, "states": ", ".join(states)}


def diagram_of(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return a graph that can be drawn: that of `graph --format json`, or one whose boxes hold several nodes.

    A box with several nodes has the number of nodes per state in `states`. For a question in rounds, the edges show
    the dependencies of the worker tools and the order of the rounds.
    """
    boxes = _boxes_of(scheduler)
    if len(boxes) > BOXES or sum(len(box.needs) for box in boxes) > ARROWS:
        boxes = _folded(boxes)
    ids: dict[str, int] = {}
    for box in boxes:
        name = box.name
        while name in ids:
            name += " "
        ids[name] = len(ids)
    names = list(ids)
    return {
        "nodes": [box.to_json(name) for name, box in zip(names, boxes, strict=True)],
        "edges": [[names[needed], name] for name, box in zip(names, boxes, strict=True) for needed in box.needs],
    }


def is_folded(graph: Mapping[str, Any]) -> bool:
    """Return whether the boxes of a diagram hold several nodes."""
    return any("states" in node for node in graph["nodes"])


def _boxes_of(scheduler: "RunScheduler") -> list[_Box]:
    """Return a box for each loaded node of the run, and one for each offloaded region."""
    visible, groups = list(scheduler.state.visible_nodes()), groups_of(scheduler)
    regions = list(offloaded_regions(scheduler.plan))
    region_of = {
        member: len(visible) + position for position, (_, region) in enumerate(regions) for member in region.members
    }
    boxes = []
    for number, (node, record) in enumerate(visible):
        dependencies = drawn_dependencies(scheduler, node) if groups else scheduler.state.visible_dependencies(node)
        needs = [region_of[number]] if number in region_of else dependencies
        # The name of a worker tool is more informative than its arguments.
        title = f"{node.tool} · {node.title}" if node.is_worker and node.title else node.title
        states = Counter([displayed_status(record)])
        boxes.append(_Box(node.id, title, node.tool, states, needs, record.partial, groups.get(node.id)))
    for number, region in regions:
        counts = region_counts(scheduler.plan, scheduler.records, number)
        boxes.append(
            _Box(region.title or region.id, None, region.tool, counts, scheduler.state.visible_dependencies(region))
        )
    return boxes


def _folded(boxes: Sequence[_Box]) -> list[_Box]:
    """Merge the nodes of a level into one box per tool; if that is not enough, merge levels."""
    levels = levels_of([box.needs for box in boxes]) or [0] * len(boxes)
    depth = max(levels) + 1
    keys = [(level, box.tool) for level, box in zip(levels, boxes, strict=True)]
    if depth > _LEVELS or len(set(keys)) > BOXES:
        # Boxes must not overlap in levels, else their edges could form a cycle.
        keys = [(level * _LEVELS // max(depth, _LEVELS), "") for level in levels]
    groups: dict[tuple[int, str], list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    at = {position: number for number, group in enumerate(groups.values()) for position in group}
    return [_together(boxes, group, at) for group in groups.values()]


def _together(boxes: Sequence[_Box], places: Sequence[int], at: Mapping[int, int]) -> _Box:
    """Merge several boxes into one.

    Args:
        places: positions of the boxes.
        at: position of a box -> position of its merged box.
    """
    first, last = boxes[places[0]], boxes[places[-1]]
    needs = list(dict.fromkeys(at[needed] for position in places for needed in boxes[position].needs))
    external = [needed for needed in needs if needed != at[places[0]]]
    if len(places) == 1:
        return replace(first, needs=external, group=None)
    counts = sum((boxes[position].counts for position in places), Counter[NodeStatus]())
    tools = Counter(boxes[position].tool or "plan" for position in places)
    tool_names = ", ".join(name for name, _ in tools.most_common(3)) + (", …" if len(tools) > 3 else "")
    return _Box(f"{counts.total():,} nodes: {first.name} … {last.name}", tool_names, first.tool, counts, external)
