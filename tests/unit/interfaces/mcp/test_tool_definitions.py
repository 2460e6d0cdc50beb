"""The tools of the MCP server as clients see them: schemas, names, published plans."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from structlog.testing import capture_logs

from dagwright.core.model.argument_checks import validator_of
from dagwright.interfaces.mcp import create_server
from dagwright.interfaces.mcp.task_extension import _NO_TASKS
from dagwright.interfaces.mcp.tool_definitions import ASK, RUN_PLAN, tools_of, without_reserved_names
from dagwright.plans.templates import TemplateFolder
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates

_PLAN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}'


def test_every_tool_has_a_description_and_schemas() -> None:
    tools = tools_of({}, load_toolset(Settings()).declarations())
    for tool in tools:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name)
        assert (bool(tool.title), bool(tool.description)) == (True, True)
        assert validator_of(tool.input_schema).is_valid({"none": 1}) is False
        assert validator_of(tool.output_schema or {}).is_valid({"status": "valid", "message": "m"})
    assert "calculator" in (tools[0].description or "")
    # Only tools that start runs create tasks.
    assert [tool.name for tool in tools if tool.name not in _NO_TASKS] == [RUN_PLAN, ASK]


def test_run_plan_starts_published_plans(tmp_path: Path) -> None:
    declared = load_toolset(Settings()).declarations()
    (without, *_), required = tools_of({}, declared), "plan"
    (tmp_path / "slow.json").write_text(_PLAN, encoding="utf-8")
    (with_some, *_) = tools_of(load_templates(tmp_path, declared), declared)
    assert (without.input_schema["required"], "template" in without.input_schema["properties"]) == ([required], False)
    assert with_some.input_schema["properties"]["template"]["enum"] == ["slow"]
    assert validator_of(with_some.input_schema).is_valid({"template": "slow", "wait_s": 0, "run_id": "mine"})
    assert not validator_of(with_some.input_schema).is_valid({"template": "fast"})


def test_template_named_like_a_tool_is_left_out_and_logged(tmp_path: Path) -> None:
    for name in ("ask", "plain"):
        (tmp_path / f"{name}.json").write_text(_PLAN, encoding="utf-8")
    with capture_logs() as logs:
        usable = without_reserved_names(load_templates(tmp_path, load_toolset(Settings()).declarations()))
    assert list(usable) == ["plain"]
    assert [line["problem"] for line in logs] == ["ask.json: the MCP server has a tool of that name; rename the file"]


def _plan(tool: str) -> str:
    return json.dumps({"plan": 1, "nodes": [{"id": "a", "tool": tool, "arguments": {"expression": "1"}}]})


async def test_tools_follow_changes_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "double.json").write_text(_plan("calculator"), encoding="utf-8")
    toolset = load_toolset(Settings(state_dir=tmp_path))
    nothing = cast("Any", SimpleNamespace(feedback=None))
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
