"""Agents as nodes of plans and as nodes added to a run. Each agent runs in a separate child workflow."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.agents.agent_calls import declare_agents
from dagwright.agents.agent_database import stored_cards
from dagwright.client.steering import Steering
from dagwright.core.boundary import wire
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.tools import ToolDeclaration
from dagwright.features.plan_edits.sent_tools import tools_to_json
from dagwright.server import Connection, Server
from dagwright.testing import When, step, tool_call
from tests.support.agent_harness import card_of
from tests.support.agents import checked_document, messages_of, store_agents
from tests.support.eventually import eventually
from tests.support.people import answer, echo_node, human_node, wait_for_requests
from tests.support.plan_building import plan_of
from tests.support.runs import Handle, Runs, completed_node, document_of
from tests.support.tools import CallHarness
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server


def llm_card(name: str, *tools: str) -> AgentCard:
    return card_of("llm", name=name, prompt=f"You are {name}.", tools=list(tools))


def tools_with_agents(runs: Runs, *cards: AgentCard) -> dict[str, ToolDeclaration]:
    declarations = (agent_declaration(card) for card in cards)
    return {**runs.tools, **{tool.name: tool for tool in declarations}}


async def start(runs: Runs, plan: Any, *cards: AgentCard, **options: Any) -> Handle:
    """Start a plan that names agents, as the command line does."""
    return await runs.start(plan, tools=tools_with_agents(runs, *cards), **options)


async def test_agents_of_a_plan_receive_results_of_dependencies(client: Client, serve_script: ServeScript) -> None:
    plan = plan_of(
        {"id": "look", "agent": "searcher", "objective": "Find tea.", "title": "The search"},
        {"id": "write", "agent": "writer", "objective": "Write it.", "depends_on": ["look"]},
    )
    steps = (tool_call("echo", what="tea"), "Tea is green.", "A letter about tea.")
    async with serve_script(*steps) as (model, runs):
        handle = await start(runs, plan, llm_card("searcher", "echo"), llm_card("writer"))
        assert await checked_document(runs, handle) == {
            "status": "completed",
            "output": {"write": "A letter about tea."},
            "nodes": {"look": completed_node("Tea is green."), "write": completed_node("A letter about tea.")},
        }
        usage = (await document_of(handle))["usage"]
        child = await client.get_workflow_handle(f"{handle.id}/look").describe()
    assert child.workflow_type == "RunAgent"
    expected = (3, {"searcher": 2, "writer": 1})
    assert (usage["calls"], {name: agent_usage["calls"] for name, agent_usage in usage["agents"].items()}) == expected
    assert messages_of(model.calls[2]) == [
        ("system", "You are writer."),
        ("user", "Result of look (The search):\n\nTea is green.\n\nWrite it."),
    ]


async def test_large_input_of_an_agent_is_shortened_and_not_in_history(
    client: Client, serve_script: ServeScript
) -> None:
    plan = plan_of(
        {"id": "long", "tool": "text", "arguments": {"size": 100_000}},
        {"id": "read", "agent": "reader", "objective": "Sum {{long.status}} up.", "depends_on": ["long"]},
    )
    async with serve_script("Much.") as (model, runs):
        handle = await start(runs, plan, llm_card("reader"))
        assert (await checked_document(runs, handle))["output"] == {"read": "Much."}
        assert len((await client.get_workflow_handle(f"{handle.id}/read").fetch_history()).to_json()) < 30_000
    result = messages_of(model.calls[0])[1][1]
    assert result.startswith("Result of long:\n\nxxx")
    assert result.endswith("characters are omitted]\n\nSum completed up.")
    # The heading has 17 characters, and the text has 100,000 characters.
    assert "[… cut here: 40,017 of 100,017 characters are omitted]" in result


async def test_each_concurrent_run_calls_the_model_of_its_options(serve_script: ServeScript) -> None:
    plan = {"nodes": [{"id": "say", "agent": "writer", "objective": "Say who you are."}]}
    steps = [step(f"I am {name}.", when=When(model=name)) for name in ("large", "tiny")]
    async with serve_script(*steps) as (model, runs):
        handles = [
            await start(runs, plan, llm_card("writer"), model={"model": name, "seed": 7}) for name in ("large", "tiny")
        ]
        outputs = [(await checked_document(runs, handle))["output"] for handle in handles]
    assert outputs == [{"say": "I am large."}, {"say": "I am tiny."}]
    assert [call.body["seed"] for call in model.calls] == [7, 7]


async def _add_nodes(runs: Runs, handle: Handle, nodes: list[Any], *cards: AgentCard) -> str:
    """Add nodes as the command `add-nodes` does."""
    server = Server("here", runs.client.namespace)
    steering = Steering(Connection(runs.client, server, frozenset({wire.SEARCH_AWAITING})))
    return await steering.add_nodes(handle.id, nodes, tools=tools_with_agents(runs, *cards), by="ann")


async def test_added_agent_runs_with_tools_that_the_plan_does_not_use(
    serve_script: ServeScript, unique_name: str
) -> None:
    harness = CallHarness()
    hold_node = {"id": "held", "tool": "hold", "arguments": {"name": unique_name}}
    new_nodes = [
        {"id": "write", "agent": "writer", "objective": "Write of {{held.result}}.", "depends_on": ["held"]},
        {"id": "child", "plan": {"nodes": [{"id": "again", "agent": "writer", "objective": "Again."}]}},
        echo_node("last", "write"),
    ]
    steps = (
        step("Again!", when=When(last="Again.")),
        tool_call("echo", what="tea"),
        step("Of tea.", when=When(last="tea")),
    )
    async with serve_script(*steps, harness=harness) as (model, runs):
        handle = await runs.start({"nodes": [hold_node]})
        await eventually(lambda: unique_name in harness.entered)
        with pytest.raises(PlanInvalid, match="there is no agent 'writter'"):
            await _add_nodes(
                runs, handle, [{"id": "w", "agent": "writter", "objective": "Write"}], llm_card("writer", "echo")
            )
        with pytest.raises(PlanInvalid, match="needs an unknown tool 'nothing'"):
            await _add_nodes(
                runs, handle, [{"id": "w", "agent": "writer", "objective": "Write"}], llm_card("writer", "nothing")
            )
        assert await _add_nodes(runs, handle, new_nodes, llm_card("writer", "echo")) == "3 nodes were added"
        harness.open(unique_name)
        document = await checked_document(runs, handle)
    assert document["status"] == "completed"
    assert document["nodes"] == {
        "held": completed_node(unique_name),
        "write": completed_node("Of tea."),
        "child": completed_node({"again": "Again!"}),
        "last": completed_node({"write": "Of tea."}),
    }
    [added_call] = [
        call
        for call in model.calls
        if messages_of(call)[-1][1] == f"Result of held:\n\n{unique_name}\n\nWrite of {unique_name}."
    ]
    assert added_call.tools == ["echo", "ask_person"]


async def test_answer_of_a_person_may_add_a_stored_agent(serve_script: ServeScript, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    store_agents(url, llm_card("writer"))
    tools = declare_agents(stored_cards(url)).declarations()
    nodes = [{"id": "write", "agent": "writer", "objective": "Write."}]
    async with serve_script("A letter.") as (_, runs):
        handle = await runs.start({"nodes": [human_node("ask", "GUIDANCE")]})
        await wait_for_requests(runs.client, handle.id, "ask")
        declarations = tools_to_json(["agent.writer"], tools)
        await answer(handle, "ask", {"text": "So", "nodes": nodes, "tools": declarations})
        document = await checked_document(runs, handle)
    assert document["nodes"]["write"] == completed_node("A letter.")
