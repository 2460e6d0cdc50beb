"""Agents for tests: runs with a scripted model, and the parts of runs that tests compare."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from temporalio.client import Client

from dagwright.agents.stored_agents import AGENTS, StoredAgents
from dagwright.core.model.agents import AgentCard
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.database.database import Database
from dagwright.history.run_reader import RunReader
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.settings import Settings
from dagwright.testing import ModelServer, ReceivedCall
from tests.support.runs import Document, Handle, Runs, bare_document, document_of, serving_runs
from tests.support.tools import CallHarness


def model_settings(server: ModelServer, folder: Path, **fields: Any) -> Settings:
    """Return the settings of a worker with a scripted model."""
    return Settings(
        state_dir=folder,
        model="small",
        openai_base_url=server.base_url,
        openai_api_key=SecretStr("key"),
        **fields,
    )


def store_agents(url: str, *cards: AgentCard) -> None:
    database = Database(url, AGENTS)
    StoredAgents(database).add([*cards])
    database.dispose()


@asynccontextmanager
async def agent_runs(
    client: Client,
    server: ModelServer,
    folder: Path,
    *,
    harness: CallHarness | None = None,
    has_workflow_cache: bool = True,
) -> AsyncIterator[Runs]:
    """Serve runs with a scripted model. At the end of the block, check and replay each run."""
    settings = model_settings(server, folder)
    registry = (harness or CallHarness()).registry()
    async with serving_runs(client, registry, settings=settings, has_workflow_cache=has_workflow_cache) as runs:
        yield runs
        await runs.check_runs()


def helper_plan(runs: Runs, *tools: str, prompt: str = "You are helpful.", **fields: Any) -> CompiledPlan:
    """Return the plan of the agent `helper`, which may call `tools` of the harness and has no context."""
    declarations: Mapping[str, ToolDeclaration] = {name: runs.tools[name] for name in tools}
    return agent_plan(AgentSpec("helper", tools=declarations, **fields), prompt=prompt, result_titles={})


async def checked_document(runs: Runs, handle: Handle) -> Document:
    """Check that the history of a run alone yields the document of the run, and return the bare document."""
    document = await document_of(handle)
    view = await RunReader(runs.client, handle.id).read()
    rebuilt_document = replace(view, closing_document=None, error=None).document()
    assert bare_document(rebuilt_document) == bare_document(document)
    return bare_document(document)


def messages_of(call: ReceivedCall) -> list[tuple[str, Any]]:
    """Return (role, content) for each message of a call, and (role, tool names) for each message with tool calls."""
    return [
        (message["role"], [tool["function"]["name"] for tool in message["tool_calls"]])
        if message.get("tool_calls")
        else (message["role"], message["content"])
        for message in call.messages
    ]


def choice_with_text(text: str | None) -> Any:
    return _ChoiceWithText(text)


class _ChoiceWithText:
    """Equal to each choice (in a model response) whose message has this text."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and other["message"]["content"] == self._text

    __hash__ = None  # type: ignore[assignment]  # it equals several choices

    def __repr__(self) -> str:
        return f"choice_with_text({self._text!r})"
