"""A result that a later command uses again: each `run` has a worker of its own, which ends with it."""

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


async def test_second_run_makes_no_call_and_node_reports_it(command_line: CommandLine, write_plan: Plans) -> None:
    (command_line.folder / "tools.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan({"id": "x", "tool": "look", "arguments": {"at": "a"}, "cache": {"ttl": "1h"}})
    first_result = await command_line("run", plan, "--tools", "tools.py", "--id", "first-look", "--json")
    second_result = await command_line("run", plan, "--tools", "tools.py", "--id", "second-look", "--json")
    assert [first_result.document["output"], second_result.document["output"]] == [{"x": "aa"}] * 2
    assert (command_line.folder / "calls.txt").read_text() == "a\n"

    result = await command_line("node", "second-look", "x")
    [line] = [line for line in result.stdout.splitlines() if line.startswith("from the cache: ")]
    assert line.endswith(" by x of the run first-look")
    assert "from the cache" not in (await command_line("node", "first-look", "x")).stdout

    (command_line.folder / "tools.py").write_text(_TOOLS.replace("at * 2", "at * 3"), encoding="utf-8")
    repaired = await command_line("run", plan, "--tools", "tools.py", "--json")
    assert repaired.document["output"] == {"x": "aaa"}
