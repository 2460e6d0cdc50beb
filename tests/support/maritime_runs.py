"""Runs of questions about shipments: worker tools of `dagwright_maritime`, a search server, and a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planning.conversation import TurnSummary
from dagwright.testing import ModelServer, json_text, read_script, step
from dagwright.testing.script import Step, When
from dagwright.tools import ToolRegistry, load_tools
from tests.support.agents import model_settings
from tests.support.goals import checked_document
from tests.support.rounds import ref, sub_goal
from tests.support.runs import Document, Handle, Runs, serving_runs
from tests.support.search import Maritime

_WORKER_TOOLS = "dagwright_maritime"
SCRIPTS = Path(__file__).parents[2] / "examples" / "maritime"


@asynccontextmanager
async def maritime_runs(
    client: Client, folder: Path, maritime: Maritime, *script: Any, more_tools: ToolRegistry | None = None
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve questions about shipments with a scripted model; `worker_response` steps may be anywhere in the script."""
    worker_steps = [entry for entry in script if isinstance(entry, Step)]
    other_steps = [entry for entry in script if not isinstance(entry, Step)]
    # A call takes the first matching step, and a step without a condition matches any call.
    server = ModelServer(*worker_steps, *other_steps)
    async with _runs_of(client, folder, maritime, server, more_tools=more_tools or ToolRegistry()) as runs:
        yield server, runs


@asynccontextmanager
async def scenario_runs(
    client: Client, folder: Path, maritime: Maritime, name: str
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve questions with a scripted model that follows a script of `examples/maritime`."""
    server = read_script(SCRIPTS / f"{name}.yaml")
    async with _runs_of(client, folder, maritime, server, more_tools=ToolRegistry()) as runs:
        yield server, runs


@asynccontextmanager
async def _runs_of(
    client: Client, folder: Path, maritime: Maritime, server: ModelServer, *, more_tools: ToolRegistry
) -> AsyncIterator[Runs]:
    async with server:
        settings = model_settings(server, folder)
        registry = load_tools([_WORKER_TOOLS]).merge(more_tools)
        async with serving_runs(client, registry, settings=maritime.settings(settings)) as runs:
            yield runs
            await runs.check_runs()


async def start_question(runs: Runs, question: str, *, turns: Sequence[TurnSummary] = (), **options: Any) -> Handle:
    return await runs.start_compiled_plan(
        prepare_rounds(question, runs.tools, RoundsOptions(turns=tuple(turns), **options))[0]
    )


async def answer_question(runs: Runs, question: str, **options: Any) -> Document:
    handle = await start_question(runs, question, **options)
    await checked_document(runs, handle)
    return await runs.read_document(handle, full=True)


def worker_response(node_id: str, answer: Any, *, release_event: asyncio.Event | None = None) -> Step:
    """Return the step for a model call of the worker tool at a node; `answer` is JSON or text."""
    message = answer if isinstance(answer, str) else json_text(answer)
    return step(message, when=When(metadata={"node_id": node_id, "purpose": "worker"}), release_event=release_event)


def query(body: Mapping[str, Any], ambiguity: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"body": dict(body), "ambiguity": ambiguity}


def generated_query_sub_goal(number: int, generator_number: int) -> dict[str, Any]:
    return sub_goal(number, "es_query_exec", es_query=ref(generator_number, "es_query"))


def query_sub_goal(number: int, maritime: Maritime, body: Mapping[str, Any]) -> dict[str, Any]:
    return sub_goal(number, "es_query_exec", es_query={"index": maritime.indices.shipments, "body": dict(body)})


def results_sub_goal(number: int, query_number: int) -> dict[str, Any]:
    return sub_goal(number, "show_results", es_results=ref(query_number, "es_results"))


def slot_value(document: Document, node_id: str, name: str) -> Any:
    return document["nodes"][node_id]["result"][name]
