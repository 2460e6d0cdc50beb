"""Questions about real shipments, for tests: the workers of `dagwright_maritime`, a search server, a scripted model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planning.conversation import TurnSummary
from dagwright.testing import ModelServer, json_text, read_script, step
from dagwright.testing.script import Step
from dagwright.tools import ToolRegistry, load_tools
from tests.support.agents import model_settings
from tests.support.goals import checked_document
from tests.support.rounds import continue_with, ref, sub_goal
from tests.support.runs import Document, Handle, Runs, serving_runs
from tests.support.search import Maritime

WORKERS = "dagwright_maritime"
SCRIPTS = Path(__file__).parents[2] / "examples" / "maritime"


@asynccontextmanager
async def maritime_runs(
    client: Client, folder: Path, maritime: Maritime, *script: Any, more: ToolRegistry | None = None
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve questions about shipments with a scripted model; `worker_says` steps match anywhere in the script."""
    of_workers = [each for each in script if isinstance(each, Step)]
    others = [each for each in script if not isinstance(each, Step)]
    # A call takes the first matching step, and a step without a condition matches any call.
    server = ModelServer(*of_workers, *others)
    async with _runs_of(client, folder, maritime, server, more=more or ToolRegistry()) as runs:
        yield server, runs


@asynccontextmanager
async def scenario_runs(
    client: Client, folder: Path, maritime: Maritime, name: str
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve questions whose models follow a script of `examples/maritime`, as in the example."""
    server = read_script(SCRIPTS / f"{name}.yaml")
    async with _runs_of(client, folder, maritime, server, more=ToolRegistry()) as runs:
        yield server, runs


@asynccontextmanager
async def _runs_of(
    client: Client, folder: Path, maritime: Maritime, server: ModelServer, *, more: ToolRegistry
) -> AsyncIterator[Runs]:
    async with server:
        settings = model_settings(server, folder)
        registry = load_tools([WORKERS]).merge(more)
        async with serving_runs(client, registry, settings=maritime.settings(settings)) as runs:
            yield runs
            await runs.check_runs()


async def start(runs: Runs, question: str, *, turns: Sequence[TurnSummary] = (), **asked: Any) -> Handle:
    return await runs.start_compiled_plan(
        prepare_rounds(question, runs.tools, RoundsOptions(turns=tuple(turns), **asked))[0]
    )


async def answer_question(runs: Runs, question: str, **asked: Any) -> Document:
    handle = await start(runs, question, **asked)
    await checked_document(runs, handle)
    return await runs.read_document(handle, full=True)


def worker_says(node: str, answer: Any, **when: Any) -> Step:
    """Return the model response for one worker tool, for any number of calls; `answer` is JSON or text."""
    message = answer if isinstance(answer, str) else json_text(answer)
    return step(message, metadata={"node_id": node, "purpose": "worker"}, **when)


def query(body: Mapping[str, Any], ambiguity: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"body": dict(body), "ambiguity": ambiguity}


def run_generated_query(number: int, generated: int) -> dict[str, Any]:
    return sub_goal(number, "es_query_exec", es_query=ref(generated, "es_query"))


def run_query(number: int, maritime: Maritime, body: Mapping[str, Any]) -> dict[str, Any]:
    return sub_goal(number, "es_query_exec", es_query={"index": maritime.indices.shipments, "body": dict(body)})


def shows(number: int, results: int) -> dict[str, Any]:
    return sub_goal(number, "show_results", es_results=ref(results, "es_results"))


def one_round(*sub_goals: Mapping[str, Any]) -> str:
    return continue_with(*sub_goals)


def slot(document: Document, node: str, name: str) -> Any:
    return document["nodes"][node]["result"][name]
