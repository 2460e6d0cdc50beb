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

from opensearchpy.exceptions import OpenSearchException

from dagwright.plugins.commands import CommandRefused, ExitCode, Output, guarded, leave
from dagwright.settings import load_settings, settings_as
from dagwright_maritime.indices import Indices
from dagwright_maritime.loading import LoadFailed, is_loaded, load
from dagwright_maritime.search.client import client_of, shown
from dagwright_maritime.search.errors import NoSearchServer
from dagwright_maritime.search.server import LocalSearch
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DataSet
from examples.command_line import USUAL_MODEL, model_variables_here, run_command, scripted_model

QUESTION = "How do the volumes of Maersk and Evergreen to LA compare in the last quarter?"
SCRIPT = Path(__file__).parent / "maritime" / "two-carriers.yaml"


def demo(output: Output) -> int:
    """Run `dagwright ask` and return its exit code."""
    settings = settings_as(MaritimeSettings, load_settings())
    prefix = f"demo-{settings.opensearch_prefix}"
    settings = settings.model_copy(update={"opensearch_prefix": prefix})
    is_real = settings.llm_api_key is not None or settings.llm_base_url is not None
    model = settings.model or USUAL_MODEL
    if is_real:
        where = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        advice = f"to see the same without a model, unset {model_variables_here()}"
        output.say(f"{model}{where} plans and works; {advice}")
    else:
        output.say("no OPENAI_API_KEY is set, so a script plays the model")
    run_id = f"demo-maritime-{uuid4().hex[:6]}"
    # The Temporal server stays, so that the run and its page can be looked at when it has ended.
    ask = ("ask", QUESTION, "--profile", "rounds", "--tools", "dagwright_maritime", "--id", run_id, "--keep-server")
    environment = {"DAGWRIGHT_OPENSEARCH_PREFIX": prefix}
    with _filled(settings, DataSet(datetime.now(UTC).date()), output):
        output.say(f"\nquestion: {QUESTION}")
        if is_real:
            code = run_command(*ask, environment={**environment, "DAGWRIGHT_MODEL": model})
        else:
            with scripted_model(SCRIPT) as variables:
                code = run_command(*ask, environment={**environment, **variables})
    output.say(_NEXT.format(run_id))
    return code


_NEXT = """
see how the sub-goals hang together:  .venv/bin/dagwright graph {0}
see what one of them put out:         .venv/bin/dagwright node {0} sg1
ask other questions without a key:    examples/maritime/README.md
end the Temporal server:              .venv/bin/dagwright down"""


@contextmanager
def _filled(settings: MaritimeSettings, data: DataSet, output: Output) -> Iterator[None]:
    """Have a search server with the shipments while the block lasts; stop it then if it was started here."""
    local = LocalSearch.of(settings)
    is_ours = settings.opensearch_url is None and local.find() is None
    try:
        output.say(asyncio.run(_ready(local, settings, data)))
        yield
    finally:
        if is_ours:
            asyncio.run(local.stop())


async def _ready(local: LocalSearch, settings: MaritimeSettings, data: DataSet) -> str:
    """Start the server and load the shipments, unless they are there, and return a sentence about it.

    Raises:
        CommandRefused: there is no server, or it refuses the shipments.
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
    """Load the shipments unless they are there, and return a sentence about it."""
    there = f"{data.documents:,} shipments in {indices.prefix}-* on the search server at {shown(address)}"
    async with client_of(address) as client:
        if await is_loaded(client, indices, data):
            return there
        await load(client, indices, data)
    return f"loaded {there}"


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
