"""`explain`: its output for an ended run, for its nodes, and for unknown ids."""

import asyncio

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import Plans, calculation

pytestmark = pytest.mark.server


async def test_why_reports_ends_and_their_causes(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("a", "{{PLACEHOLDER_count}} + 1"),
        calculation("bad", "1 / 0", depends_on=["a"]),
        calculation("after", "3", depends_on=["bad"]),
        calculation("off", "3", when="a.result > 5"),
        calculation("good", "{{a.result}} * 2"),
        {"id": "made", "tool": "json_query", "arguments": {"value": {"it's": [True, None, "é"]}, "path": "$.*"}},
        inputs={"count": {"type": "integer"}},
    )
    await command_line("run", plan, "--input", "count=2", "--id", "asked-why", "--json")
    whole, document, after, off, good, made, unknown = await asyncio.gather(
        command_line("explain", "asked-why"),
        command_line("explain", "asked-why", "--json"),
        command_line("explain", "asked-why", "--node", "after"),
        command_line("explain", "asked-why", "--node", "off"),
        command_line("explain", "asked-why", "--node", "good"),
        command_line("explain", "asked-why", "--node", "made"),
        command_line("explain", "asked-why", "--node", "goood", "--json"),
    )

    assert [end.code for end in (whole, document, after, off, good, unknown)] == [0, 0, 0, 0, 0, 2]
    lines = whole.stdout.splitlines()
    assert lines[0] == "asked-why is completed with failures"
    assert lines[1].startswith("bad failed at ")
    assert lines[1].endswith("; 1 node is blocked by it")
    chain = [(each["node_id"], each["kind"], each["blocks"]) for each in document.document["chain"]]
    assert chain == [("bad", "failed", 1)]
    assert after.stdout.startswith("after is blocked by bad at ")
    assert ", which failed at " in after.stdout.splitlines()[0]
    assert "off was skipped at " in off.stdout
    assert "(its condition is false: a.result > 5)" in off.stdout
    shown = good.stdout.splitlines()
    assert shown[0].startswith("good completed at ")
    parts = [line for line in shown if line.startswith(("  from", "  result", "  input"))]
    assert parts == ["  from a", "  result: 6", "  input count: 2", "  result: 3"]
    assert made.stdout.splitlines()[-1] == """  result: [[true, null, "é"]]"""
    message = "the run 'asked-why' has no node 'goood'; did you mean 'good'?"
    assert unknown.document == {"status": "not_found", "message": message}
