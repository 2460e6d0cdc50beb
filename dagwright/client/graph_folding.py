"""A picture of few boxes for a graph of many nodes: boxes stand for nodes of one level and tool. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.worker_results import status_shown
from dagwright.core.scheduler.region_members import offloaded_regions
from dagwright.core.scheduler.run_end import counts_inside
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.rounds.documents import drawn_needs, groups_of

BOXES = 200
ARROWS = 450
"""Mermaid draws no graph of over 500."""
_LEVELS = 40
"""Of a picture whose boxes are split by tool; more levels than this are drawn together, some as one box."""

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
"""The state that gives a box of several nodes its colour."""


@dataclass(slots=True)
class _Box:
    """What stands in one box.

    Args:
        name: id of its node, or words for several.
        counts: states of its nodes.
        needs: positions of the boxes that lead to it, distinct.
        is_partial: whether its node has brought a part of what it was to bring.
        group: what it is drawn in with others, such as the round of a question.
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


def picture_of(scheduler: RunScheduler) -> dict[str, Any]:
    """Returns a graph that can be drawn: that of `graph --format json`, or one of boxes that hold several nodes.

    Such a box says in `states` how many of its nodes are in which state. Of a question in rounds the edges are those
    that people look for: what was wired, and how the rounds follow one another.
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
    """Tells whether boxes of a picture hold several nodes."""
    return any("states" in node for node in graph["nodes"])


def _boxes_of(scheduler: RunScheduler) -> list[_Box]:
    """Returns a box for each node that the run holds, and one for each region whose inside it does not hold."""
    held, groups = list(scheduler.state.shown()), groups_of(scheduler)
    regions = list(offloaded_regions(scheduler.plan))
    region_of = {member: len(held) + place for place, (_, region) in enumerate(regions) for member in region.members}
    boxes = []
    for number, (node, record) in enumerate(held):
        written = drawn_needs(scheduler, node) if groups else scheduler.state.needed_by(node)
        needs = [region_of[number]] if number in region_of else written
        # Of a worker its name says more than what it was asked for.
        title = f"{node.tool} · {node.title}" if node.is_worker and node.title else node.title
        states = Counter([status_shown(record)])
        boxes.append(_Box(node.id, title, node.tool, states, needs, record.partial, groups.get(node.id)))
    for number, region in regions:
        counts = counts_inside(scheduler.plan, scheduler.records, number)
        boxes.append(_Box(region.title or region.id, None, region.tool, counts, scheduler.state.needed_by(region)))
    return boxes


def _folded(boxes: Sequence[_Box]) -> list[_Box]:
    """Returns the boxes with those of a level drawn as one for each tool, or levels as one if that is not enough."""
    levels = levels_of([box.needs for box in boxes]) or [0] * len(boxes)
    depth = max(levels) + 1
    keys = [(level, box.tool) for level, box in zip(levels, boxes, strict=True)]
    if depth > _LEVELS or len(set(keys)) > BOXES:
        # Several levels in one box, but never two boxes for the same levels: arrows could run in a circle.
        keys = [(level * _LEVELS // max(depth, _LEVELS), "") for level in levels]
    groups: dict[tuple[int, str], list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    at = {place: number for number, group in enumerate(groups.values()) for place in group}
    return [_together(boxes, group, at) for group in groups.values()]


def _together(boxes: Sequence[_Box], places: Sequence[int], at: Mapping[int, int]) -> _Box:
    """Returns several boxes as one.

    Args:
        places: of the boxes.
        at: place of a box -> place of the one that it is drawn in.
    """
    first, last = boxes[places[0]], boxes[places[-1]]
    needs = list(dict.fromkeys(at[needed] for place in places for needed in boxes[place].needs))
    outside = [needed for needed in needs if needed != at[places[0]]]
    if len(places) == 1:
        return replace(first, needs=outside, group=None)
    counts = sum((boxes[place].counts for place in places), Counter[NodeStatus]())
    tools = Counter(boxes[place].tool or "plan" for place in places)
    told = ", ".join(name for name, _ in tools.most_common(3)) + (", …" if len(tools) > 3 else "")
    return _Box(f"{counts.total():,} nodes: {first.name} … {last.name}", told, first.tool, counts, outside)
