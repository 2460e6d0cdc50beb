"""Class agents and service agents in runs: objective, context, usage, retries, and requests to people."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.client import Client

from dagwright.agents import AgentCard, AgentContext, AgentRegistry, ClassAgent
from dagwright.agents.agent_calls import agent_tools, declared_agents
from dagwright.agents.stored_agents import AGENTS, StoredAgents
from dagwright.database.database import Database
from dagwright.settings import Settings
from dagwright.testing import ModelServer, Tokens, text
from dagwright.tools.environment import ToolEnvironment
from tests.support.agent_bench import card_of
from tests.support.agent_service import Reply, agent_service
from tests.support.runs import Runs, bare, completed_node, document_of, failed_node, serving_runs
from tests.support.tools import Bench

pytestmark = pytest.mark.server


class Writer:
    """Asks a model what to make of its context."""

    async def run(self, objective: str, context: Mapping[str, Any], agent: AgentContext) -> Any:
        """Return the response of the model."""
        return (await agent.ask(f"{objective}: {dict(context)}")).text


CLASSES: Mapping[str, type[ClassAgent]] = {"writer": Writer}


def of_classes(name: str, **fields: Any) -> AgentCard:
    return card_of("class", name=name, class_name="tests:Agent", **fields)


@asynccontextmanager
async def serving(
    client: Client, folder: Path, *cards: AgentCard, server: ModelServer | None = None
) -> AsyncIterator[Runs]:
    """Serve runs that may use these agents, and the tools of the bench."""
    registry = AgentRegistry.of(
        *cards, classes={name: CLASSES[name] for name in {card.name for card in cards} & {*CLASSES}}
    )
    environment = ToolEnvironment(folder, allow_private_addresses=True)
    settings = Settings(
        allow_private_addresses=True,
        state_dir=folder,
        model="small",
        openai_base_url=server.base_url if server is not None else None,
        openai_api_key=SecretStr("key"),
    )
    tools = Bench().registry().merge(agent_tools(registry, environment))
    async with serving_runs(client, tools, settings=settings) as runs:
        yield runs
        await runs.check_runs()


def agent(node: str, name: str, objective: str, *needs: str, **fields: Any) -> dict[str, Any]:
    return {"id": node, "agent": name, "objective": objective, "depends_on": list(needs), **fields}


async def test_class_agent_gets_results_in_order_and_reports_its_usage(client: Client, tmp_path: Path) -> None:
    plan = {
        "nodes": [
            {"id": "a", "tool": "echo", "arguments": {"n": 1}},
            {"id": "b", "tool": "echo", "arguments": {"n": 2}},
            agent("w", "writer", "Sum up {{a.result.n}}", "b", "a"),
        ],
        "output": "{{w.result}}",
    }
    async with (
        ModelServer(text("Three.", tokens=Tokens(30, 2))) as server,
        serving(client, tmp_path, of_classes("writer", effects="read"), server=server) as runs,
    ):
        handle = await runs.start(plan)
        document = await document_of(handle)
    assert (bare(document)["status"], document["output"]) == ("completed", "Three.")
    assert server.calls[0].messages == [{"role": "user", "content": "Sum up 1: {'b': {'n': 2}, 'a': {'n': 1}}"}]
    assert server.calls[0].metadata == {"run_id": handle.id, "node_id": "w", "purpose": "agent"}
    used = document["usage"]["all"] if "all" in document["usage"] else document["usage"]
    assert (used["calls"], used["prompt_tokens"], used["completion_tokens"]) == (1, 30, 2)


async def test_agent_added_while_a_worker_runs_is_called_in_the_checked_version(client: Client, tmp_path: Path) -> None:
    first = Reply(body={"result": "first"})
    with agent_service(first) as old, agent_service(Reply(body={"result": "second"})) as new:
        async with serving(client, tmp_path) as runs:
            database = Database(f"sqlite:///{tmp_path / 'dagwright.db'}", AGENTS)
            stored = StoredAgents(database)
            cards = [card_of("service", name="desk", service_url=each.url, effects="read") for each in (old, new)]
            for card in cards:
                stored.add([card])
            stored.remove("desk")
            database.dispose()
            actual = []
            for card in [*cards, card_of("service", name="desk", service_url="http://else.example.com/")]:
                tools = {**runs.tools, **declared_agents([card]).declarations()}
                known = Runs(client, task_queue=runs.task_queue, tools=tools, store=runs.store)
                actual.append(await known.run({"nodes": [agent("d", "desk", "Ask")]}))
                await known.check_runs()
    assert [each["nodes"]["d"] for each in actual] == [
        completed_node("first"),
        completed_node("second"),
        failed_node(
            "tool_changed: There is no agent 'desk' of the version that the plan was checked with; check the plan "
            "again",
            attempts=3,
        ),
    ]


async def test_plan_may_name_an_agent_that_was_added_after_worker_start(client: Client, tmp_path: Path) -> None:
    with agent_service(Reply(body={"result": 5})) as service:
        async with serving(client, tmp_path) as runs:
            database = Database(f"sqlite:///{tmp_path / 'dagwright.db'}", AGENTS)
            StoredAgents(database).add([card_of("service", name="late", service_url=service.url, effects="read")])
            database.dispose()
            document = await runs.run_raw({"plan": {"plan": 1, "nodes": [agent("d", "late", "Ask")]}})
    assert document["nodes"] == {"d": completed_node(5)}
