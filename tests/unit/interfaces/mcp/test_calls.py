"""Calls of the MCP server: the ids of their runs, how long they wait, and the runs that they start."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest

from dagwright.client.run_lists import RunFilter, RunSummary
from dagwright.core.model.states import RunStatus
from dagwright.interfaces.mcp.run_starter import McpCallRefused, RunStarter
from dagwright.interfaces.mcp.tool_definitions import CHECK_PLAN, LIST_RUNS, RUN_PLAN, WAIT_S, tools_of
from dagwright.interfaces.mcp.tool_handlers import KEY_META, McpToolCall, ToolHandlers
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates


def _call(tool: str, meta: Any = None, **arguments: Any) -> McpToolCall:
    params = types.CallToolRequestParams(name=tool, arguments=arguments)
    described = types.Tool(name=tool, input_schema={"type": "object", "properties": {name: {} for name in arguments}})
    return McpToolCall(cast("Any", SimpleNamespace(meta=meta)), params, described)


def test_arguments_or_the_key_name_the_run_and_the_time_to_wait() -> None:
    key = {KEY_META: "key"}
    for tool in ("run_plan", "ask"):
        call = _call(tool, key, run_id="mine", wait_s=3)
        assert (call.run_id, call.wait_s) == ("mine", 3.0)
        assert (_call(tool, key).run_id, _call(tool).run_id) == ("key", None)
    # Inputs of a template mean nothing to the call.
    call = _call("ship", key, id="box-7", wait_s=3)
    assert (call.run_id, call.wait_s) == ("key", WAIT_S)
    assert [_call("ship", meta).run_id for meta in (None, {}, {KEY_META: 7})] == [None] * 3
    for tool in ("get_run", "answer_feedback"):
        assert (_call(tool, wait_s=0).wait_s, _call(tool).wait_s) == (0.0, WAIT_S)


class _Starter(RunStarter):
    async def template(self, *given: Any, **more: Any) -> Any:
        raise McpCallRefused("template", f"{given[0]} {given[1]} {more}")

    async def plan(self, arguments: Any, *, run: str | None, templates: Any = None) -> Any:
        raise McpCallRefused("plan", f"{arguments} {run}")


class _Runs:
    async def page_of_runs(self, *, limit: int, run_filter: RunFilter, after: None) -> tuple[list[RunSummary], None]:
        return [RunSummary(f"{run_filter.status} {limit}", RunStatus.RUNNING, None, None, None, 0, 1)], after


NOTHING = cast("Any", SimpleNamespace(meta=None))


async def _result(calls: ToolHandlers, tool: str, **arguments: Any) -> types.CallToolResult:
    params = types.CallToolRequestParams(name=tool, arguments=arguments)
    result = await calls.call(McpToolCall(NOTHING, params, calls.tools[tool]))
    assert isinstance(result, types.CallToolResult)
    return result


async def _called(folder: Path, tool: str, **arguments: Any) -> Any:
    toolset = load_toolset(Settings(state_dir=folder))
    plan = {"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}
    (folder / "slow.json").write_text(json.dumps(plan), encoding="utf-8")
    tools = tools_of(load_templates(folder, toolset.declarations()), toolset.declarations())
    starter = _Starter(cast("Any", _Runs()), NOTHING, toolset)
    calls = ToolHandlers(tools, {"slow": cast("Any", "SLOW")}, starter=starter, steering=NOTHING)
    return (await _result(calls, tool, **arguments)).structured_content


async def test_published_plan_is_started_by_name_with_an_id_of_its_own_and_without_waiting(tmp_path: Path) -> None:
    message = {"template": "slow", "inputs": {"a": 1}, "run_id": "mine", "wait_s": 0, "timeout": "2m"}
    by_name = await _called(tmp_path, RUN_PLAN, **message)
    assert by_name == {"status": "template", "message": "SLOW {'a': 1} {'run': 'mine', 'deadline': '2m'}"}
    assert (await _called(tmp_path, RUN_PLAN, plan={}))["status"] == "plan"
    for wrong in ({}, {"plan": {}, "template": "slow"}):
        refused = await _called(tmp_path, RUN_PLAN, **wrong)
        assert refused == {"status": "bad_usage", "message": "send either `plan` or `template`"}


async def test_runs_are_listed(tmp_path: Path) -> None:
    for message, asked in (({}, "None 20"), ({"status": "running", "limit": 3}, "running 3")):
        result = await _called(tmp_path, LIST_RUNS, **message)
        assert (result["status"], [each["run_id"] for each in result["runs"]]) == ("listed", [asked])
    assert (await _called(tmp_path, LIST_RUNS, status="runing"))["status"] == "bad_usage"


@pytest.mark.parametrize("name", [CHECK_PLAN, RUN_PLAN])
@pytest.mark.parametrize("depth", [98, 400])
async def test_arguments_nest_as_deep_as_plans_may(tmp_path: Path, name: str, depth: int) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path))
    starter = RunStarter(NOTHING, NOTHING, toolset)
    calls = ToolHandlers(tools_of({}, toolset.declarations()), {}, starter=starter, steering=NOTHING)
    deep: Any = {}
    for _ in range(depth):
        deep = [deep]
    result = await _result(calls, name, plan=deep)
    message = str(result.structured_content)
    assert (result.is_error, "nested more than 100 deep" in message) == (True, depth > 100)
