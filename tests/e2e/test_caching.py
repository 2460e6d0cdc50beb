"""A cached result that a later `run` reuses, although each `run` starts and stops a worker of its own."""

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import Plans

pytestmark = pytest.mark.server

_TOOLS = """
from pathlib import Path
from dagwright.tools import tool

@tool(effects="read")
def look(at: str) -> str:
    with Path("calls.txt").open("a") as calls:
        calls.write(at + "\\n")
    return at * 2
"""


async def test_second_run_uses_the_cached_result_and_node_reports_it(
    command_line: CommandLine, write_plan: Plans
) -> None:
    (command_line.folder / "tools.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan({"id": "x", "tool": "look", "arguments": {"at": "a"}, "cache": {"ttl": "1h"}})
    first_result = await command_line("run", plan, "--tools", "tools.py", "--id", "first-look", "--json")
    second_result = await command_line("run", plan, "--tools", "tools.py", "--id", "second-look", "--json")
    assert [first_result.document["output"], second_result.document["output"]] == [{"x": "aa"}] * 2
    assert (command_line.folder / "calls.txt").read_text() == "a\n"

    node_result = await command_line("node", "second-look", "x")
    [line] = [line for line in node_result.stdout.splitlines() if line.startswith("from the cache: ")]
    assert line.endswith(" by x of the run first-look")
    assert "from the cache" not in (await command_line("node", "first-look", "x")).stdout

    (command_line.folder / "tools.py").write_text(_TOOLS.replace("at * 2", "at * 3"), encoding="utf-8")
    changed_tool_result = await command_line("run", plan, "--tools", "tools.py", "--json")
    assert changed_tool_result.document["output"] == {"x": "aaa"}
