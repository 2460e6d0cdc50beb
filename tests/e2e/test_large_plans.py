"""Commands that look at a run of thousands of pure nodes: bounded pictures, and every node to be had."""

import asyncio

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import Plans, calculation

pytestmark = pytest.mark.server

COUNT = 2_500


async def test_every_node_of_a_large_plan_can_be_looked_at(command_line: CommandLine, write_plan: Plans) -> None:
    wide = [calculation(f"n{number}", f"{{{{first.result}}}} + {number}") for number in range(COUNT)]
    plan = write_plan(calculation("first", "1"), *wide, calculation("bad", "1 / {{n0.result}} - x"), name="large.json")
    ran = await command_line("run", plan, "--id", "large", "--json")
    shown, full, node, graph, drawn, words = await asyncio.gather(
        command_line("result", "large", "--json"),
        command_line("result", "large", "--full", "--json"),
        command_line("node", "large", "n77"),
        command_line("graph", "large", "--format", "json"),
        command_line("graph", "large"),
        command_line("result", "large"),
    )

    assert (ran.code, ran.document["status"]) == (1, "completed_with_failures")
    note = (
        "the plan has no `output`, and the results of its 2,499 final nodes are too many for this document; "
        "read them from the nodes, with `dagwright result RUN --full --json` or `run.nodes()` in Python, "
        "or add an `output` to the plan"
    )
    assert ran.document["notes"] == [{"code": "output_omitted", "node_id": None, "message": note}]
    assert shown.document == ran.document
    assert list(shown.document["nodes"]) == ["bad"]
    assert f"note: {note}" in words.stdout.splitlines()
    assert [line for line in words.stdout.splitlines() if line.startswith("failed: bad: ")]

    document = full.document
    assert {name: node["result"] for name, node in document["nodes"].items() if node["status"] == "completed"} == {
        "first": 1,
        **{f"n{number}": number + 1 for number in range(COUNT)},
    }
    assert document["output"] == {f"n{number}": number + 1 for number in range(1, COUNT)}
    assert document["notes"] == []
    assert "nodes_ref" not in document

    lines = [line for line in node.stdout.splitlines() if not line.startswith(("started: ", "ended: "))]
    assert lines == ["n77: completed", "tool: calculator", "attempts: 1", "needs: first", "78"]

    assert {node["node_id"]: node["status"] for node in graph.document["nodes"]} == {
        "first": "completed",
        **{f"n{number}": "completed" for number in range(COUNT)},
        "bad": "failed",
    }
    edges = [*(["first", f"n{number}"] for number in range(COUNT)), ["n0", "bad"]]
    assert sorted(graph.document["edges"]) == sorted(edges)
    assert drawn.stdout.splitlines()[1].endswith('<br/>calculator<br/>2,501 completed, 1 failed"]:::failed')
    assert drawn.stderr.startswith("2,502 nodes are drawn as 1 box; `dagwright graph large --format json` lists ")
