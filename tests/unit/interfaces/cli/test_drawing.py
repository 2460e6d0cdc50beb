"""Graphs as Mermaid and SVG: well-formed for any text in the plan, and large graphs folded to a few boxes."""

import re
import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from dagwright.client.graph_folding import MAX_BOXES, MAX_EDGES, graph_of_boxes, is_folded
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.interfaces.cli.graph_drawing import mermaid, svg
from dagwright.protocol.documents import graph_document
from tests.support.plan_building import started_scheduler

_SVG = "{http://www.w3.org/2000/svg}"
_HOSTILE_TEXT = '</text><script>alert("1")</script> `x` [y] #quot; end\n%% \x1b'


def _graph(*ids: str, edges: list[list[str]] | None = None) -> dict[str, object]:
    nodes = [{"node_id": node_id, "title": None, "status": "completed", "tool": "t"} for node_id in ids]
    return {"nodes": nodes, "edges": edges or []}


def test_mermaid_names_nodes_and_edges_by_node_number() -> None:
    assert mermaid(_graph("a", "b", edges=[["a", "b"]])).splitlines() == [
        "flowchart LR",
        '  n0["a<br/>t<br/>completed"]:::completed',
        '  n1["b<br/>t<br/>completed"]:::completed',
        "  n0 --> n1",
        "  classDef completed fill:#dcfce7,stroke:#15803d,color:#18181b",
    ]


def test_any_text_is_escaped() -> None:
    line = mermaid(_graph(_HOSTILE_TEXT)).splitlines()[1]
    label = re.fullmatch(r'  n0\["([^"<>`\[\]]*)<br/>t<br/>completed"\]:::completed', line)
    assert (label is not None, "\x1b" in line) == (True, False)
    root = ET.fromstring(svg(_graph(_HOSTILE_TEXT)))
    assert [element for element in root.iter() if element.tag.endswith("script")] == []
    titles = [title.text or "" for title in root.iter(f"{_SVG}title")]
    assert titles[-1].startswith('</text><script>alert("1")</script> `x`')


def box_positions(graph: Any) -> list[tuple[float, float]]:
    groups = ET.fromstring(svg(graph)).iter(f"{_SVG}g")
    transforms = [group.attrib["transform"] for group in groups if group.get("class", "").startswith("node ")]
    positions = [[float(number) for number in transform[len("translate(") : -1].split()] for transform in transforms]
    return [(x, y) for x, y in positions]


def frame_sides(graph: Any) -> list[tuple[float, float]]:
    """Return the left and right side of the frame of each group."""
    rectangles = ET.fromstring(svg(graph)).iter(f"{_SVG}rect")
    frames = [rectangle.attrib for rectangle in rectangles if rectangle.get("class") == "frame"]
    return [(float(frame["x"]), float(frame["x"]) + float(frame["width"])) for frame in frames]


def test_svg_puts_each_level_in_a_column() -> None:
    boxes = box_positions(_graph("a", "b", "c", "d", edges=[["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"]]))
    assert [x for x, _ in boxes] == [0.0, 176.0, 176.0, 352.0]
    assert boxes[0][1] == boxes[3][1] == (boxes[1][1] + boxes[2][1]) / 2


def _graph_with_groups() -> dict[str, object]:
    graph = _graph("a", "b", "c", "d", "e", edges=[["a", "b"], ["b", "d"], ["c", "e"]])
    for node, group in zip(graph["nodes"][1:4], ("one", "one", _HOSTILE_TEXT), strict=True):  # type: ignore[index] # a list
        node["group"] = group
    return graph


def test_mermaid_draws_groups_as_subgraphs_and_ungrouped_nodes_next_to_them() -> None:
    lines = mermaid(_graph_with_groups()).splitlines()
    expected = ["  n0", "  subgraph g1", "    n1", "    n2", "  end", "  subgraph g2", "    n3", "  end", "  n4"]
    assert [line.partition('"')[0].rstrip("[") for line in lines[1:10]] == expected
    assert re.fullmatch(r'  subgraph g2\["[^"<>`\[\]]*"\]', lines[6]) is not None
    assert lines[10:13] == ["  n0 --> n1", "  n1 --> n3", "  n2 --> n4"]


def test_svg_draws_each_group_in_separate_columns() -> None:
    root = ET.fromstring(svg(_graph_with_groups()))
    assert [element for element in root.iter() if element.tag.endswith("script")] == []
    first_frame, second_frame = frame_sides(_graph_with_groups())
    assert first_frame[1] < second_frame[0]
    # `c` depends on no node, but it is in the column of its group.
    columns = {x: number for number, x in enumerate(sorted({x for x, _ in box_positions(_graph_with_groups())}))}
    assert [columns[x] for x, _ in box_positions(_graph_with_groups())] == [0, 1, 1, 2, 3]


def test_partial_node_is_marked_and_an_empty_graph_is_valid() -> None:
    graph = _graph("a")
    graph["nodes"][0]["partial"] = True  # type: ignore[index] # a list
    assert '"a<br/>t<br/>partial"]:::partial' in mermaid(graph)
    assert 'class="node partial"' in svg(graph)
    assert mermaid(_graph()) == "flowchart LR"
    assert ET.fromstring(svg(_graph())).tag == f"{_SVG}svg"


def node(number: int, *dependencies: int, tool: str = "t") -> CompiledNode:
    return CompiledNode(id=f"n{number}", tool=tool, dependencies=dependencies)


def test_small_graph_is_not_folded_and_names_of_boxes_are_unique() -> None:
    scheduler = started_scheduler(CompiledPlan([node(0), node(1, 0), node(2, 0, 1)]))
    assert graph_of_boxes(scheduler) == graph_document(scheduler)
    assert not is_folded(graph_of_boxes(scheduler))
    node_with_name_of_a_box = CompiledNode(id="400 nodes: n0 … n399", tool="x")
    scheduler = started_scheduler(CompiledPlan([*map(node, range(2 * MAX_BOXES)), node_with_name_of_a_box]))
    names = [box["node_id"] for box in graph_of_boxes(scheduler)["nodes"]]
    assert names == ["400 nodes: n0 … n399", "400 nodes: n0 … n399 "]


def test_nodes_of_people_and_sub_plans_are_labelled_by_their_executor() -> None:
    nodes = [CompiledNode("check", kind="human"), CompiledNode("child", kind="plan", sub_plan=CompiledPlan([node(0)]))]
    lines = mermaid(graph_of_boxes(started_scheduler(CompiledPlan(nodes)))).splitlines()
    assert [line.partition("<br/>")[2].partition("<br/>")[0] for line in lines[1:3]] == ["person", "plan"]


def _box(id: str, title: str | None, status: str, tool: str = "t", **fields: Any) -> dict[str, Any]:
    return {"node_id": id, "title": title, "status": status, "tool": tool, **fields}


def test_wide_graph_has_one_box_for_each_level_and_tool() -> None:
    wide_nodes = [node(number, 0, tool="first_tool" if number % 2 else "second_tool") for number in range(1, 1_001)]
    scheduler = started_scheduler(CompiledPlan([node(0), *wide_nodes, node(1_001, *range(1, 1_001))]))
    assert scheduler.next_task(0.0) is not None
    scheduler.complete("n0", None, at=1.0)
    first_box, second_box = "500 nodes: n1 … n999", "500 nodes: n2 … n1000"
    folded_graph = graph_of_boxes(scheduler)
    nodes = [
        _box("n0", None, "completed"),
        _box(first_box, "first_tool", "ready", "first_tool", states="500 ready"),
        _box(second_box, "second_tool", "ready", "second_tool", states="500 ready"),
        _box("n1001", None, "pending"),
    ]
    edges = [["n0", first_box], ["n0", second_box], [first_box, "n1001"], [second_box, "n1001"]]
    assert folded_graph == {"nodes": nodes, "edges": edges}
    assert '["500 nodes: n1 … n999<br/>first_tool<br/>500 ready"]:::ready' in mermaid(folded_graph)


@pytest.mark.alone
def test_hundred_thousand_nodes_are_folded_to_few_boxes_without_a_cycle() -> None:
    nodes = [node(n, *{n - 1, n // 2, n // 3} - {n, -1}, tool=f"t{n % 7}") for n in range(100_000)]
    scheduler = started_scheduler(CompiledPlan(nodes))
    start_s = time.process_time()
    folded_graph = graph_of_boxes(scheduler)
    assert time.process_time() - start_s < 20, "folding takes quadratic time"
    assert is_folded(folded_graph)
    assert len(folded_graph["nodes"]) <= MAX_BOXES
    assert len(folded_graph["edges"]) <= MAX_EDGES
    assert len({x for x, _ in box_positions(folded_graph)}) == len(folded_graph["nodes"])
