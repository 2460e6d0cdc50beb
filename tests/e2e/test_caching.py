"""A result that a later command uses again: each `run` has a worker of its own, which ends with it."""

from pathlib import Path
from typing import Any

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

@tool(effects="write")
def write(at: str) -> str:
    return at
"""


def _look(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "tool": "look", "arguments": {"at": "a"}, **fields}


async def test_second_run_makes_no_call_and_node_says_so(command_line: CommandLine, write_plan: Plans) -> None:
    (command_line.folder / "tools.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_look(cache={"ttl": "1h"}))
    first = await command_line("run", plan, "--tools", "tools.py", "--id", "first-look", "--json")
    second = await command_line("run", plan, "--tools", "tools.py", "--id", "second-look", "--json")
    assert [first.document["output"], second.document["output"]] == [{"x": "aa"}] * 2
    assert (command_line.folder / "calls.txt").read_text() == "a\n"

    shown = await command_line("node", "second-look", "x")
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("from the cache: ")]
    assert line.endswith(" by x of the run first-look")
    assert "from the cache" not in (await command_line("node", "first-look", "x")).stdout

    (command_line.folder / "tools.py").write_text(_TOOLS.replace("at * 2", "at * 3"), encoding="utf-8")
    mended = await command_line("run", plan, "--tools", "tools.py", "--json")
    assert mended.document["output"] == {"x": "aaa"}


async def test_cache_of_a_tool_that_changes_the_world_is_refused(command_line: CommandLine, write_plan: Plans) -> None:
    (command_line.folder / "tools.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_look(tool="write", cache={"ttl": "1h"}))
    end = await command_line("check", plan, "--tools", "tools.py", "--json")
    assert (end.code, end.document["errors"]) == (
        2,
        [
            {
                "code": "invalid_field",
                "pointer": "/nodes/0/cache",
                "node": "x",
                "message": "results of 'write' are never used again, because its effects are 'write': each node that "
                "calls it wants its change; only 'pure' and 'read' tools can have a cache",
                "hint": "leave 'cache' out",
            }
        ],
    )
    assert not Path(command_line.folder / "calls.txt").exists()
