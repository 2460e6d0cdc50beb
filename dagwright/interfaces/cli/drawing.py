"""The graph of a run as Mermaid or SVG, made from its JSON form alone. Pure.

Any text may stand in ids and titles, so all of it is escaped; nothing in a plan can become markup.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from dagwright.core.model.graph import dependents_of, levels_of
from dagwright.interfaces.cli.output import one_line

COLOURS: Mapping[str, tuple[str, str]] = {
    "pending": ("#f4f4f5", "#a1a1aa"),
    "ready": ("#ecfeff", "#0891b2"),
    "running": ("#cffafe", "#0e7490"),
    "waiting": ("#fef9c3", "#a16207"),
    "completed": ("#dcfce7", "#15803d"),
    "failed": ("#fee2e2", "#b91c1c"),
    "skipped": ("#f4f4f5", "#a1a1aa"),
    "blocked": ("#f3e8ff", "#7e22ce"),
    "cancelled": ("#fef3c7", "#b45309"),
    "superseded": ("#f4f4f5", "#a1a1aa"),
    "partial": ("#fef3c7", "#15803d"),
}
"""State of a node -> fill and line colour; the state stands in words in every node too.

What has completed with a part of what was wanted is `partial`."""

_LABEL_CHARACTERS = 60
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 200, 54, 70, 22, 20
_BOX_CHARACTERS = 27
"""Characters of 12 pixels that fit a box."""
_GROUP_HEAD = 20
"""For the names of groups, above all boxes."""
_SWEEPS = 4
"""Rounds of ordering each level by where its neighbours are; more change little."""

Graph = Mapping[str, Any]
"""`graph --format json`: {"nodes": [{"id", "title", "status", "tool"}], "edges": [[from, to]]}.

A node that stands for several says in `states` what has become of them, and one of a group in `group` its name."""


def mermaid(graph: Graph) -> str:
    """Returns the graph as a Mermaid flowchart, groups as its subgraphs."""
    numbers = {node["id"]: number for number, node in enumerate(graph["nodes"])}
    lines = ["flowchart LR"]
    for number, (group, members) in enumerate(_grouped(graph["nodes"])):
        drawn = [_mermaid_node(numbers[node["id"]], node) for node in members]
        if group is None:
            lines += drawn
        else:
            lines += [f'  subgraph g{number}["{_mermaid_text(group)}"]', *(f"  {line}" for line in drawn), "  end"]
    lines += [f"  n{numbers[start]} --> n{numbers[end]}" for start, end in graph["edges"]]
    for state in sorted({_state(node) for node in graph["nodes"]}):
        fill, line = COLOURS[state]
        lines.append(f"  classDef {state} fill:{fill},stroke:{line},color:#18181b")
    return "\n".join(lines)


def _grouped(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | None, Sequence[Mapping[str, Any]]]]:
    """Yields each group with its nodes where the first of them stands, and what is of no group one by one."""
    members: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        if group := node.get("group"):
            members.setdefault(group, []).append(node)
    for node in nodes:
        group = node.get("group")
        if group is None:
            yield None, [node]
        elif members[group][0] is node:
            yield group, members[group]


def _mermaid_node(number: int, node: Mapping[str, Any]) -> str:
    words = "<br/>".join(_mermaid_text(text) for text in _label(node))
    return f'  n{number}["{words}"]:::{_state(node)}'


def _state(node: Mapping[str, Any]) -> str:
    """Returns what a node is drawn as."""
    return "partial" if node.get("partial") else str(node["status"])


def _label(node: Mapping[str, Any]) -> list[str]:
    """Returns the lines of a node: what it is called, what runs it, how it is doing."""
    name = one_line(node["id"], limit=_LABEL_CHARACTERS)
    title = one_line(node["title"] or node["tool"] or "plan", limit=_LABEL_CHARACTERS)
    return [name, title, node.get("states") or _state(node)]


def _mermaid_text(text: str) -> str:
    # Entities by number: quotes, brackets and backslashes end a label, and markdown or HTML in it would be obeyed.
    return re.sub(r"[^\w .,:/()\u0080-\U0010ffff-]", lambda match: f"#{ord(match[0])};", text)


def svg(graph: Graph) -> str:
    """Returns the graph as an SVG picture: a column for each level, roots on the left."""
    nodes = graph["nodes"]
    numbers = {node["id"]: number for number, node in enumerate(nodes)}
    edges = [(numbers[start], numbers[end]) for start, end in graph["edges"]]
    columns = _columns(len(nodes), [*edges, *_edges_between_groups(nodes)])
    tallest = max(map(len, columns), default=0)
    groups = [(group, members) for group, members in _grouped(nodes) if group is not None]
    head = _GROUP_HEAD if groups else 0
    height = 2 * _MARGIN + head + tallest * (_BOX_HEIGHT + _GAP_Y) - (_GAP_Y if tallest else 0)
    width = 2 * _MARGIN + len(columns) * (_BOX_WIDTH + _GAP_X) - (_GAP_X if columns else 0)
    places = {}
    for column, members in enumerate(columns):
        top = (height + head - len(members) * (_BOX_HEIGHT + _GAP_Y) + _GAP_Y) / 2
        for row, number in enumerate(members):
            places[number] = (_MARGIN + column * (_BOX_WIDTH + _GAP_X), top + row * (_BOX_HEIGHT + _GAP_Y))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#71717a"/></marker></defs>',
        *(_svg_group(group, [places[numbers[node["id"]]] for node in members], height) for group, members in groups),
        *(_svg_edge(places[start], places[end]) for start, end in edges),
        *(_svg_node(node, places[number]) for number, node in enumerate(nodes)),
        "</svg>",
    ]
    return "\n".join(parts)


def _edges_between_groups(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yields edges that are not drawn, by which each group has columns of its own, the first group on the left."""
    if not any("group" in node for node in nodes):
        return
    numbers = {node["id"]: number for number, node in enumerate(nodes)}
    for (_, before), (_, members) in pairwise(_grouped(nodes)):
        yield from ((numbers[first["id"]], numbers[node["id"]]) for first in before for node in members)


def _svg_group(name: str, places: Sequence[tuple[float, float]], height: float) -> str:
    left = min(x for x, _ in places) - _GAP_X / 4
    width = max(x for x, _ in places) + _BOX_WIDTH + _GAP_X / 4 - left
    return (
        f'<g><rect x="{left}" y="{_MARGIN / 2}" width="{width}" height="{height - _MARGIN}" rx="8" fill="none" '
        'stroke="#a1a1aa" stroke-dasharray="4 4"/>'
        f'<text x="{left + 10}" y="{_MARGIN + 10}" fill="#52525b">'
        f"{escape(one_line(name, limit=_BOX_CHARACTERS))}</text></g>"
    )


def _columns(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Returns the nodes by level, each level ordered so that few edges cross."""
    dependencies: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        dependencies[end].append(start)
    levels = levels_of(dependencies) or [0] * count
    columns: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for number, level in enumerate(levels):
        columns[level].append(number)
    dependents = dependents_of(dependencies)
    row = {number: index for column in columns for index, number in enumerate(column)}
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        neighbours = dependencies if is_forward else dependents
        for column in columns if is_forward else reversed(columns):
            middle = {
                number: sum(row[other] for other in neighbours[number]) / len(neighbours[number])
                if neighbours[number]
                else row[number]
                for number in column
            }
            column.sort(key=middle.__getitem__)
            row.update({number: index for index, number in enumerate(column)})
    return columns


def _svg_node(node: Mapping[str, Any], place: tuple[float, float]) -> str:
    left, top = place
    fill, line = COLOURS[_state(node)]
    name, title, status = (one_line(text, limit=_BOX_CHARACTERS) for text in _label(node))
    tip = escape(f"{one_line(node['id'])}: {one_line(node['title'] or '')} ({_state(node)})")
    middle = left + _BOX_WIDTH / 2
    return (
        f'<g><title>{tip}</title><rect x="{left}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="{line}"/><g text-anchor="middle" fill="#18181b">'
        f'<text x="{middle}" y="{top + 17}" font-weight="600">{escape(name)}</text>'
        f'<text x="{middle}" y="{top + 32}">{escape(title)}</text>'
        f'<text x="{middle}" y="{top + 47}" font-size="10" fill="{line}">{escape(status)}</text></g></g>'
    )


def _svg_edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1 = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT / 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT / 2
    bend = max(_GAP_X, (x2 - x1) / 2)
    return (
        f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" fill="none" stroke="#71717a" '
        'marker-end="url(#arrow)"/>'
    )
