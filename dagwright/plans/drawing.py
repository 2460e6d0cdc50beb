"""Drawings of plans and runs: SVG with a table of the nodes in notebooks, otherwise a list as text.

IDs, titles and errors may come from models, so all texts are escaped, and control characters are replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_elapsed_time
from dagwright.core.model.tools import is_inline_agent
from dagwright.core.text import format_count
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.plans.drawing_svg import draw_svg
from dagwright.plans.drawing_text import MARKS, escape_markup, shorten_line, single_line

MAX_NODES = 1_000
"""Maximum number of nodes that are drawn; a larger graph is unreadable, and its layout would take seconds."""
_STATES = frozenset(map(str, NodeStatus))
_TABLE_COLUMNS = ("Node", "Tool", "State", "Duration", "Attempts")


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node of a drawing.

    Args:
        executor: its tool, agent or sub-plan, or `person`.
        kind: `tool`, `agent`, `human` or `plan`.
        is_map: whether it runs once for each item of a list.
        item_counts: state -> number of known items in this state.
        error: why it failed.
        group: name of the frame around the node.
        is_partial: whether it completed with a partial result.
        states: for a box with several nodes, a text with the number of nodes in each state.
    """

    id: str
    title: str | None = None
    executor: str = ""
    kind: str = "tool"
    status: NodeStatus | None = None
    is_map: bool = False
    item_counts: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 0
    duration_s: float | None = None
    error: str | None = None
    group: str | None = None
    is_partial: bool = False
    states: str = ""

    @property
    def counts(self) -> str:
        """Number of ended items / number of known items of a map, such as `12/20`; empty if no item is known."""
        total = sum(self.item_counts.values())
        ended_count = sum(count for status, count in self.item_counts.items() if NodeStatus(status).is_final)
        return f"{ended_count:,}/{total:,}" if total else ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of a plan or a run: notebooks display it, `print` lists its nodes, `save` writes a file.

    Args:
        edges: pairs of positions in `nodes`, from a node to its dependent.
        status: status of the run; `None` for a plan.
        omitted_count: number of nodes that are not drawn.
    """

    nodes: Sequence[DrawnNode]
    edges: Sequence[tuple[int, int]]
    title: str | None = None
    status: str | None = None
    omitted_count: int = 0

    @property
    def shows_run(self) -> bool:
        """Whether the drawing shows a run, with the states of its nodes."""
        return self.status is not None

    def to_svg(self) -> str:
        """Return the drawing as an SVG document, in light or dark colours as the reader prefers."""
        return draw_svg(self.nodes, self.edges, title=self._heading(), note=self._note())

    def to_html(self) -> str:
        """Return a part of an HTML page with the drawing. For a run, it also has a table of the nodes."""
        heading = f'<div style="font-weight:600;margin-bottom:4px">{escape_markup(self._heading())}</div>'
        picture = f'<div style="overflow:auto;max-height:70vh">{self.to_svg()}</div>'
        table = self._table() if self.shows_run else ""
        return f'<div style="font-family:system-ui,sans-serif">{heading}{picture}{table}</div>'

    def save(self, path: str | Path) -> None:
        """Write the drawing to a file.

        Args:
            path: the suffix `.svg`, `.html` or `.txt` selects the format.

        Raises:
            ValueError: the path has another suffix.
            OSError: the file is not writable.
        """
        file = Path(path)
        page = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        title = f"<title>{escape_markup(self._heading())}</title>"
        contents: dict[str, Callable[[], str]] = {
            ".svg": self.to_svg,
            ".html": lambda: f"{page}{title}<body>{self.to_html()}</body></html>\n",
            ".txt": lambda: f"{self}\n",
        }
        if file.suffix.lower() not in contents:
            raise ValueError(f"{file.name!r}: a drawing is saved as {', '.join(contents)}")
        file.write_text(contents[file.suffix.lower()](), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        """Return the nodes as lines of text, each with its state and its dependencies."""
        names = [shorten_line(node.id, 40) for node in self.nodes]
        dependency_names: dict[int, list[str]] = {}
        for source, target in self.edges:
            dependency_names.setdefault(target, []).append(names[source])
        width = max(map(len, names), default=0)
        lines = [self._heading()]
        for number, (node, name) in enumerate(zip(self.nodes, names, strict=True)):
            mark = MARKS[node.status][0] + " " if node.status is not None else ""
            dependencies_text = f"  after {', '.join(dependency_names[number])}" if number in dependency_names else ""
            lines.append(f"  {mark}{name:<{width}}  {' '.join(self._label_parts(node))}{dependencies_text}".rstrip())
        return "\n".join([*lines, *([f"  {note}"] if (note := self._note()) else [])])

    def _label_parts(self, node: DrawnNode) -> list[str]:
        parts = [single_line(node.executor), "for each item" if node.is_map else "", node.counts, node.states]
        if self.shows_run:
            parts += [str(node.status or ""), duration_text(node)]
        return [part for part in parts if part]

    def _heading(self) -> str:
        count = len(self.nodes) + self.omitted_count
        title = single_line(self.title or ("run" if self.shows_run else "plan"))
        return f"{title}: {format_count(count, 'node')}" + (f", {self.status}" if self.status else "")

    def _note(self) -> str:
        return f"… and {self.omitted_count:,} more nodes" if self.omitted_count else ""

    def _table(self) -> str:
        cell = "padding:2px 10px;text-align:left;vertical-align:top"
        head = "".join(f'<th scope="col" style="{cell}">{name}</th>' for name in _TABLE_COLUMNS)
        rows = "".join(self._row(node, cell) for node in self.nodes)
        return (
            '<table style="border-collapse:collapse;font-size:13px;margin-top:8px">'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def _row(self, node: DrawnNode, cell: str) -> str:
        name = f'<code title="{escape_markup(node.id)}">{escape_markup(shorten_line(node.id, 48))}</code>'
        state = f"{MARKS[node.status][0]} {node.status}" if node.status is not None else ""
        error = f'<div style="opacity:.8">{escape_markup(shorten_line(node.error, 200))}</div>' if node.error else ""
        counts = f" {node.counts}" if node.counts else ""
        attempts = f"{node.attempts:,}" if node.attempts else ""
        cells = (
            name,
            escape_markup(single_line(node.executor)),
            f"{state}{counts}{error}",
            duration_text(node),
            attempts,
        )
        return "<tr>" + "".join(f'<td style="{cell}">{content}</td>' for content in cells) + "</tr>"


def duration_text(node: DrawnNode) -> str:
    """Return the duration of a node, until now if it is running; empty if it has not started."""
    return format_elapsed_time(node.duration_s) if node.duration_s is not None else ""


def draw_plan(checked: CheckedPlan) -> Drawing:
    """Return the drawing of a checked plan.

    If the plan has a dependency cycle, the drawing raises `CyclicGraph` when it is rendered.
    """
    nodes = [
        DrawnNode(
            id=node.id,
            title=node.title,
            executor=node.tool or _agent_text(node.agent_name) or ("person" if node.human is not None else "plan"),
            kind=next((kind for kind in ("tool", "agent", "human", "plan") if getattr(node, kind) is not None), "tool"),
            is_map=node.for_each is not None,
        )
        for node in checked.nodes
    ]
    edges = [
        (dependency, number) for number, dependencies in enumerate(checked.dependencies) for dependency in dependencies
    ]
    return _limit_nodes(Drawing(nodes, edges, title=checked.plan.title))


def _agent_text(name: str | None) -> str:
    if name is None:
        return ""
    return "agent" if is_inline_agent(name) else f"agent {name}"


def draw_run(
    graph: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    title: str | None = None,
    status: str = "",
    now: datetime | None = None,
) -> Drawing:
    """Return the drawing of a run.

    Args:
        graph: nodes and edges with their states, in the format of `graph --format json`.
        nodes: ID of a node or an item -> its document, for durations, attempts, errors and items.
        now: current time, for the durations of running nodes.
    """
    documents = nodes or {}
    item_counts = _item_counts_by_map(documents)
    drawn_nodes = [
        _drawn_node(node, documents.get(node["node_id"], {}), item_counts.get(node["node_id"], {}), now)
        for node in graph["nodes"]
    ]
    positions = {node.id: number for number, node in enumerate(drawn_nodes)}
    edges = [
        (positions[source], positions[target])
        for source, target in graph["edges"]
        if source in positions and target in positions
    ]
    return _limit_nodes(Drawing(drawn_nodes, edges, title=title, status=status))


def _drawn_node(
    node: Mapping[str, Any], document: Mapping[str, Any], item_counts: Mapping[str, int], now: datetime | None
) -> DrawnNode:
    error = document.get("error") or {}
    return DrawnNode(
        id=node["node_id"],
        title=node.get("title"),
        executor=node.get("tool") or node.get("executor") or "",
        status=NodeStatus(node["status"]),
        is_map=bool(item_counts),
        item_counts=item_counts,
        attempts=document.get("attempts", 0),
        duration_s=_duration_s(document, now),
        error=error.get("message"),
        group=node.get("group"),
        is_partial=bool(node.get("partial")),
        states=node.get("states") or "",
    )


def _item_counts_by_map(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return ID of a map (a node with `for_each`) -> state -> number of items in this state.

    Args:
        documents: ID of a node or an item -> its document. The items of a map follow the map, or the document of the
            map contains their number.
    """
    counts_of_maps: dict[str, dict[str, int]] = {}
    map_id = ""
    for document_id, document in documents.items():
        if map_id and document_id.startswith(f"{map_id}[") and document_id.endswith("]"):
            counts = counts_of_maps.setdefault(map_id, {})
            counts[document["status"]] = counts.get(document["status"], 0) + 1
            continue
        map_id = document_id
        if isinstance(item_counts := document.get("items"), Mapping):
            counts_of_maps[map_id] = {
                status: count for status, count in item_counts.items() if status in _STATES and count
            }
    return counts_of_maps


def _duration_s(document: Mapping[str, Any], now: datetime | None) -> float | None:
    started_at, ended_at = document.get("started_at"), document.get("ended_at")
    if not isinstance(started_at, str):
        return None
    end_time = datetime.fromisoformat(ended_at) if isinstance(ended_at, str) else now
    return max(0.0, (end_time - datetime.fromisoformat(started_at)).total_seconds()) if end_time is not None else None


def _limit_nodes(drawing: Drawing) -> Drawing:
    if len(drawing.nodes) <= MAX_NODES:
        return drawing
    edges = [edge for edge in drawing.edges if max(edge) < MAX_NODES]
    omitted_count = len(drawing.nodes) - MAX_NODES
    return Drawing(drawing.nodes[:MAX_NODES], edges, drawing.title, drawing.status, omitted_count)
