"""Drawings of plans and runs: no overlaps, escaped text, and the shown states."""

from datetime import UTC, datetime
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.states import NodeStatus
from dagwright.plans.drawing import MAX_NODES, draw_run
from dagwright.plans.drawing_text import MARKS, shorten_line, text_columns
from dagwright.plans.graph_layout import Box, CyclicGraph, Layout, layout_graph
from dagwright.plans.human_requests import ask_human
from dagwright.plans.plan import Plan
from tests.support.shop_tools import articles, order, stock

HOSTILE_TEXT = '<img src=x onerror="alert(1)">&\'\u202e\x00\ud800]]>'
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    widths, heights = st.sampled_from([80.0, 120.0, 200.0]), st.sampled_from([30.0, 46.0])
    boxes = [Box(draw(widths), draw(heights)) for _ in range(count)]
    pairs = list(combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=30)) if pairs else []
    permutation = draw(st.permutations(range(count)))
    return boxes, [(permutation[source], permutation[target]) for source, target in edges]


@given(graphs())
def test_boxes_and_edges_do_not_overlap(graph: tuple[list[Box], list[tuple[int, int]]]) -> None:
    boxes, edges = graph
    layout = layout_graph(boxes, edges)
    assert [box.height for box in layout.boxes] == [box.height for box in boxes]
    for first, second in combinations(layout.boxes, 2):
        assert not _boxes_overlap(first, second)
    assert sorted((route.source, route.target) for route in layout.routes) == sorted(set(edges))
    for route in layout.routes:
        source, target = layout.boxes[route.source], layout.boxes[route.target]
        assert route.points[0] == (source.x + source.width, source.vertical_centre)
        assert route.points[-1] == (target.x, target.vertical_centre)
        _assert_route_is_clear(layout, route.points)
    assert layout_graph(boxes, edges) == layout
    assert all(0 <= box.x <= layout.width - box.width and box.y >= -1e-6 for box in layout.boxes)
    assert all(box.y + box.height <= layout.height + 1e-6 for box in layout.boxes)


def _boxes_overlap(first: Box, second: Box) -> bool:
    is_beside = first.x + first.width <= second.x or second.x + second.width <= first.x
    return not is_beside and min(first.y + first.height, second.y + second.height) - max(first.y, second.y) > 1e-6


def _assert_route_is_clear(layout: Layout, points: Any) -> None:
    """Assert that an edge curves only between layers and passes above or below the boxes of each layer."""
    for number, ((x, y), (next_x, next_y)) in enumerate(pairwise(points)):
        for box in layout.boxes:
            is_beside = next_x <= box.x + 1e-6 or box.x + box.width <= x + 1e-6
            if number % 2 == 0:
                assert is_beside
            else:
                assert y == next_y
                assert is_beside or not box.y - 1e-6 < y < box.y + box.height + 1e-6


def test_layout_avoids_edge_crossings() -> None:
    # The chains 0-3-4 and 1-2-5 have no common node. The list names an edge of each chain in turn.
    layout = layout_graph([Box(80, 40)] * 6, [(0, 3), (1, 2), (3, 4), (2, 5)])
    for chain in ((0, 3, 4), (1, 2, 5)):
        assert len({layout.boxes[number].y for number in chain}) == 1


def test_cycle_has_no_layout() -> None:
    with pytest.raises(CyclicGraph):
        layout_graph([Box(1, 1)] * 3, [(0, 1), (1, 2), (2, 1)])


def plan_with_all_node_kinds() -> Plan:
    plan = Plan(f"Refill {HOSTILE_TEXT[:30]}")
    all_articles = plan.add(articles, shop="north")
    hostile_text = HOSTILE_TEXT[:-4]
    stock_per_article = plan.add(
        stock, for_each=all_articles, item=all_articles.item["name"], id=hostile_text, title=hostile_text
    )
    plan.add(ask_human("Order?"), id="approve", needs=[stock_per_article])
    plan.add_agent("Write", prompt="x", needs=["approve"])
    long_id = "a node with an ID that is far too long to be shown in a box"
    plan.add(order, item="lamp", amount=1, id=long_id, needs=[stock_per_article])
    return plan


def texts_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_drawing_of_a_plan_is_well_formed_and_shows_every_node() -> None:
    drawing = plan_with_all_node_kinds().draw()
    assert texts_of(drawing.to_svg()) == [
        *("›", "articles", "articles"),
        *("›", "<img src=x onerr…1)\">&'��", "stock", "for each"),
        *("?", "approve", "person"),
        *("✦", "agent", "agent"),
        *("›", "a node with an I…in a box", "order"),
    ]
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(drawing.to_svg()).iter()}
    assert tags == {"svg", "title", "style", "rect", "g", "path", "text"}
    assert "<img" not in drawing.to_html()
    assert str(drawing).splitlines()[-1].endswith('order  after <img src=x onerror="alert(1)">&\'��')


GRAPH = {
    "nodes": [
        {"node_id": "a", "title": None, "status": "completed", "tool": "stock"},
        {"node_id": "b", "title": "Second", "status": "failed", "tool": "order"},
        {"node_id": "c", "title": None, "status": "running", "tool": "order"},
        {"node_id": "d", "title": None, "status": "pending", "tool": None},
    ],
    "edges": [["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"], ["unknown", "d"]],
}
NODE_DOCUMENTS: dict[str, dict[str, Any]] = {
    "a": {"attempts": 1, "started_at": "2026-01-01T00:00:00.000Z", "ended_at": "2026-01-01T00:00:03.200Z"},
    "b": {"attempts": 3, "started_at": None, "ended_at": None, "error": {"message": HOSTILE_TEXT}},
    "c": {"attempts": 0, "started_at": "2026-01-01T00:00:00.000Z", "ended_at": None},
    "c[x]": {"status": "completed"},
    "c[y]": {"status": "running"},
    "d": {"attempts": 0, "started_at": None, "ended_at": None},
}


def test_drawing_of_a_run_has_node_states_item_counts_and_a_table() -> None:
    now = datetime(2026, 1, 1, 0, 1, 5, tzinfo=UTC)
    drawing = draw_run(GRAPH, NODE_DOCUMENTS, title="Refill", status="running", now=now)
    assert str(drawing).splitlines() == [
        "Refill: 4 nodes, running",
        "  ✓ a  stock completed 3.2 s",
        "  ✗ b  order failed  after a",
        "  ● c  order for each item 1/2 running 1 min 5 s  after a",
        "  · d  pending  after b, c",
    ]
    html = drawing.to_html()
    assert "<td" in html
    assert "1 min 5 s" in html
    assert "<img" not in html
    assert "1/2" in texts_of(drawing.to_svg())
    assert {node.status for node in drawing.nodes} <= MARKS.keys()
    assert MARKS.keys() == set(NodeStatus)


@pytest.mark.parametrize("edges", [[["a", "c"], ["c", "d"]], [["c", "b"]]])
def test_each_group_has_one_label(edges: list[list[str]]) -> None:
    groups = {"a": "first", "b": "first", "c": "second"}
    nodes = [{"node_id": name, "status": "pending", "group": groups.get(name)} for name in "abcd"]
    svg = draw_run({"nodes": nodes, "edges": edges}, status="running").to_svg()
    assert [text for text in texts_of(svg) if text in groups.values()] == ["first", "second"]


def test_nodes_over_the_limit_of_a_drawing_are_omitted() -> None:
    nodes = [{"node_id": f"n{number}", "status": "pending"} for number in range(MAX_NODES + 5)]
    drawing = draw_run({"nodes": nodes, "edges": [["n0", f"n{MAX_NODES}"]]}, status="running")
    assert (len(drawing.nodes), drawing.omitted_count, drawing.edges) == (MAX_NODES, 5, [])
    assert str(drawing).endswith("… and 5 more nodes")


def test_drawing_is_saved_in_the_format_of_the_suffix(tmp_path: Path) -> None:
    drawing = plan_with_all_node_kinds().draw()
    for suffix, content_start in (("svg", "<svg"), ("html", "<!doctype html>"), ("txt", "Refill")):
        drawing.save(tmp_path / f"plan.{suffix}")
        assert (tmp_path / f"plan.{suffix}").read_text().startswith(content_start)
    with pytest.raises(ValueError, match=r"a drawing is saved as \.svg, \.html, \.txt"):
        drawing.save(tmp_path / "plan.png")


def test_invalid_plan_is_drawn_unless_it_has_a_cycle() -> None:
    plan = Plan.parse({"plan": 1, "nodes": [{"id": "a", "tool": "no such tool", "depends_on": ["b", "x"]}]})
    assert [node.id for node in plan.draw().nodes] == ["a"]
    nodes = [{"id": "a", "tool": "x", "depends_on": ["b"]}, {"id": "b", "tool": "x", "depends_on": ["a"]}]
    with pytest.raises(PlanInvalid, match="a → b → a"):
        Plan.parse({"plan": 1, "nodes": nodes}).draw()
    with pytest.raises(PlanInvalid, match="no nodes"):
        Plan().draw()


@given(st.text(), st.integers(5, 40))
def test_shortened_line_is_within_its_columns(text: str, columns: int) -> None:
    assert text_columns(shorten_line(text, columns)) <= columns
