"""Runs that the MCP server starts for tool calls."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from dagwright.client.starts import RunStartOptions, StartRequest
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import CompiledPlan
from dagwright.interfaces.mcp.call_errors import McpCallRejected
from dagwright.interfaces.mcp.run_starter import RunStarter
from dagwright.interfaces.mcp.tool_definitions import _ask_tool
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import WorkerTools
from tests.support.templates import load_templates


class _Runs:
    def __init__(self) -> None:
        self.started_runs: list[tuple[CompiledPlan, RunStartOptions]] = []

    async def start(self, request: StartRequest) -> None:
        self.started_runs.append((request.plan, request.options))


def _starter(folder: Path) -> tuple[RunStarter, _Runs]:
    settings = Settings(state_dir=folder, model="small", openai_api_key=SecretStr("key"))
    toolset, runs = replace(load_toolset(settings), user_tools=WorkerTools().registry()), _Runs()
    return RunStarter(cast("Any", runs), cast("Any", SimpleNamespace()), toolset), runs


async def test_call_sets_rounds_and_timeouts(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    call_options = {"max_rounds": 4, "worker_timeout": "2m", "deadline": "20m"}
    assert set(call_options) < set(_ask_tool().input_schema["properties"])
    arguments = {"request": "Compare."}
    for name in ("max_rounds", "worker_timeout"):
        with pytest.raises(McpCallRejected, match=f"{name}: only the profile `rounds` supports this argument"):
            await starter.start_request({**arguments, name: call_options[name]}, run_id=None)
    with pytest.raises(McpCallRejected, match="worker_timeout: "):
        await starter.start_request({**arguments, "profile": "rounds", "worker_timeout": "soon"}, run_id=None)
    await starter.start_request({**arguments, "profile": "rounds", **call_options}, run_id=None)
    ((plan, options),) = runs.started_runs
    assert plan.extender is not None
    assert (plan.extender["max_rounds"], plan.extender["worker_timeout_s"]) == (4, 120)
    assert (plan.deadline_s, options.deadline_s) == (1_200, 1_200)


async def test_sub_plan_by_name_is_a_template_and_never_a_file(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    plan_text = json.dumps({"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]})
    for path in (tmp_path / "other.yaml", tmp_path / "plans" / "part.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(plan_text, encoding="utf-8")
    templates = load_templates(tmp_path / "plans", starter.toolset.declarations())

    def arguments_with_sub_plan(name: str) -> dict[str, Any]:
        return {"plan": {"plan": 1, "nodes": [{"id": "s", "plan": name}]}}

    await starter.start_plan(arguments_with_sub_plan("part"), run_id=None, templates=templates)
    ((compiled_plan, _),) = runs.started_runs
    assert compiled_plan.nodes[0].sub_plan is not None
    for known_templates in (templates, {}):
        with pytest.raises(PlanInvalid, match=r"write the sub-plan itself into the node \(plan: {nodes: \[…\]}\)"):
            starter.check(arguments_with_sub_plan(str(tmp_path / "other.yaml")), known_templates)


async def test_plan_of_a_client_cannot_waive_an_approval(tmp_path: Path) -> None:
    # `approval: never` and `effects: idempotent` would waive the approval of a call, so the start removes both fields.
    starter, runs = _starter(tmp_path)
    read_node = {"id": "n", "tool": "read_file", "arguments": {"path": "a"}, "approval": "never"}
    send_node = {"id": "h", "tool": "http_request", "arguments": {"url": "https://x.example/", "method": "POST"}}
    sub_plan = {"nodes": [{**send_node, "approval": "never", "effects": "idempotent"}]}
    await starter.start_plan({"plan": {"plan": 1, "nodes": [read_node, {"id": "s", "plan": sub_plan}]}}, run_id=None)
    ((compiled_plan, options),) = runs.started_runs
    inner_plan = compiled_plan.nodes[1].sub_plan
    assert inner_plan is not None
    assert [node.approval for node in (compiled_plan.nodes[0], inner_plan.nodes[0])] == ["policy", "policy"]
    assert inner_plan.nodes[0].effects is None
    # A person approves the plan as a whole, because `http_request` with the method POST changes something.
    assert options.needs_approval
