"""The output of `explain` for an ended run, its nodes, and an unknown node."""

import asyncio

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import WritePlan, calculation

pytestmark = pytest.mark.server


async def test_explain_reports_how_nodes_ended_and_why(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("a", "{{PLACEHOLDER_count}} + 1"),
        calculation("bad", "1 / 0", depends_on=["a"]),
        calculation("after", "3", depends_on=["bad"]),
        calculation("off", "3", when="a.result > 5"),
        calculation("good", "{{a.result}} * 2"),
        {"id": "made", "tool": "json_query", "arguments": {"value": {"it's": [True, None, "é"]}, "path": "$.*"}},
        inputs={"count": {"type": "integer"}},
    )
    await commands("run", plan, "--input", "count=2", "--id", "explained", "--json")
    text_result, json_result, unknown_node_result, *node_results = await asyncio.gather(
        commands("explain", "explained"),
        commands("explain", "explained", "--json"),
        commands("explain", "explained", "--node", "goood", "--json"),
        *(commands("explain", "explained", "--node", name) for name in ("after", "off", "good", "made")),
    )
    after_result, off_result, good_result, made_result = node_results

    assert [each.code for each in (text_result, json_result, *node_results)] == [0] * 6
    assert unknown_node_result.code == 2
    lines = text_result.stdout.splitlines()
    assert lines[0] == "explained is completed with failures"
    assert lines[1].startswith("bad failed at ")
    assert lines[1].endswith("; 1 node is blocked by it")
    chain = [(each["node_id"], each["kind"], each["blocks"]) for each in json_result.document["chain"]]
    assert chain == [("bad", "failed", 1)]
    assert after_result.stdout.startswith("after is blocked by bad at ")
    assert ", which failed at " in after_result.stdout.splitlines()[0]
    assert "off was skipped at " in off_result.stdout
    assert "(its condition is false: a.result > 5)" in off_result.stdout
    good_lines = good_result.stdout.splitlines()
    assert good_lines[0].startswith("good completed at ")
    parts = [line for line in good_lines if line.startswith(("  from", "  result", "  input"))]
    assert parts == ["  from a", "  result: 6", "  input count: 2", "  result: 3"]
    assert made_result.stdout.splitlines()[-1] == """  result: [[true, null, "é"]]"""
    message = "the run 'explained' has no node 'goood'; did you mean 'good'?"
    assert unknown_node_result.document == {"code": "not_found", "message": message}
