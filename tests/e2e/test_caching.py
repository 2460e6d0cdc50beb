"""A second `run` command reuses a cached result, although each command starts and stops its own worker."""

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import WritePlan

pytestmark = pytest.mark.server

_TOOLS = """
from pathlib import Path
from dagwright.tools import tool

@tool(effects="read")
def repeat(text: str) -> str:
    with Path("calls.txt").open("a") as calls:
        calls.write(text + "\\n")
    return text * 2
"""


async def test_second_run_uses_the_cached_result_and_shows_its_source(
    commands: CommandLine, write_plan: WritePlan
) -> None:
    (commands.folder / "tools.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan({"id": "x", "tool": "repeat", "arguments": {"text": "a"}, "cache": {"ttl": "1h"}})
    first_result = await commands("run", plan, "--tools", "tools.py", "--id", "first-look", "--json")
    second_result = await commands("run", plan, "--tools", "tools.py", "--id", "second-look", "--json")
    assert [first_result.document["output"], second_result.document["output"]] == [{"x": "aa"}] * 2
    assert (commands.folder / "calls.txt").read_text() == "a\n"

    node_result = await commands("node", "second-look", "x")
    [line] = [line for line in node_result.stdout.splitlines() if line.startswith("from the cache: ")]
    assert line.endswith(" by x of the run first-look")
    assert "from the cache" not in (await commands("node", "first-look", "x")).stdout

    (commands.folder / "tools.py").write_text(_TOOLS.replace("text * 2", "text * 3"), encoding="utf-8")
    changed_tool_result = await commands("run", plan, "--tools", "tools.py", "--json")
    assert changed_tool_result.document["output"] == {"x": "aaa"}
