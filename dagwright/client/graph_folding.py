"""Fold a large graph so that it can be drawn: a box of the folded graph represents several nodes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.run_state import offloaded_regions, region_counts
from dagwright.planning.rounds.rounds_documents import drawn_dependencies, group_by_node_id

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

MAX_BOXES = 200
MAX_EDGES = 450
"""Mermaid draws at most 500 edges."""
_MAX_LEVELS = 40
"""With more levels, a box represents several levels and is not split by tool."""

_STATUS_PRIORITY = (
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
"""Statuses in the order in which they decide the status of a box with several nodes."""


_EXECUTORS = {"human": "person"}
"""Kind of a node without a tool -> executor of the node; any other node is a sub-plan."""


@dataclass(slots=True)
class _Box:
    """A box of the drawn graph.

    Args:
        name: ID of its node, or a label for several nodes.
        executor: tool of the nodes, `person` or `plan`.
        counts: number of nodes per status.
        dependencies: positions of the boxes with an edge to this box, without duplicates.
        is_partial: whether its node returned a partial result.
        group: label of the subgraph that contains the box, such as `round 1`.
    """

    name: str
    title: str | None
    tool: str
    executor: str
    counts: Counter[NodeStatus]
    dependencies: Sequence[int] = ()
    is_partial: bool = False
    group: str | None = None

    def to_json(self, box_id: str) -> dict[str, Any]:
        status = next((status for status in _STATUS_PRIORITY if self.counts[status]), NodeStatus.PENDING)
        document = {"node_id": box_id, "title": self.title, "status": status.value, "tool": self.tool or None}
        document |= {} if self.tool else {"executor": self.executor}
        if self.counts.total() == 1:
            partial_field = {"partial": True} if self.is_partial else {}
            return {**document, **partial_field, **({"group": self.group} if self.group is not None else {})}
        states = [f"{count:,} {status.value}" for status, count in sorted(self.counts.items())]
        return {**document, "states": ", ".join(states)}


def graph_of_boxes(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return the graph of a run as boxes, in the format of `graph --format json`; fold a graph that is too large.

    A box without a tool has an `executor`: `person` or `plan`. A box that represents several nodes lists the number of
    nodes per status in `states`. For a run of the profile `rounds`, the edges show the dependencies of the worker tools
    and the order of the rounds.
    """
    boxes = _boxes_of(scheduler)
    if len(boxes) > MAX_BOXES or sum(len(box.dependencies) for box in boxes) > MAX_EDGES:
        boxes = _fold(boxes)
    ids: dict[str, int] = {}
    for box in boxes:
        name = box.name
        while name in ids:
            name += " "
        ids[name] = len(ids)
    names = list(ids)
    return {
        "nodes": [box.to_json(name) for name, box in zip(names, boxes, strict=True)],
        "edges": [
            [names[dependency], name] for name, box in zip(names, boxes, strict=True) for dependency in box.dependencies
        ],
    }


def is_folded(graph: Mapping[str, Any]) -> bool:
    """Return whether a box of a graph represents several nodes."""
    return any("states" in node for node in graph["nodes"])


def _boxes_of(scheduler: "RunScheduler") -> list[_Box]:
    """Return a box for each visible node of the run, followed by a box for each offloaded region."""
    visible_nodes, groups = list(scheduler.state.visible_nodes()), group_by_node_id(scheduler)
    regions = list(offloaded_regions(scheduler.plan))
    region_box_by_member = {
        member: len(visible_nodes) + position
        for position, (_, region) in enumerate(regions)
        for member in region.members
    }
    boxes = []
    for number, (node, record) in enumerate(visible_nodes):
        dependencies = drawn_dependencies(scheduler, node) if groups else scheduler.state.visible_dependencies(node)
        if number in region_box_by_member:
            dependencies = [region_box_by_member[number]]
        # The name of a worker tool is more informative than its arguments.
        title = f"{node.tool} · {node.title}" if node.is_worker and node.title else node.title
        counts = Counter([displayed_status(record)])
        executor = node.tool or _EXECUTORS.get(node.kind, "plan")
        group = groups.get(node.id)
        boxes.append(_Box(node.id, title, node.tool, executor, counts, dependencies, record.partial, group))
    for number, region in regions:
        counts = region_counts(scheduler.plan, scheduler.records, number)
        boxes.append(
            _Box(
                region.title or region.id,
                None,
                region.tool,
                region.tool or "plan",
                counts,
                scheduler.state.visible_dependencies(region),
            )
        )
    return boxes


def _fold(boxes: Sequence[_Box]) -> list[_Box]:
    """Merge the nodes of a level into one box per executor; if that is not enough, merge levels."""
    levels = levels_of([box.dependencies for box in boxes]) or [0] * len(boxes)
    depth = max(levels) + 1
    keys = [(level, box.executor) for level, box in zip(levels, boxes, strict=True)]
    if depth > _MAX_LEVELS or len(set(keys)) > MAX_BOXES:
        # Each level belongs to one box; otherwise the edges could form a cycle.
        keys = [(level * _MAX_LEVELS // max(depth, _MAX_LEVELS), "") for level in levels]
    groups: dict[tuple[int, str], list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    merged_positions = {position: number for number, group in enumerate(groups.values()) for position in group}
    return [_merge(boxes, group, merged_positions) for group in groups.values()]


def _merge(boxes: Sequence[_Box], positions: Sequence[int], merged_positions: Mapping[int, int]) -> _Box:
    """Merge boxes into one box.

    Args:
        positions: positions of the boxes to merge.
        merged_positions: position of a box -> position of its merged box.
    """
    first_box, last_box = boxes[positions[0]], boxes[positions[-1]]
    dependencies = dict.fromkeys(
        merged_positions[dependency] for position in positions for dependency in boxes[position].dependencies
    )
    external_dependencies = [number for number in dependencies if number != merged_positions[positions[0]]]
    if len(positions) == 1:
        return replace(first_box, dependencies=external_dependencies, group=None)
    counts = sum((boxes[position].counts for position in positions), Counter[NodeStatus]())
    executors = Counter(boxes[position].executor for position in positions)
    names = ", ".join(name for name, _ in executors.most_common(3)) + (", …" if len(executors) > 3 else "")
    return _Box(
        f"{counts.total():,} nodes: {first_box.name} … {last_box.name}",
        names,
        first_box.tool,
        first_box.executor,
        counts,
        external_dependencies,
    )
