"""Goals for tests: requests in natural language, the initial plans of their runs, and the calls of models."""

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
from tests.support.people import tool_node
from tests.support.runs import Document, Handle, Runs, bare_document, document_of


@asynccontextmanager
async def scripted_runs(
    client: Client, folder: Path, *script: Any, **options: Any
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve runs with a scripted model; `options` are arguments of `agent_runs`."""
    async with ModelServer(*script) as server, agent_runs(client, server, folder, **options) as runs:
        yield server, runs


def goal_plan(runs: Runs, text: str, *tools: str, **options: Any) -> CompiledPlan:
    plan, _ = prepare_goal(text, {name: runs.tools[name] for name in tools}, PlanningOptions(**options))
    assert plan.extender is not None
    assert plan.extender["kind"] == GOAL_KIND
    return plan


async def checked_document(runs: Runs, handle: Handle) -> Document:
    """Check that the history of a run alone yields the document of the run, and return the bare document.

    The error of a failed run is not compared, because the last event contains the error outside of the document.
    """
    document = bare_document(await document_of(handle))
    view = await RunReader(runs.client, handle.id).read()
    rebuilt_document = bare_document(replace(view, closing_document=None).document())
    if document["status"] == "failed":
        rebuilt_document["error"] = document.get("error")
        rebuilt_document = {
            name: part for name, part in rebuilt_document.items() if part is not None or name == "output"
        }
    for name, node in rebuilt_document["nodes"].items():
        if "result" in node:
            node["result"] = compact_value(node["result"], ref=f"node:{name}")
    assert rebuilt_document == document
    return document


async def goal_document(runs: Runs, text: str, *tools: str, **options: Any) -> Document:
    """Run a text request to its end, and return its checked document."""
    return await checked_document(runs, await runs.start_compiled_plan(goal_plan(runs, text, *tools, **options)))


def plan_text(*nodes: Any, **fields: Any) -> str:
    return json.dumps({"nodes": list(nodes), **fields})


def call_node(node_id: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a node that calls a tool. Use `tool_node` for nodes with other fields."""
    return tool_node(node_id, tool, arguments=arguments)


def nodes_and_purposes(calls: list[ReceivedCall]) -> list[tuple[str, str]]:
    return [(str(call.metadata["node_id"]), str(call.metadata["purpose"])) for call in calls]
