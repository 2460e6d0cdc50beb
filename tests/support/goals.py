"""Requests in words for tests: the initial plan of their runs, and the messages to models."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import GOAL_KIND
from dagwright.history.run_reader import RunReader
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.protocol.compact_documents import compact_value
from dagwright.testing import ModelServer, ReceivedCall
from tests.support.agents import agent_runs
from tests.support.runs import Document, Handle, Runs, bare, document_of


@asynccontextmanager
async def scripted_runs(
    client: Client, folder: Path, *script: Any, **served: Any
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve runs with a scripted model; `served` are arguments of `agent_runs`."""
    async with ModelServer(*script) as server, agent_runs(client, server, folder, **served) as runs:
        yield server, runs


def goal(runs: Runs, words: str, *tools: str, **asked: Any) -> CompiledPlan:
    plan, _ = prepare_goal(words, {name: runs.tools[name] for name in tools}, PlanningOptions(**asked))
    assert plan.extender is not None
    assert plan.extender["kind"] == GOAL_KIND
    return plan


async def checked_document(runs: Runs, handle: Handle) -> Document:
    """Return the bare document of a run, after a check that its history alone yields the same.

    For a failed run, the last event of its history has a separate error.
    """
    written_by_run = bare(await document_of(handle))
    view = await RunReader(runs.client, handle.id).read()
    result = bare(replace(view, closing_document=None).document())
    if written_by_run["status"] == "failed":
        result["error"] = written_by_run.get("error")
        result = {name: part for name, part in result.items() if part is not None or name == "output"}
    for name, node in result["nodes"].items():
        if "result" in node:
            node["result"] = compact_value(node["result"], ref=f"node:{name}")
    assert result == written_by_run
    return written_by_run


def plan_text(*nodes: Any, **more: Any) -> str:
    return json.dumps({"nodes": list(nodes), **more})


def call(node_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments}


def purposes(calls: list[ReceivedCall]) -> list[tuple[str, str]]:
    return [(str(call.metadata["node_id"]), str(call.metadata["purpose"])) for call in calls]
