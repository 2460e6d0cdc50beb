"""Agents in plans and among nodes that are added to a run, each in a child workflow of its own."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.agents.agent_calls import declared_agents
from dagwright.agents.agent_database import stored_cards
from dagwright.agents.stored_agents import AGENTS, StoredAgents
from dagwright.client.steering import Steering
from dagwright.core.boundary import wire
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.tools import ToolDeclaration
from dagwright.database.database import Database
from dagwright.features.plan_edits.sent_tools import tools_to_json
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.server import Connection, Server
from dagwright.testing import step, tool_call
from tests.support.agent_bench import card_of
from tests.support.agents import checked_document, messages_of
from tests.support.eventually import eventually
from tests.support.people import after, answer, human, wait_for_requests
from tests.support.runs import Handle, Runs, completed_node, document_of
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server


def card(name: str, *tools: str) -> AgentCard:
    return card_of("llm", name=name, prompt=f"You are {name}.", tools=list(tools))


def known_tools(runs: Runs, *cards: AgentCard) -> dict[str, ToolDeclaration]:
    declared = (agent_declaration(card) for card in cards)
    return {**runs.tools, **{tool.name: tool for tool in declared}}


async def start(runs: Runs, plan: Any, *cards: AgentCard, **options: Any) -> Handle:
    """Start a plan that names agents, as the command line does."""
    compiled = prepare_plan(check_plan(plan, known_tools(runs, *cards)), {})
    return await runs.start_raw(run_input_to_json(RunInput(compiled=compiled, **options)))


async def test_a_plan_of_agents_runs_each_with_the_results_before_it(client: Client, serve_script: Scripted) -> None:
    plan = {
        "nodes": [
            {"id": "look", "agent": "searcher", "objective": "Find tea.", "title": "The search"},
            {"id": "write", "agent": "writer", "objective": "Write it.", "depends_on": ["look"]},
        ]
    }
    steps = (tool_call("echo", what="tea"), "Tea is green.", "A letter about tea.")
    async with serve_script(*steps) as (model, runs):
        handle = await start(runs, plan, card("searcher", "echo"), card("writer"))
        assert await checked_document(runs, handle) == {
            "status": "completed",
            "output": {"write": "A letter about tea."},
            "nodes": {"look": completed_node("Tea is green."), "write": completed_node("A letter about tea.")},
        }
        usage = (await document_of(handle))["usage"]
        below = await client.get_workflow_handle(f"{handle.id}/look").describe()
    assert below.workflow_type == "RunAgent"
    expected = (3, {"searcher": 2, "writer": 1})
    assert (usage["calls"], {name: used["calls"] for name, used in usage["agents"].items()}) == expected
    assert messages_of(model.calls[2]) == [
        ("system", "You are writer."),
        ("user", "Result of look (The search):\n\nTea is green.\n\nWrite it."),
    ]


async def test_oversized_text_for_an_agent_is_cut_and_not_in_history(client: Client, serve_script: Scripted) -> None:
    plan = {
        "nodes": [
            {"id": "long", "tool": "text", "arguments": {"size": 100_000}},
            {"id": "read", "agent": "reader", "objective": "Sum {{long.status}} up.", "depends_on": ["long"]},
        ]
    }
    async with serve_script("Much.") as (model, runs):
        handle = await start(runs, plan, card("reader"))
        assert (await checked_document(runs, handle))["output"] == {"read": "Much."}
        below = client.get_workflow_handle(f"{handle.id}/read")
        assert len((await below.fetch_history()).to_json()) < 30_000
    result = messages_of(model.calls[0])[1][1]
    assert result.startswith("Result of long:\n\nxxx")
    assert result.endswith("characters are omitted]\n\nSum completed up.")
    assert "[… cut here: 40,017 of 100,017 characters are omitted]" in result


async def test_two_runs_at_once_each_ask_the_model_that_they_were_given(serve_script: Scripted) -> None:
    plan = {"nodes": [{"id": "say", "agent": "writer", "objective": "Say who you are."}]}
    steps = [step(f"I am {name}.", model=name) for name in ("large", "tiny")]
    async with serve_script(*steps) as (model, runs):
        handles = [
            await start(runs, plan, card("writer"), model={"model": name, "seed": 7}) for name in ("large", "tiny")
        ]
        outputs = [(await checked_document(runs, handle))["output"] for handle in handles]
    assert outputs == [{"say": "I am large."}, {"say": "I am tiny."}]
    assert [call.body["seed"] for call in model.calls] == [7, 7]


async def _append(runs: Runs, handle: Handle, nodes: list[Any], *cards: AgentCard) -> str:
    """Add nodes as the command does."""
    server = Server("here", runs.client.namespace)
    steering = Steering(Connection(runs.client, server, frozenset({wire.SEARCH_AWAITING})))
    return await steering.add_nodes(handle.id, nodes, tools=known_tools(runs, *cards), by="ann")


async def test_an_added_agent_runs_with_tools_that_the_plan_did_not_name(serve_script: Scripted, unique: str) -> None:
    bench = Bench()
    hold = {"id": "on", "tool": "hold", "arguments": {"name": unique}}
    new = [
        {"id": "write", "agent": "writer", "objective": "Write of {{on.result}}.", "depends_on": ["on"]},
        {"id": "below", "plan": {"nodes": [{"id": "again", "agent": "writer", "objective": "Again."}]}},
        after("last", "write"),
    ]
    steps = (step("Again!", last="Again."), tool_call("echo", what="tea"), step("Of tea.", last="tea"))
    async with serve_script(*steps, bench=bench) as (model, runs):
        handle = await runs.start({"nodes": [hold]})
        await eventually(lambda: unique in bench.entered)
        with pytest.raises(PlanInvalid, match="there is no agent 'writter'"):
            await _append(runs, handle, [{"id": "w", "agent": "writter", "objective": "Write"}], card("writer", "echo"))
        with pytest.raises(PlanInvalid, match="needs an unknown tool 'nothing'"):
            await _append(
                runs, handle, [{"id": "w", "agent": "writer", "objective": "Write"}], card("writer", "nothing")
            )
        assert await _append(runs, handle, new, card("writer", "echo")) == "3 nodes were added"
        bench.open(unique)
        document = await checked_document(runs, handle)
    assert document["status"] == "completed"
    assert document["nodes"] == {
        "on": completed_node(unique),
        "write": completed_node("Of tea."),
        "below": completed_node({"again": "Again!"}),
        "last": completed_node({"write": "Of tea."}),
    }
    [result] = [
        call for call in model.calls if messages_of(call)[-1][1] == f"Result of on:\n\n{unique}\n\nWrite of {unique}."
    ]
    assert result.tools == ["echo", "ask_person"]


async def test_an_agent_of_the_database_comes_with_the_answer_of_a_person(
    serve_script: Scripted, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    database = Database(url, AGENTS)
    StoredAgents(database).add([card("writer")])
    database.dispose()
    tools = declared_agents(stored_cards(url)).declarations()
    nodes = [{"id": "write", "agent": "writer", "objective": "Write."}]
    async with serve_script("A letter.") as (_, runs):
        handle = await runs.start({"nodes": [human("ask", "GUIDANCE")]})
        await wait_for_requests(runs.client, handle.id, "ask")
        sent = tools_to_json(["agent.writer"], tools)
        await answer(handle, "ask", {"text": "So", "nodes": nodes, "tools": sent})
        document = await checked_document(runs, handle)
    assert document["nodes"]["write"] == completed_node("A letter.")
