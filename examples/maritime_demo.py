"""`make demo-maritime`: two carriers are compared in rounds, on a real search server.

The server is started, unless DAGWRIGHT_OPENSEARCH_URL names one, and filled with ten thousand made-up shipments in
indices of the demo's own, beside whatever else is there. With OPENAI_API_KEY or OPENAI_BASE_URL a real model works, the
one of DAGWRIGHT_MODEL. Without, a script plays its part (`examples/maritime/two-carriers.yaml`), and takes its queries
and figures from what the workers found; the first line says which of the two it is.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from anyio.from_thread import start_blocking_portal
from opensearchpy.exceptions import OpenSearchException
from pydantic import SecretStr

from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.edge import guarded, leave
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.goals import ask_with
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.requests import AskRequest
from dagwright.settings import load_settings, settings_as
from dagwright.testing import ModelServer, read_script
from dagwright_maritime.indices import Indices
from dagwright_maritime.loading import LoadFailed, is_loaded, load
from dagwright_maritime.search.client import client_of, shown
from dagwright_maritime.search.errors import NoSearchServer
from dagwright_maritime.search.server import LocalSearch
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DataSet
from examples.ask_demo import USUAL_MODEL, set_here

QUESTION = "How do the volumes of Maersk and Evergreen to LA compare in the last quarter?"
WORKERS = "dagwright_maritime"
SCRIPT = Path(__file__).parent / "maritime" / "two-carriers.yaml"


def demo(output: Output) -> int:
    """Asks, and returns the exit code of the run."""
    settings = settings_as(MaritimeSettings, command_settings())
    settings = settings.model_copy(update={"opensearch_prefix": f"demo-{settings.opensearch_prefix}"})
    data = DataSet(datetime.now(UTC).date())
    is_real = settings.llm_api_key is not None or settings.llm_base_url is not None
    if is_real:
        model = settings.model or USUAL_MODEL
        where = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        output.say(f"{model}{where} plans and works; to see the same without a model, unset {set_here()}")
    else:
        output.say("no OPENAI_API_KEY is set, so a script plays the model")
    # The Temporal server stays, so that the run and its page can be looked at when it has ended.
    request = AskRequest(
        QUESTION,
        profile="rounds",
        tools=[WORKERS],
        workflow_id=f"demo-maritime-{uuid4().hex[:6]}",
        is_keeping=True,
    )
    with _filled(settings, data, output):
        output.say(f"\nquestion: {QUESTION}")
        if is_real:
            code = ask_with(request, settings.model_copy(update={"model": model}), output)
        else:
            with _served(read_script(SCRIPT)) as address:
                scripted = {"openai_base_url": address, "openai_api_key": SecretStr("none"), "model": "scripted-model"}
                code = ask_with(request, settings.model_copy(update=scripted), output)
    output.say(_NEXT.format(request.workflow_id))
    return code


_NEXT = """
see how the sub-goals hang together:  .venv/bin/dagwright graph {0}
see what one of them put out:         .venv/bin/dagwright node {0} sg1
ask other questions without a key:    examples/maritime/README.md
end the Temporal server:              .venv/bin/dagwright down"""


@contextmanager
def _filled(settings: MaritimeSettings, data: DataSet, output: Output) -> Iterator[None]:
    """Has a search server with the shipments for as long as the block lasts; ends it then if it was started here."""
    local = LocalSearch.of(settings)
    is_ours = settings.opensearch_url is None and local.find() is None
    try:
        output.say(asyncio.run(_ready(local, settings, data)))
        yield
    finally:
        if is_ours:
            asyncio.run(local.stop())


async def _ready(local: LocalSearch, settings: MaritimeSettings, data: DataSet) -> str:
    """Starts the server and loads the shipments, as far as they are not there; returns what to say of it.

    Raises:
        CommandRefused: there is no server, or it does not take the shipments.
    """
    try:
        address = settings.opensearch_url or (await local.start()).address
        return await _fill(address, Indices(settings.opensearch_prefix), data)
    except NoSearchServer as error:
        raise CommandRefused(str(error), status="no_server", code=ExitCode.NO_SERVER) from error
    except OpenSearchException as error:
        words = f"the search server at {shown(address)} does not take the shipments: {error}"
        raise CommandRefused(words, status="no_server", code=ExitCode.NO_SERVER) from error
    except LoadFailed as error:
        raise CommandRefused(str(error)) from error


async def _fill(address: str, indices: Indices, data: DataSet) -> str:
    """Loads the shipments unless they are there; returns what to say of it."""
    there = f"{data.documents:,} shipments in {indices.prefix}-* on the search server at {shown(address)}"
    async with client_of(address) as client:
        if await is_loaded(client, indices, data):
            return there
        await load(client, indices, data)
    return f"loaded {there}"


@contextmanager
def _served(server: ModelServer) -> Iterator[str]:
    """Serves a scripted model in a thread for as long as the block lasts; gives its address."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield server.base_url


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
