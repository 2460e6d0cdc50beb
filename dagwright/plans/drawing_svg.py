"""The SVG of a drawing. All texts are escaped with `escape_markup`."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from dagwright.core.model.states import NodeStatus
from dagwright.plans.drawing_text import MARKS, escape_markup, shorten_line, text_columns
from dagwright.plans.graph_layout import Box, CyclicGraph, Layout, Route, layout_graph

_BOX_HEIGHT = 46.0
_MIN_BOX_WIDTH, _MAX_BOX_WIDTH = 120.0, 220.0
_MARGIN = 16.0
_COLUMN_WIDTH = 8.2
"""Width of a text column at the size of node names, in a wide font. In wider fonts, the box cuts off the text."""
_PADDING = 40.0
_NAME_COLUMNS = 26
_WORK_COLUMNS = 32
_GROUP_HEAD_HEIGHT = 26.0
"""Height of the group names, above all boxes."""
_SHEET_OFFSET = 4.0
"""Offset of each of the two sheets drawn behind a map."""

_STYLE = """
.dagwright-svg{--ink:#1f2430;--soft:#667085;--line:#98a2b3;--box:#ffffff;--edge:#cbd2dc;--back:#ffffff;
--blue:#1769e0;--green:#1a7f4b;--red:#c9252d;--amber:#a15c00;--violet:#7a3fc2;
--blue-box:#eaf2fe;--green-box:#eaf7f0;--red-box:#fdeced;--amber-box:#fdf4e3;--violet-box:#f4edfd;--dim-box:#f5f6f8}
@media (prefers-color-scheme:dark){.dagwright-svg{--ink:#e6e9ef;--soft:#9aa4b5;--line:#6b7688;--box:#1c212b;
--edge:#3a4353;--back:#12161d;--blue:#6aa9ff;--green:#5fd39a;--red:#ff8085;--amber:#f0b35c;--violet:#c59bff;
--blue-box:#16263f;--green-box:#14291f;--red-box:#361a1e;--amber-box:#33270f;--violet-box:#281c3b;--dim-box:#191d25}}
.dagwright-svg text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;fill:var(--ink)}
.dagwright-svg .name{font-size:13px;font-weight:600}.dagwright-svg .work{font-size:11px;fill:var(--soft)}
.dagwright-svg .mark{font-size:13px;font-weight:700;text-anchor:middle;fill:var(--tone)}
.dagwright-svg .count{font-size:11px;font-weight:600;text-anchor:end;fill:var(--tone)}
.dagwright-svg rect{fill:var(--fill,var(--box));stroke:var(--tone);stroke-width:1.2}
.dagwright-svg .back{fill:var(--back);stroke:none}.dagwright-svg .flow{fill:none;stroke:var(--line);stroke-width:1.3}
.dagwright-svg .frame{fill:none;stroke:var(--line);stroke-dasharray:4 4}
.dagwright-svg .tip{fill:var(--line);stroke:none}.dagwright-svg .node{--tone:var(--edge);--mark:var(--soft)}
.dagwright-svg .running,.dagwright-svg .ready{--tone:var(--blue);--fill:var(--blue-box)}
.dagwright-svg .completed{--tone:var(--green);--fill:var(--green-box)}
.dagwright-svg .partial{--tone:var(--green);--fill:var(--amber-box)}
.dagwright-svg .failed{--tone:var(--red);--fill:var(--red-box)}
.dagwright-svg .waiting,.dagwright-svg .cancelled{--tone:var(--amber);--fill:var(--amber-box)}
.dagwright-svg .blocked{--tone:var(--violet);--fill:var(--violet-box)}
.dagwright-svg .skipped,.dagwright-svg .superseded,.dagwright-svg .pending{--tone:var(--line);--fill:var(--dim-box)}
.dagwright-svg .skipped rect,.dagwright-svg .superseded rect{stroke-dasharray:4 3}
.dagwright-svg .plain .mark,.dagwright-svg .plain .count{fill:var(--soft)}
""".strip()
_KIND_MARKS = {"tool": "›", "agent": "✦", "human": "?", "plan": "▤"}


class NodeToDraw(Protocol):
    """Content of the box of a node."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def executor(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> NodeStatus | None: ...
    @property
    def is_map(self) -> bool: ...
    @property
    def counts(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def is_partial(self) -> bool: ...
    @property
    def states(self) -> str: ...


def draw_svg(nodes: Sequence[NodeToDraw], edges: Sequence[tuple[int, int]], *, title: str, note: str = "") -> str:
    """Return a graph as an SVG document.

    Args:
        edges: pairs of positions in `nodes`.
        title: for screen readers.
        note: a line under the graph.

    Raises:
        CyclicGraph: the graph has a cycle.
    """
    groups = _groups(nodes)
    layout = _layout(nodes, edges, groups)
    head_height = _GROUP_HEAD_HEIGHT if groups else 0.0
    width = max(layout.width, _MIN_BOX_WIDTH) + 2 * _MARGIN + 2 * _SHEET_OFFSET
    height = layout.height + 2 * _MARGIN + 2 * _SHEET_OFFSET + head_height + (20 if note else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dagwright-svg" role="img" aria-label="{escape_markup(title)}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{escape_markup(title)}</title><style>{_STYLE}</style>",
        f'<rect class="back" width="{width:.0f}" height="{height:.0f}"/>',
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN + 2 * _SHEET_OFFSET + head_height:.0f})">',
        *(
            _frame(name, [layout.boxes[member] for member in members], layout.height)
            for name, members in groups.items()
        ),
        *map(_edge_path, layout.routes),
        *(_node(node, box) for node, box in zip(nodes, layout.boxes, strict=True)),
        "</g>",
        f'<text class="work" x="{_MARGIN:.0f}" y="{height - 8:.0f}">{escape_markup(note)}</text>' if note else "",
        "</svg>\n",
    ]
    return "".join(parts)


def _groups(nodes: Sequence[NodeToDraw]) -> dict[str, list[int]]:
    """Return the positions of the nodes of each group, in the order of their first nodes."""
    members: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        if node.group is not None:
            members.setdefault(node.group, []).append(position)
    return members


def _layout(
    nodes: Sequence[NodeToDraw], edges: Sequence[tuple[int, int]], groups: Mapping[str, Sequence[int]]
) -> Layout:
    sizes = [_size(node) for node in nodes]
    if groups:
        try:
            return layout_graph(sizes, edges, invisible_edges=_order_of_groups(nodes, groups))
        except CyclicGraph:
            # An edge leads back from a later group, so the groups cannot be drawn in a row.
            pass
    return layout_graph(sizes, edges)


def _order_of_groups(nodes: Sequence[NodeToDraw], groups: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """Return pairs of nodes (left, right) that keep groups, and nodes without a group, in separate columns."""
    groups_in_order = [
        groups[node.group] if node.group is not None else [position]
        for position, node in enumerate(nodes)
        if node.group is None or groups[node.group][0] == position
    ]
    return [
        (left, right)
        for left_group, right_group in pairwise(groups_in_order)
        for left in left_group
        for right in right_group
    ]


def _frame(name: str, boxes: Sequence[Box], height: float) -> str:
    """Return the frame around the columns of a group."""
    left, right = min(box.x for box in boxes), max(box.x + box.width for box in boxes)
    label = escape_markup(shorten_line(name, _NAME_COLUMNS))
    return (
        f'<rect class="frame" x="{left - 14:.1f}" y="{-_GROUP_HEAD_HEIGHT:.1f}" width="{right - left + 28:.1f}" '
        f'height="{height + _GROUP_HEAD_HEIGHT + 8:.1f}" rx="10"/>'
        f'<text class="work" x="{left - 4:.1f}" y="{-_GROUP_HEAD_HEIGHT + 14:.1f}">{label}</text>'
    )


def _size(node: NodeToDraw) -> Box:
    name_width = text_columns(shorten_line(node.title or node.id, _NAME_COLUMNS)) * _COLUMN_WIDTH
    work_width = text_columns(_executor_line(node)) * _COLUMN_WIDTH * 0.84
    count_width = (len(node.counts) + 1) * _COLUMN_WIDTH * node.is_map
    width = max(name_width, work_width + count_width) + _PADDING
    return Box(min(max(width, _MIN_BOX_WIDTH), _MAX_BOX_WIDTH + _PADDING), _BOX_HEIGHT)


def _executor_line(node: NodeToDraw) -> str:
    has_id = node.title is not None and node.id not in (node.title, node.executor)
    return shorten_line(
        " · ".join(filter(None, [node.id if has_id else "", node.executor, node.states])),
        _WORK_COLUMNS - (len(node.counts) + 2 if node.is_map else 0),
    )


def _edge_path(route: Route) -> str:
    """Return the path of an edge: straight through layers, curved between them, with an arrowhead."""
    (x, y), *other_points = route.points
    commands = [f"M{x:.1f} {y:.1f}"]
    for number, (next_x, next_y) in enumerate(other_points):
        end_x = next_x - 5 if number == len(other_points) - 1 else next_x
        if number % 2 or abs(next_y - y) < 0.5:
            commands.append(f"L{end_x:.1f} {next_y:.1f}")
        else:
            bend = (end_x - x) / 2
            commands.append(f"C{x + bend:.1f} {y:.1f} {end_x - bend:.1f} {next_y:.1f} {end_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    tip = f'<path class="tip" d="M{x:.1f} {y:.1f}l-7 -3.6v7.2z"/>'
    return f'<path class="flow" d="{"".join(commands)}"/>{tip}'


def _node(node: NodeToDraw, box: Box) -> str:
    status = "plain" if node.status is None else "partial" if node.is_partial else node.status.value
    mark = _KIND_MARKS.get(node.kind, "›") if node.status is None else MARKS[node.status][0]
    sheets = [
        f'<rect x="{shift:.0f}" y="{-shift:.0f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>'
        for shift in ((2 * _SHEET_OFFSET, _SHEET_OFFSET, 0.0) if node.is_map else (0.0,))
    ]
    name, executor = shorten_line(node.title or node.id, _NAME_COLUMNS), _executor_line(node)
    count = (node.counts or "for each") if node.is_map else ""
    tooltip = "\n".join(filter(None, [node.id, node.title or "", node.executor, _status_text(node), node.error or ""]))
    texts = [
        f'<text class="mark" x="16" y="{box.height / 2 + 4.5:.1f}">{mark}</text>',
        f'<text class="name" x="30" y="20">{escape_markup(name)}</text>',
        f'<text class="work" x="30" y="36">{escape_markup(executor)}</text>' if executor else "",
        f'<text class="count" x="{box.width - 10:.1f}" y="36">{escape_markup(count)}</text>' if count else "",
    ]
    return (
        f'<g class="node {status}" transform="translate({box.x:.1f} {box.y:.1f})">'
        f"<title>{_tooltip(tooltip)}</title>{''.join(sheets)}"
        f'<svg width="{box.width - 4:.1f}" height="{box.height:.1f}">{"".join(texts)}</svg></g>'
    )


def _status_text(node: NodeToDraw) -> str:
    return f"{node.status} (partial)" if node.is_partial else str(node.status or "")


def _tooltip(text: str) -> str:
    return "\n".join(escape_markup(shorten_line(line, 300)) for line in text.split("\n")[:6])
