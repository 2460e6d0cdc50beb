"""Commands that read a run of thousands of pure nodes: bounded output, and access to every node."""

import asyncio

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import WritePlan, calculation

pytestmark = pytest.mark.server

MIDDLE_NODE_COUNT = 2_500


async def test_every_node_of_a_large_plan_can_be_read(commands: CommandLine, write_plan: WritePlan) -> None:
    middle_nodes = [
        calculation(f"n{number}", f"{{{{first.result}}}} + {number}") for number in range(MIDDLE_NODE_COUNT)
    ]
    plan = write_plan(
        calculation("first", "1"), *middle_nodes, calculation("bad", "{{n0.result}} + unknown"), name="large.json"
    )
    run_result = await commands("run", plan, "--id", "large", "--json")
    short_result, full_result, node_result, graph_result, diagram_result, text_result = await asyncio.gather(
        commands("result", "large", "--json"),
        commands("result", "large", "--full", "--json"),
        commands("node", "large", "n77"),
        commands("graph", "large", "--format", "json"),
        commands("graph", "large"),
        commands("result", "large"),
    )

    assert (run_result.code, run_result.document["status"]) == (1, "completed_with_failures")
    # All middle nodes except `n0` are final: `bad` depends on `n0`.
    note = (
        "the plan has no `output`, and the results of its 2,499 final nodes are too many for this document; "
        "read them from the nodes, with `dagwright result RUN --full --json` or `run.nodes()` in Python, "
        "or add an `output` to the plan"
    )
    assert run_result.document["notes"] == [{"code": "output_omitted", "node_id": None, "message": note}]
    assert short_result.document == run_result.document
    assert list(short_result.document["nodes"]) == ["bad"]
    assert f"note: {note}" in text_result.stdout.splitlines()
    assert [line for line in text_result.stdout.splitlines() if line.startswith("failed: bad: ")]

    document = full_result.document
    assert {name: node["result"] for name, node in document["nodes"].items() if node["status"] == "completed"} == {
        "first": 1,
        **{f"n{number}": number + 1 for number in range(MIDDLE_NODE_COUNT)},
    }
    assert document["output"] == {f"n{number}": number + 1 for number in range(1, MIDDLE_NODE_COUNT)}
    assert document["notes"] == []
    assert "nodes_ref" not in document

    lines = [line for line in node_result.stdout.splitlines() if not line.startswith(("started: ", "ended: "))]
    assert lines == ["n77: completed", "tool: calculator", "attempts: 1", "needs: first", "78"]

    assert {node["node_id"]: node["status"] for node in graph_result.document["nodes"]} == {
        "first": "completed",
        **{f"n{number}": "completed" for number in range(MIDDLE_NODE_COUNT)},
        "bad": "failed",
    }
    edges = [*(["first", f"n{number}"] for number in range(MIDDLE_NODE_COUNT)), ["n0", "bad"]]
    assert sorted(graph_result.document["edges"]) == sorted(edges)
    assert diagram_result.stdout.splitlines()[1].endswith('<br/>calculator<br/>2,501 completed, 1 failed"]:::failed')
    assert diagram_result.stderr.startswith(
        "2,502 nodes are drawn as 1 box; `dagwright graph large --format json` lists "
    )
