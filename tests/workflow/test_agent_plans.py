"""Plans with agents that a model does, on the real Temporal server: from cards to runs of their own."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.agents import agent_declaration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.messages import RunInput, run_input_to_json
from dagwright.testing import ModelServer, step, tool_call
from tests.support.agents import agent_runs, ended, said
from tests.support.runs import Handle, Runs, document_of, done

pytestmark = pytest.mark.server


def card(name: str, *tools: str, **fields: Any) -> AgentCard:
    """Returns the card of an agent that a model does."""
    told = {"description": "Does it.", "objective_template": "Do {what}", "type": "llm", "prompt": f"You are {name}."}
    return AgentCard(**{**told, "name": name, "tools": tools, **fields})


async def start(runs: Runs, plan: Any, *cards: AgentCard, **options: Any) -> Handle:
    """Starts a plan that names agents, as the command line does."""
    declared = (agent_declaration(each) for each in cards)
    tools = {**runs.tools, **{tool.name: tool for tool in declared}}
    compiled = prepare_plan(check_plan(plan, tools), {})
    return await runs.start_raw(run_input_to_json(RunInput(compiled=compiled, **options)))


async def test_a_plan_of_agents_runs_each_with_the_results_before_it(client: Client, tmp_path: Path) -> None:
    plan = {
        "nodes": [
            {"id": "look", "agent": "searcher", "objective": "Find tea.", "title": "The search"},
            {"id": "write", "agent": "writer", "objective": "Write it.", "depends_on": ["look"]},
        ]
    }
    steps = (tool_call("echo", what="tea"), "Tea is green.", "A letter about tea.")
    async with ModelServer(*steps) as model, agent_runs(client, model, tmp_path) as runs:
        handle = await start(runs, plan, card("searcher", "echo"), card("writer"))
        assert await ended(runs, handle) == {
            "status": "completed",
            "output": {"write": "A letter about tea."},
            "nodes": {"look": done("Tea is green."), "write": done("A letter about tea.")},
        }
        usage = (await document_of(handle))["usage"]
        below = await client.get_workflow_handle(f"{handle.id}/look").describe()
    assert below.workflow_type == "RunAgent"
    assert (usage["calls"], {name: used["calls"] for name, used in usage["agents"].items()}) == (
        3,
        {"searcher": 2, "writer": 1},
    )
    assert said(model.calls[2]) == [
        ("system", "You are writer."),
        ("user", "Result of look (The search):\n\nTea is green.\n\nWrite it."),
    ]


async def test_what_is_too_long_for_an_agent_is_cut_with_a_mark_and_does_not_pass_through_history(
    client: Client, tmp_path: Path
) -> None:
    plan = {
        "nodes": [
            {"id": "long", "tool": "text", "arguments": {"size": 100_000}},
            {"id": "read", "agent": "reader", "objective": "Sum {{long.status}} up.", "depends_on": ["long"]},
        ]
    }
    async with ModelServer("Much.") as model, agent_runs(client, model, tmp_path) as runs:
        handle = await start(runs, plan, card("reader"))
        assert (await ended(runs, handle))["output"] == {"read": "Much."}
        below = client.get_workflow_handle(f"{handle.id}/read")
        assert len((await below.fetch_history()).to_json()) < 20_000
    told = said(model.calls[0])[1][1]
    assert told.startswith("Result of long:\n\nxxx")
    assert told.endswith("characters are left out]\n\nSum completed up.")
    assert "[… cut here: 40,017 of 100,017 characters are left out]" in told


async def test_two_runs_at_once_each_ask_the_model_that_they_were_given(client: Client, tmp_path: Path) -> None:
    plan = {"nodes": [{"id": "say", "agent": "writer", "objective": "Say who you are."}]}
    steps = [step(f"I am {name}.", model=name) for name in ("large", "tiny")]
    async with ModelServer(*steps) as model, agent_runs(client, model, tmp_path) as runs:
        handles = [
            await start(runs, plan, card("writer"), model={"model": name, "seed": 7}) for name in ("large", "tiny")
        ]
        outputs = [(await ended(runs, handle))["output"] for handle in handles]
    assert outputs == [{"say": "I am large."}, {"say": "I am tiny."}]
    assert [call.body["seed"] for call in model.calls] == [7, 7]
