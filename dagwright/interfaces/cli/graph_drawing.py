"""Draw the graph of a run as Mermaid or SVG from its JSON form. The functions are pure.

IDs and titles are escaped, so that no text of a plan becomes markup.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagwright.interfaces.cli.output import one_line
from dagwright.plans.drawing import draw_run

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
"""State of a node -> fill and line colour. The state is also in the text of the node.

A completed node with an incomplete result is `partial`."""

_MAX_LINE_CHARACTERS = 60

Graph = Mapping[str, Any]
"""`graph --format json`: {"nodes": [{"node_id", "title", "status", "tool"}], "edges": [[from, to]]}.

In a large graph, a drawn node may represent several nodes of the run; then `states` has the number of nodes per state.
A node in a group has the name of the group in `group`."""


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart, with groups as subgraphs."""
    number_by_node_id = {node["node_id"]: number for number, node in enumerate(graph["nodes"])}
    lines = ["flowchart LR"]
    for group_number, (group, members) in enumerate(_group_nodes(graph["nodes"])):
        node_lines = [_mermaid_node(number_by_node_id[node["node_id"]], node) for node in members]
        if group is None:
            lines += node_lines
        else:
            lines += [
                f'  subgraph g{group_number}["{_mermaid_text(group)}"]',
                *(f"  {line}" for line in node_lines),
                "  end",
            ]
    lines += [f"  n{number_by_node_id[start]} --> n{number_by_node_id[end]}" for start, end in graph["edges"]]
    for state in sorted({_state(node) for node in graph["nodes"]}):
        fill, stroke = COLOURS[state]
        lines.append(f"  classDef {state} fill:{fill},stroke:{stroke},color:#18181b")
    return "\n".join(lines)


def _group_nodes(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | None, Sequence[Mapping[str, Any]]]]:
    """Yield each group at the position of its first node, and ungrouped nodes one by one."""
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
    label = "<br/>".join(_mermaid_text(text) for text in _label_lines(node))
    return f'  n{number}["{label}"]:::{_state(node)}'


def _state(node: Mapping[str, Any]) -> str:
    return "partial" if node.get("partial") else str(node["status"])


def _label_lines(node: Mapping[str, Any]) -> list[str]:
    """Return the lines of a node: name, title or executor, state."""
    name = one_line(node["node_id"], limit=_MAX_LINE_CHARACTERS)
    title = one_line(node["title"] or node["tool"] or node.get("executor", "plan"), limit=_MAX_LINE_CHARACTERS)
    return [name, title, node.get("states") or _state(node)]


def _mermaid_text(text: str) -> str:
    # All characters outside this set become numeric entities: quotes, brackets and backslashes would end a label, and
    # Mermaid would interpret markdown and HTML.
    return re.sub(r"[^\w .,:/()\u0080-\U0010ffff-]", lambda match: f"#{ord(match[0])};", text)


def svg(graph: Graph) -> str:
    """Return the graph as an SVG picture: a column for each level, roots on the left."""
    return draw_run(graph, status="").to_svg()
