"""Class agents and service agents in runs: objective, context, usage, retries, and requests to people."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.agents import AgentCard, AgentContext, AgentRegistry, ClassAgent
from dagwright.agents.agent_calls import agent_tools, declare_agents
from dagwright.agents.stored_agents import AGENTS, StoredAgents
from dagwright.database.database import Database
from dagwright.settings import Settings
from dagwright.testing import ModelServer, Tokens, text
from dagwright.tools.environment import ToolEnvironment
from tests.support.agent_harness import card_of
from tests.support.agent_service import agent_service
from tests.support.agents import model_settings, store_agents
from tests.support.foreign import with_tools
from tests.support.goals import call_node
from tests.support.http_servers import ServiceResponse
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, bare_document, checked_runs, completed_node, document_of, failed_node
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server


class Writer:
    """Ask a model with the objective and the context."""

    async def run(self, objective: str, context: Mapping[str, Any], agent: AgentContext) -> Any:
        """Return the response of the model."""
        return (await agent.ask(f"{objective}: {dict(context)}")).text


CLASSES: Mapping[str, type[ClassAgent]] = {"writer": Writer}


def class_card(name: str, **fields: Any) -> AgentCard:
    return card_of("class", name=name, class_name="tests:Agent", **fields)


@asynccontextmanager
async def serving_agents(
    client: Client, folder: Path, *cards: AgentCard, server: ModelServer | None = None
) -> AsyncIterator[Runs]:
    """Serve runs that may use these agents, and the tools of the harness."""
    registry = AgentRegistry.of(
        *cards, classes={name: CLASSES[name] for name in {card.name for card in cards} & {*CLASSES}}
    )
    environment = ToolEnvironment(folder, allow_private_addresses=True)
    settings = Settings(state_dir=folder, allow_private_addresses=True)
    if server is not None:
        settings = model_settings(server, folder, allow_private_addresses=True)
    tools = CallHarness().registry().merge(agent_tools(registry, environment))
    async with checked_runs(client, tools, settings=settings) as runs:
        yield runs


def agent_node(node_id: str, name: str, objective: str, *dependencies: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "agent": name, "objective": objective, "depends_on": list(dependencies), **fields}


async def test_class_agent_receives_results_in_the_order_of_its_dependencies_and_reports_its_usage(
    client: Client, tmp_path: Path
) -> None:
    plan = plan_of(
        call_node("a", "echo", n=1),
        call_node("b", "echo", n=2),
        agent_node("w", "writer", "Sum up {{a.result.n}}", "b", "a"),
        output="{{w.result}}",
    )
    async with (
        ModelServer(text("Three.", tokens=Tokens(30, 2))) as server,
        serving_agents(client, tmp_path, class_card("writer", effects="read"), server=server) as runs,
    ):
        handle = await runs.start(plan)
        document = await document_of(handle)
    assert (bare_document(document)["status"], document["output"]) == ("completed", "Three.")
    assert server.calls[0].messages == [{"role": "user", "content": "Sum up 1: {'b': {'n': 2}, 'a': {'n': 1}}"}]
    assert server.calls[0].metadata == {"run_id": handle.id, "node_id": "w", "purpose": "agent"}
    usage = document["usage"]["all"] if "all" in document["usage"] else document["usage"]
    assert (usage["calls"], usage["prompt_tokens"], usage["completion_tokens"]) == (1, 30, 2)


async def test_stored_agent_is_called_in_the_version_that_the_plan_was_checked_with(
    client: Client, tmp_path: Path
) -> None:
    with (
        agent_service(ServiceResponse(body={"result": "first"})) as first_service,
        agent_service(ServiceResponse(body={"result": "second"})) as second_service,
    ):
        async with serving_agents(client, tmp_path) as runs:
            database = Database(f"sqlite:///{tmp_path / 'dagwright.db'}", AGENTS)
            stored_agents = StoredAgents(database)
            cards = [
                card_of("service", name="desk", service_url=service.url, effects="read")
                for service in (first_service, second_service)
            ]
            for card in cards:
                stored_agents.add([card])
            stored_agents.remove("desk")
            database.dispose()
            documents = []
            for card in [*cards, card_of("service", name="desk", service_url="http://else.example.com/")]:
                runs_with_card = with_tools(runs, declare_agents([card]).declarations())
                documents.append(await runs_with_card.run({"nodes": [agent_node("d", "desk", "Ask")]}))
                await runs_with_card.check_runs()
    assert [document["nodes"]["d"] for document in documents] == [
        completed_node("first"),
        completed_node("second"),
        failed_node(
            "tool_changed: There is no agent 'desk' of the version that the plan was checked with; check the plan "
            "again",
            attempts=3,
        ),
    ]


async def test_plan_may_name_an_agent_that_was_stored_after_the_worker_started(client: Client, tmp_path: Path) -> None:
    with agent_service(ServiceResponse(body={"result": 5})) as service:
        async with serving_agents(client, tmp_path) as runs:
            card = card_of("service", name="late", service_url=service.url, effects="read")
            store_agents(f"sqlite:///{tmp_path / 'dagwright.db'}", card)
            document = await runs.run_raw({"plan": {"plan": 1, "nodes": [agent_node("d", "late", "Ask")]}})
    assert document["nodes"] == {"d": completed_node(5)}
