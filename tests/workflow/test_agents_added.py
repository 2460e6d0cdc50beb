"""Agents that a model does among nodes that are added to a run, on the real Temporal server."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.agents.finding import stored_cards
from dagwright.agents.stored import StoredAgents
from dagwright.agents.tools import declared_agents
from dagwright.client.steering import Steering
from dagwright.core.boundary import wire
from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.agents import agent_declaration
from dagwright.core.model.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.entities.database import EntityDatabase
from dagwright.features.commands.sent_tools import tools_to_json
from dagwright.server import Connection, Server
from dagwright.testing import ModelServer, step, tool_call
from tests.support.agent_bench import card_of
from tests.support.agents import agent_runs, ended, said
from tests.support.eventually import eventually
from tests.support.people import after, answer, asks, human
from tests.support.runs import Handle, Runs, done
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _card(*tools: str, name: str = "writer", **fields: Any) -> AgentCard:
    return card_of("llm", name=name, prompt="You write.", tools=list(tools), **fields)


def _known(runs: Runs, *cards: AgentCard) -> dict[str, ToolDeclaration]:
    declared = (agent_declaration(card) for card in cards)
    return {**runs.tools, **{tool.name: tool for tool in declared}}


async def _append(runs: Runs, handle: Handle, nodes: list[Any], *cards: AgentCard) -> str:
    """Adds nodes as the command does."""
    server = Server("here", runs.client.namespace)
    steering = Steering(Connection(runs.client, server, frozenset({wire.SEARCH_AWAITING})))
    return await steering.append(handle.id, nodes, tools=_known(runs, *cards), by="ann")


async def test_an_agent_that_is_added_runs_with_tools_that_the_plan_did_not_name(
    client: Client, tmp_path: Path, unique: str
) -> None:
    bench = Bench()
    hold = {"id": "on", "tool": "hold", "arguments": {"name": unique}}
    new = [
        {"id": "write", "agent": "writer", "objective": "Write of {{on.result}}.", "depends_on": ["on"]},
        {"id": "below", "plan": {"nodes": [{"id": "again", "agent": "writer", "objective": "Again."}]}},
        after("last", "write"),
    ]
    steps = (step("Again!", last="Again."), tool_call("echo", what="tea"), step("Of tea.", last="tea"))
    async with ModelServer(*steps) as model, agent_runs(client, model, tmp_path, bench=bench) as runs:
        handle = await runs.start({"nodes": [hold]})
        await eventually(lambda: unique in bench.entered)
        with pytest.raises(PlanInvalid, match="there is no agent 'writter'"):
            await _append(runs, handle, [{"id": "w", "agent": "writter", "objective": "Write"}], _card("echo"))
        with pytest.raises(PlanInvalid, match="needs the tool 'nothing', which is not there"):
            await _append(runs, handle, [{"id": "w", "agent": "writer", "objective": "Write"}], _card("nothing"))
        assert await _append(runs, handle, new, _card("echo")) == "3 nodes were added"
        bench.open(unique)
        document = await ended(runs, handle)
    assert document["status"] == "completed"
    assert document["nodes"] == {
        "on": done(unique),
        "write": done("Of tea."),
        "below": done({"again": "Again!"}),
        "last": done({"write": "Of tea."}),
    }
    [told] = [call for call in model.calls if said(call)[-1][1] == f"Result of on:\n\n{unique}\n\nWrite of {unique}."]
    assert told.tools == ["echo", "ask_person"]


async def test_an_agent_of_the_database_comes_with_the_answer_of_a_person(client: Client, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    database = EntityDatabase(url)
    StoredAgents(database).add([_card()])
    database.dispose()
    tools = declared_agents(stored_cards(url)).declarations()
    nodes = [{"id": "write", "agent": "writer", "objective": "Write."}]
    async with ModelServer("A letter.") as model, agent_runs(client, model, tmp_path) as runs:
        handle = await runs.start({"nodes": [human("ask", "GUIDANCE")]})
        await asks(runs, handle, "ask")
        sent = tools_to_json(["agent.writer"], tools)
        await answer(handle, "ask", {"text": "So", "nodes": nodes, "tools": sent})
        document = await ended(runs, handle)
    assert document["nodes"]["write"] == done("A letter.")
