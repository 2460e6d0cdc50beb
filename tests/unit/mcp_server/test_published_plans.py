"""The tools of published plans follow the files of their folder, without a restart."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from dagwright.interfaces.mcp import create_server
from dagwright.plans.templates import TemplateFolder
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset


def _plan(tool: str) -> str:
    return json.dumps({"plan": 1, "nodes": [{"id": "a", "tool": tool, "arguments": {"expression": "1"}}]})


async def test_tools_are_those_of_the_files_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "double.json").write_text(_plan("calculator"), encoding="utf-8")
    toolset = load_toolset(Settings(state_dir=tmp_path))
    nothing = cast("Any", SimpleNamespace(people=None))
    folder = TemplateFolder(tmp_path, toolset.declarations())
    server = create_server(runs=nothing, sessions=nothing, steering=nothing, toolset=toolset, templates=folder)
    async with Client(server) as client:
        before = [tool.name for tool in (await client.list_tools()).tools]
        # A file of the name of another tool must not take its place.
        for name, tool in (("triple", "calculator"), ("ask", "calculator"), ("broken", "calculater")):
            (tmp_path / f"{name}.json").write_text(_plan(tool), encoding="utf-8")
        (tmp_path / "double.json").unlink()
        after = [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match=r"cannot be used: broken\.json: unknown_tool"):
            await client.call_tool("broken", {})
    assert [*before[:-1], "triple"] == after
    assert before[-1] == "double"
