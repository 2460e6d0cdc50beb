"""The runs that calls of the MCP server start."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from dagwright.client.starts import RunOptions, StartRequest
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import PlanInvalid
from dagwright.interfaces.mcp.catalogue import _ask
from dagwright.interfaces.mcp.starting import CallRefused, Starter
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import Workers
from tests.support.templates import load_templates


class _Runs:
    """Keeps what would be started."""

    def __init__(self) -> None:
        self.started: list[tuple[CompiledPlan, RunOptions]] = []

    async def start(self, request: StartRequest) -> None:
        self.started.append((request.plan, request.options))


def _starter(folder: Path) -> tuple[Starter, _Runs]:
    settings = Settings(state_dir=folder, model="small", openai_api_key=SecretStr("key"))
    toolset, runs = replace(load_toolset(settings), own=Workers().registry()), _Runs()
    return Starter(cast("Any", runs), cast("Any", SimpleNamespace()), toolset), runs


async def test_question_has_the_rounds_and_the_times_that_its_call_says(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    said = {"max_rounds": 4, "worker_timeout": "2m", "timeout": "20m"}
    assert set(said) < set(_ask().input_schema["properties"])
    await starter.words({"request": "Compare.", "profile": "rounds", **said}, run=None)
    ((plan, terms),) = runs.started
    assert plan.pursuit is not None
    assert (plan.pursuit["max_rounds"], plan.pursuit["worker_timeout_s"]) == (4, 120)
    assert (plan.deadline_s, terms.deadline_s) == (1_200, 1_200)


@pytest.mark.parametrize("said", [{"max_rounds": 4}, {"worker_timeout": "2m"}])
async def test_rounds_are_refused_where_there_are_none(tmp_path: Path, said: dict[str, Any]) -> None:
    starter, runs = _starter(tmp_path)
    with pytest.raises(CallRefused, match=f"{next(iter(said))}: only the profile rounds has it"):
        await starter.words({"request": "Compare.", **said}, run=None)
    with pytest.raises(CallRefused, match="worker_timeout: "):
        await starter.words({"request": "Compare.", "profile": "rounds", "worker_timeout": "soon"}, run=None)
    assert runs.started == []


async def test_sub_plan_by_name_is_a_template_and_never_a_file(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    inner = {"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}
    (tmp_path / "other.yaml").write_text(json.dumps(inner), encoding="utf-8")
    published = tmp_path / "plans"
    published.mkdir()
    (published / "region.json").write_text(json.dumps(inner), encoding="utf-8")
    templates = load_templates(published, starter.toolset.declarations())
    plan = {"plan": 1, "nodes": [{"id": "s", "plan": "region"}]}
    await starter.plan({"plan": plan}, run=None, templates=templates)
    ((compiled, _),) = runs.started
    assert compiled.nodes[0].sub_plan is not None
    for given in (templates, {}):
        with pytest.raises(PlanInvalid, match=r"write the sub-plan itself into the node \(plan: {nodes: \[…\]}\)"):
            starter.checked({"plan": {**plan, "nodes": [{"id": "s", "plan": str(tmp_path / "other.yaml")}]}}, given)


async def test_plan_of_a_client_cannot_let_itself_off_an_approval(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    node = {"id": "n", "tool": "read_file", "arguments": {"path": "a"}, "approval": "never"}
    send = {
        **{"id": "h", "tool": "http_request", "approval": "never", "effects": "idempotent"},
        "arguments": {"url": "https://x.example/", "method": "POST"},
    }
    await starter.plan({"plan": {"plan": 1, "nodes": [node, {"id": "s", "plan": {"nodes": [send]}}]}}, run=None)
    ((compiled, terms),) = runs.started
    inner = compiled.nodes[1].sub_plan
    assert inner is not None
    assert [each.approval for each in (compiled.nodes[0], inner.nodes[0])] == ["policy", "policy"]
    assert inner.nodes[0].effects is None
    assert terms.needs_approval
