"""The tools of the MCP server as clients see them: schemas that are schemas, names that are names."""

import re
from pathlib import Path

from structlog.testing import capture_logs

from dagwright.core.model.argument_checks import validator_of
from dagwright.interfaces.mcp.catalogue import ASK, RUN_PLAN, tools_of, without_taken
from dagwright.interfaces.mcp.tasks import _NO_TASKS
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates

_PLAN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}'


def test_every_tool_says_what_it_does_and_has_schemas_that_are_some() -> None:
    declared = load_toolset(Settings()).declarations()
    tools = tools_of({}, declared)
    for tool in tools:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name)
        assert tool.title
        assert tool.description
        assert validator_of(tool.input_schema).is_valid({"none": 1}) is False
        assert validator_of(tool.output_schema or {}).is_valid({"status": "valid", "message": "m"})
    assert "calculator" in (tools[0].description or "")


def test_published_plan_can_be_started_without_waiting_by_the_tool_that_runs_plans(tmp_path: Path) -> None:
    declared = load_toolset(Settings()).declarations()
    (without, *_), required = tools_of({}, declared), "plan"
    (tmp_path / "slow.json").write_text(_PLAN, encoding="utf-8")
    (with_some, *_) = tools_of(load_templates(tmp_path, declared), declared)
    assert (without.input_schema["required"], "template" in without.input_schema["properties"]) == ([required], False)
    assert with_some.input_schema["properties"]["template"]["enum"] == ["slow"]
    assert validator_of(with_some.input_schema).is_valid({"template": "slow", "wait_s": 0, "id": "mine"})
    assert not validator_of(with_some.input_schema).is_valid({"template": "fast"})


def test_tools_that_start_runs_alone_make_tasks() -> None:
    tools = tools_of({}, load_toolset(Settings()).declarations())
    assert [tool.name for tool in tools if tool.name not in _NO_TASKS] == [RUN_PLAN, ASK]


def test_template_with_the_name_of_another_tool_is_left_out_and_logged(tmp_path: Path) -> None:
    for name in ("ask", "plain"):
        (tmp_path / f"{name}.json").write_text(_PLAN, encoding="utf-8")
    with capture_logs() as logs:
        usable = without_taken(load_templates(tmp_path, load_toolset(Settings()).declarations()))
    assert list(usable) == ["plain"]
    assert [line["problem"] for line in logs] == ["ask.json: the MCP server has a tool of that name; rename the file"]
