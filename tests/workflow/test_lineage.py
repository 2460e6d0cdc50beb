"""Lineage of nodes and agents: files, URLs, model calls and tool calls, on the real server."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.agents import agent_declaration
from dagwright.settings import Settings
from dagwright.testing import HttpError, ModelServer, When, step, tool_call, tool_calls
from dagwright.tools import ToolRegistry, context, tool
from tests.support.agent_harness import card_of
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.runs import Document, checked_runs
from tests.workflow.building import ended_document

pytestmark = pytest.mark.server

_SECRET = "s3cr3t-value"


@tool(effects="read", secrets=["TOKEN"])
def look(location: str) -> str:
    """Record a read."""
    context().record_read(location)
    return location


@tool(effects="read", secrets=["TOKEN"])
def look_and_fail(location: str) -> str:
    """Record a read, and fail."""
    context().record_read(location)
    raise ValueError("nothing there")


def _settings(folder: Path, model: ModelServer | None = None) -> Settings:
    base_url = model.base_url if model is not None else None
    return Settings(state_dir=folder, model="small", openai_base_url=base_url)


def _lineage_fields(document: Document, node_id: str) -> dict[str, Any]:
    lineage: dict[str, Any] = document["nodes"][node_id]["lineage"]
    return {
        field: lineage[field]
        for field in ("agent", "model_calls", "tool_calls", "files", "urls", "omitted")
        if field in lineage
    }


async def test_lineage_of_a_node_has_its_files_and_urls_without_secrets(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_SECRET_TOKEN", _SECRET)
    url_with_secrets = "https://ann:pw@x.example/{{secret.TOKEN}}?q=tea&api_key=abc&of={{secret.TOKEN}}#there"
    child_plan = {"nodes": [call_node("inner", "look", location="in.txt")]}
    nodes = [
        call_node("file", "look", location="notes/tea.txt"),
        call_node("address", "look", location=url_with_secrets),
        call_node("failed", "look_and_fail", location="gone.txt"),
        tool_node("each", "look", for_each=["a", "b"], arguments={"location": "{{item}}.txt"}),
        {"id": "child", "plan": child_plan},
    ]
    registry = ToolRegistry.of(look, look_and_fail)
    async with checked_runs(client, registry, settings=_settings(tmp_path)) as runs:
        document = await ended_document(runs, await runs.start({"nodes": nodes}))
    redacted_url = "https://x.example/***?q=tea&api_key=***&of=***"
    assert {node_id: _lineage_fields(document, node_id) for node_id in document["nodes"]} == {
        **{
            "file": {"files": ["notes/tea.txt"]},
            "address": {"urls": [redacted_url]},
            "failed": {"files": ["gone.txt"]},
        },
        **{"each": {}, "each[0]": {"files": ["a.txt"]}},
        **{"each[1]": {"files": ["b.txt"]}, "child": {"files": ["in.txt"]}},
    }
    run_lineage = document["lineage"]
    expected = (["a.txt", "b.txt", "gone.txt", "in.txt", "notes/tea.txt"], [redacted_url])
    assert (sorted(run_lineage["files"]), run_lineage["urls"]) == expected


async def test_lineage_of_an_agent_has_its_model_calls_tool_calls_and_reads(client: Client, tmp_path: Path) -> None:
    card = card_of("llm", name="looker", prompt="You look.", tools=["look", "look_and_fail"])
    inline_agent = {"prompt": "You look too.", "tools": ["look"]}
    nodes = [
        {"id": "first", "agent": "looker", "objective": "Look."},
        {"id": "second", "agent": inline_agent, "objective": "Look again.", "depends_on": ["first"]},
        {"id": "third", "agent": "looker", "objective": "And again.", "depends_on": ["second"]},
    ]
    calls = tool_calls(("look", {"location": "https://x.example/tea"}), ("look_and_fail", {"location": "gone.txt"}))
    steps = (
        *(calls, "I looked.", tool_call("look", location="tea.txt"), "I looked too."),
        *(tool_call("look", location="more.txt"), step(HttpError(400), when=When(last="more.txt"))),
    )
    registry = ToolRegistry.of(look, look_and_fail)
    async with (
        ModelServer(*steps) as model,
        checked_runs(client, registry, settings=_settings(tmp_path, model)) as runs,
    ):
        handle = await runs.start({"nodes": nodes}, tools={**runs.tools, "agent.looker": agent_declaration(card)})
        document = await ended_document(runs, handle)
    assert _lineage_fields(document, "first") == {
        "agent": "looker",
        "model_calls": ["turn1", "turn2"],
        "tool_calls": [
            {"node_id": "turn1.1", "tool": "look", "status": "completed"},
            {"node_id": "turn1.2", "tool": "look_and_fail", "status": "failed"},
        ],
        "files": ["gone.txt"],
        "urls": ["https://x.example/tea"],
    }
    assert _lineage_fields(document, "second") == {
        "agent": "second (inline)",
        "model_calls": ["turn1", "turn2"],
        "tool_calls": [{"node_id": "turn1.1", "tool": "look", "status": "completed"}],
        "files": ["tea.txt"],
    }
    # The lineage of a failed agent has its reads too.
    third_node = document["nodes"]["third"]
    expected = ("failed", "the agent 'looker' failed")
    assert (third_node["status"], third_node["error"]["message"].partition(": ")[0]) == expected
    assert _lineage_fields(document, "third")["files"] == ["more.txt"]
