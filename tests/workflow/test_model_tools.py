"""Tools that call models, on the real server: the plan of examples/age-difference, calculations, and usage."""

import asyncio
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.settings import Settings
from dagwright.testing import ModelServer, SearchServer, Tokens, When, json_text, step, text, tool_call
from dagwright.tools import ToolRegistry, context, tool
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, checked_runs, document_of
from tests.workflow.test_regions import read_activity_ids

pytestmark = pytest.mark.server

EXAMPLE_FOLDER = Path(__file__).parents[2] / "examples" / "age-difference"


@tool(effects="pure")
def add(left: float, right: float) -> float:
    """Add two numbers."""
    return left + right


@tool(effects="read", uses_models=True)
async def ask(prompt: str) -> str:
    """Return the response of the model."""
    return (await context().ask_model(prompt)).text


@tool(effects="read", max_attempts=1, timeout="2s")
async def ask_and_wait(prompt: str) -> str:
    """Call a model, and never end."""
    await context().ask_model(prompt)
    await asyncio.sleep(3_600)
    return "never"


@asynccontextmanager
async def serve(
    client: Client, folder: Path, model: ModelServer, search: SearchServer | None = None
) -> AsyncIterator[Runs]:
    settings = Settings(
        state_dir=folder,
        openai_base_url=model.base_url,
        openai_api_key="key",
        model="small",
        serper_api_key="key",
        serper_base_url=search.base_url if search is not None else "http://127.0.0.1:1",
    )
    registry = ToolRegistry.of(add, ask, ask_and_wait)
    async with checked_runs(client, registry, settings=settings) as runs:
        yield runs


def expression_response(text: str) -> Any:
    return json_text({"is_calculation": True, "expression": text, "reason": ""}, tokens=Tokens(100, 10))


async def test_age_difference_example_reads_the_complete_search_results(client: Client, tmp_path: Path) -> None:
    plan = json.loads((EXAMPLE_FOLDER / "plan.json").read_text(encoding="utf-8"))
    services = runpy.run_path(str(EXAMPLE_FOLDER / "services.py"))
    searches = {query: [answer] for query, answer in services["SEARCHES"].items()}
    async with (
        ModelServer(step(services["CALCULATION_ANSWER"], when=When(metadata=services["CALL_METADATA"]))) as model,
        SearchServer(searches) as search,
        serve(client, tmp_path, model, search) as runs,
    ):
        handle = await runs.start(plan)
        document = await document_of(handle)
    assert document["status"] == "completed"
    assert document["output"] == {"calculate_difference": 14}
    wu_results, caesar_results = (
        document["nodes"][node_id]["result"] for node_id in ("find_emperor_wu_age", "find_caesar_age")
    )
    expected = ("Emperor Wu of Han", {"title": "Julius Caesar, age at death", "link": "", "snippet": "55 years"})
    assert (wu_results[0]["title"], caesar_results[0]) == expected
    assert sorted(search.queries) == sorted(searches)
    [model_call] = model.calls
    assert model_call.metadata == {"run_id": handle.id, "node_id": "calculate_difference", "purpose": "calculate"}
    message = model_call.messages[1]["content"]
    assert message.startswith('Calculate the difference between [{"title":"Emperor Wu of Han"')
    assert document["usage"]["calls"] == 1


async def test_calculation_in_words_runs_outside_of_its_region_and_reports_its_usage(
    client: Client, tmp_path: Path
) -> None:
    plan = plan_of(
        call_node("a", "calculator", expression="60 + 9"),
        call_node("b", "calculator", query="the difference between {{a.result}} and 55"),
        call_node("c", "calculator", expression="{{b.result}} * 2"),
        call_node("d", "calculator", expression="{{a.result}} + 1"),
    )
    async with ModelServer(expression_response("69 - 55")) as model, serve(client, tmp_path, model) as runs:
        handle = await runs.start(plan)
        document = await document_of(handle)
        expected = {"a": 69, "b": 14, "c": 28, "d": 70}
        assert {node_id: node["result"] for node_id, node in document["nodes"].items()} == expected
        assert await read_activity_ids(handle) == ["region:a", "region:a#2", "b", "c"]
    assert document["nodes"]["b"]["usage"]["completion_tokens"] == 10
    assert document["usage"]["calls"] == 1


async def test_tools_of_an_agent_call_the_model_of_the_run(client: Client, tmp_path: Path) -> None:
    steps = (tool_call("calculator", query="55 from 69"), expression_response("69 - 55"), "It is 14.")
    async with ModelServer(*steps) as model, serve(client, tmp_path, model) as runs:
        spec = AgentSpec("helper", tools={"calculator": runs.tools["calculator"]})
        plan = agent_plan(spec, prompt="Calculate.", result_titles={})
        inputs = {"objective": "What is 69 less 55?"}
        handle = await runs.start_compiled_plan(plan, inputs=inputs, model={"model": "large", "seed": 7})
        document = await document_of(handle)
    assert document["output"] == "It is 14."
    expected = [("large", 7, "agent"), ("large", 7, "calculate"), ("large", 7, "agent")]
    assert [(call.model, call.body["seed"], call.metadata["purpose"]) for call in model.calls] == expected


async def test_tools_of_a_sub_plan_use_the_model_of_the_parent_run(client: Client, tmp_path: Path) -> None:
    child_plan = {"plan": 1, "nodes": [{"id": "e", "tool": "ask", "arguments": {"prompt": "?"}}]}
    async with ModelServer("hello") as model, serve(client, tmp_path, model) as runs:
        await document_of(await runs.start({"nodes": [{"id": "sub", "plan": child_plan}]}, model={"model": "large"}))
    assert [call.model for call in model.calls] == ["large"]


async def test_usage_of_a_timed_out_call_is_counted(client: Client, tmp_path: Path) -> None:
    async with ModelServer(text("one", tokens=Tokens(10, 1))) as model, serve(client, tmp_path, model) as runs:
        handle = await runs.start({"nodes": [{"id": "h", "tool": "ask_and_wait", "arguments": {"prompt": "?"}}]})
        document = await document_of(handle)
    assert document["nodes"]["h"]["error"]["code"] == "timeout"
    assert (document["usage"]["calls"], document["usage"]["tokens"]) == (1, 11)


async def test_cached_result_uses_no_budget(client: Client, tmp_path: Path) -> None:
    plan = {"nodes": [tool_node("e", "ask", arguments={"prompt": "?"}, cache={"ttl": "1h"})]}
    async with ModelServer(text("one", tokens=Tokens(10, 1))) as model, serve(client, tmp_path, model) as runs:
        first_document = await document_of(await runs.start(plan, budget={"calls": 1}))
        second_document = await document_of(await runs.start(plan, budget={"calls": 1}))
    assert (first_document["usage"]["calls"], first_document["nodes"]["e"]["usage"]["tokens"]) == (1, 11)
    assert (second_document["output"], second_document["usage"]) == ({"e": "one"}, {})
    assert "usage" not in second_document["nodes"]["e"]
