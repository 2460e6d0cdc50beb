"""Graphs as Mermaid and SVG: well-formed whatever the plan says."""

import re
import xml.etree.ElementTree as ET

from dagwright.interfaces.cli.drawing import mermaid, svg

_SVG = "{http://www.w3.org/2000/svg}"
_HOSTILE = '</text><script>alert("1")</script> `x` [y] #quot; end\n%% \x1b'


def _graph(*ids: str, edges: list[list[str]] | None = None) -> dict[str, object]:
    nodes = [{"id": name, "title": None, "status": "completed", "tool": "t"} for name in ids]
    return {"nodes": nodes, "edges": edges or []}


def test_mermaid_names_nodes_by_number_and_edges_by_those() -> None:
    assert mermaid(_graph("a", "b", edges=[["a", "b"]])).splitlines() == [
        "flowchart LR",
        '  n0["a<br/>t<br/>completed"]:::completed',
        '  n1["b<br/>t<br/>completed"]:::completed',
        "  n0 --> n1",
        "  classDef completed fill:#dcfce7,stroke:#15803d,color:#18181b",
    ]


def test_mermaid_takes_any_text() -> None:
    line = mermaid(_graph(_HOSTILE)).splitlines()[1]
    label = re.fullmatch(r'  n0\["([^"<>`\[\]]*)<br/>t<br/>completed"\]:::completed', line)
    assert label is not None
    assert "\x1b" not in line


def test_svg_takes_any_text() -> None:
    root = ET.fromstring(svg(_graph(_HOSTILE)))
    assert [element for element in root.iter() if element.tag.endswith("script")] == []
    title = root.find(f".//{_SVG}title")
    assert title is not None
    assert title.text is not None
    assert title.text.startswith('</text><script>alert("1")</script> `x`')


def test_svg_puts_each_level_in_a_column_and_boxes_do_not_meet() -> None:
    graph = _graph("a", "b", "c", "d", edges=[["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"]])
    boxes = [(float(box.attrib["x"]), float(box.attrib["y"])) for box in ET.fromstring(svg(graph)).iter(f"{_SVG}rect")]
    assert [x for x, _ in boxes] == [20.0, 290.0, 290.0, 560.0]
    assert boxes[2][1] - boxes[1][1] >= 54
    assert boxes[0][1] == boxes[3][1] == (boxes[1][1] + boxes[2][1]) / 2


def _rounds() -> dict[str, object]:
    graph = _graph("a", "b", "c", "d", "e", edges=[["a", "b"], ["b", "d"], ["c", "e"]])
    for node, group in zip(graph["nodes"][1:4], ("one", "one", _HOSTILE), strict=True):  # type: ignore[index] # a list
        node["group"] = group
    return graph


def test_mermaid_draws_groups_as_subgraphs_and_the_rest_beside_them() -> None:
    lines = mermaid(_rounds()).splitlines()
    assert [line.partition('"')[0].rstrip("[") for line in lines[1:10]] == [
        "  n0", "  subgraph g1", "    n1", "    n2", "  end", "  subgraph g2", "    n3", "  end", "  n4",
    ]  # fmt: skip
    assert re.fullmatch(r'  subgraph g2\["[^"<>`\[\]]*"\]', lines[6]) is not None
    assert lines[10:13] == ["  n0 --> n1", "  n1 --> n3", "  n2 --> n4"]


def test_svg_gives_each_group_columns_of_its_own() -> None:
    root = ET.fromstring(svg(_rounds()))
    assert [element for element in root.iter() if element.tag.endswith("script")] == []
    boxes = list(root.iter(f"{_SVG}rect"))
    first, second = [(float(box.attrib["x"]), float(box.attrib["width"])) for box in boxes[:2]]
    assert first[0] + first[1] < second[0]
    # Of a group nothing has an edge to c, and all of it stands in one column all the same.
    assert [float(box.attrib["x"]) for box in boxes[2:]] == [20.0, 290.0, 290.0, 560.0, 830.0]


def test_partial_node_has_a_colour_of_its_own() -> None:
    graph = _graph("a")
    graph["nodes"][0]["partial"] = True  # type: ignore[index] # a list
    assert '"a<br/>t<br/>partial"]:::partial' in mermaid(graph)
    assert "#fef3c7" in svg(graph)


def test_empty_graph_is_a_picture_too() -> None:
    assert mermaid(_graph()) == "flowchart LR"
    assert ET.fromstring(svg(_graph())).tag == f"{_SVG}svg"
