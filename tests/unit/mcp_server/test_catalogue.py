"""The tools of the MCP server as clients see them: schemas that are schemas, names that are names."""

import re
from pathlib import Path

import pytest

from dagwright.mcp_server.catalogue import tools_of
from dagwright.plan.arguments import validator_of
from dagwright.settings import Settings
from dagwright.templates import TemplatesUnreadable, load_templates
from dagwright.toolset import load_toolset

_PLAN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}'


def test_every_tool_says_what_it_does_and_has_schemas_that_are_some() -> None:
    declared = load_toolset(Settings()).declarations()
    tools = tools_of({}, declared)
    for tool in tools:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name)
        assert tool.title
        assert tool.description
        assert validator_of(tool.input_schema).is_valid({}) is False
        assert validator_of(tool.output_schema or {}).is_valid({"status": "valid", "message": "m"})
    assert "calculator" in (tools[0].description or "")


def test_template_may_not_have_the_name_of_another_tool(tmp_path: Path) -> None:
    (tmp_path / "ask.json").write_text(_PLAN, encoding="utf-8")
    declared = load_toolset(Settings()).declarations()
    with pytest.raises(TemplatesUnreadable, match=r"^ask\.json: the MCP server has a tool of that name .*; rename"):
        tools_of(load_templates(tmp_path, declared), declared)
