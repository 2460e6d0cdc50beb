"""Pictures of graphs: as they are if they are small, else a few boxes that say what is in them."""

import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.interfaces.cli.drawing import mermaid, svg
from dagwright.interfaces.cli.folding import ARROWS, BOXES, is_folded, picture_of
from dagwright.protocol.documents import graph_document


def begun(*nodes: CompiledNode) -> Scheduler:
    scheduler = Scheduler(CompiledPlan(nodes=nodes), {})
    scheduler.begin(0.0)
    return scheduler


def node(number: int, *needs: int, tool: str = "t") -> CompiledNode:
    return CompiledNode(id=f"n{number}", tool=tool, dependencies=needs)


def test_small_graph_is_drawn_as_it_is() -> None:
    scheduler = begun(node(0), node(1, 0), node(2, 0, 1))
    assert picture_of(scheduler) == graph_document(scheduler)
    assert not is_folded(picture_of(scheduler))


def test_wide_graph_is_drawn_as_one_box_for_each_level_and_tool() -> None:
    wide = [node(number, 0, tool="even" if number % 2 else "odd") for number in range(1, 1_001)]
    scheduler = begun(node(0), *wide, node(1_001, *range(1, 1_001)))
    task = scheduler.next_task(0.0)
    assert task is not None
    scheduler.complete("n0", None, at=1.0)
    first, last = "500 nodes: n1 … n999", "500 nodes: n2 … n1000"
    box: dict[str, Any] = {"status": "ready", "states": "500 ready"}
    picture = picture_of(scheduler)
    assert picture == {
        "nodes": [
            {"id": "n0", "title": None, "status": "completed", "tool": "t"},
            {"id": first, "title": "even", "tool": "even", **box},
            {"id": last, "title": "odd", "tool": "odd", **box},
            {"id": "n1001", "title": None, "status": "pending", "tool": "t"},
        ],
        "edges": [["n0", first], ["n0", last], [first, "n1001"], [last, "n1001"]],
    }
    assert '["500 nodes: n1 … n999<br/>even<br/>500 ready"]:::ready' in mermaid(picture)


@pytest.mark.alone
def test_hundred_thousand_nodes_are_few_boxes_without_a_circle() -> None:
    nodes = [node(n, *{n - 1, n // 2, n // 3} - {n, -1}, tool=f"t{n % 7}") for n in range(100_000)]
    scheduler = begun(*nodes)
    began = time.process_time()
    picture = picture_of(scheduler)
    assert time.process_time() - began < 20, "it is quadratic"
    assert is_folded(picture)
    assert len(picture["nodes"]) <= BOXES
    assert len(picture["edges"]) <= ARROWS
    drawn = ET.fromstring(svg(picture))
    columns = {box.attrib["x"] for box in drawn.iter() if box.tag.endswith("}rect")}
    assert len(columns) == len(picture["nodes"])


def test_boxes_of_one_name_stay_two() -> None:
    scheduler = begun(*(node(number) for number in range(2 * BOXES)), CompiledNode(id="400 nodes: n0 … n399", tool="x"))
    names = [drawn["id"] for drawn in picture_of(scheduler)["nodes"]]
    assert names == ["400 nodes: n0 … n399", "400 nodes: n0 … n399 "]
