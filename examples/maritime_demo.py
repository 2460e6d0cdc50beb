"""`make demo-maritime`: two carriers are compared in rounds, on a real search server.

The server is started, unless DAGWRIGHT_OPENSEARCH_URL is set, and filled with ten thousand generated shipments in
separate indices. If OPENAI_API_KEY or OPENAI_BASE_URL is set, the demo uses the model of DAGWRIGHT_MODEL. Otherwise a
script replaces the model (`examples/maritime/two-carriers.yaml`) and builds its queries and numbers from the results of
the worker tools. The first line of the output names the model or the script.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from opensearchpy.exceptions import OpenSearchException

from dagwright.plugins.commands import CommandError, CommandErrorCode, Output, end_process, run_guarded
from dagwright.settings import load_settings, settings_as
from dagwright_maritime.index_loading import LoadFailed, is_loaded, load
from dagwright_maritime.indices import Indices
from dagwright_maritime.search.client import display_address, open_client
from dagwright_maritime.search.errors import NoSearchServer
from dagwright_maritime.search.server import LocalSearch
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DataSet
from examples.command_line import DEFAULT_MODEL, names_of_model_variables, run_command, scripted_model

QUESTION = "How do the volumes of Maersk and Evergreen to LA compare in the last quarter?"
SCRIPT = Path(__file__).parent / "maritime" / "two-carriers.yaml"


def demo(output: Output) -> int:
    """Run `dagwright ask` and return its exit code."""
    settings = settings_as(MaritimeSettings, load_settings())
    prefix = f"demo-{settings.opensearch_prefix}"
    settings = settings.model_copy(update={"opensearch_prefix": prefix})
    has_model = settings.llm_api_key is not None or settings.llm_base_url is not None
    model = settings.model or DEFAULT_MODEL
    if has_model:
        address_note = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        advice = f"to run the demo without a model, unset {names_of_model_variables()}"
        output.print(f"model: {model}{address_note}; {advice}")
    else:
        output.print("no OPENAI_API_KEY is set, so a script plays the model")
    run_id = f"demo-maritime-{uuid4().hex[:6]}"
    # The Temporal server keeps running, so that the run and its UI page can be inspected afterwards.
    command = ("ask", QUESTION, "--profile", "rounds", "--tools", "dagwright_maritime", "--id", run_id, "--keep-server")
    environment = {"DAGWRIGHT_OPENSEARCH_PREFIX": prefix}
    with _loaded_search_server(settings, DataSet(datetime.now(UTC).date()), output):
        output.print(f"\nquestion: {QUESTION}")
        if has_model:
            code = run_command(*command, environment={**environment, "DAGWRIGHT_MODEL": model})
        else:
            with scripted_model(SCRIPT) as variables:
                code = run_command(*command, environment={**environment, **variables})
    output.print(_NEXT_COMMANDS.format(run_id))
    return code


_NEXT_COMMANDS = """
show the graph of the sub-goals:      .venv/bin/dagwright graph {0}
show the result of one of them:       .venv/bin/dagwright node {0} sg1
ask other questions without a key:    examples/maritime/README.md
stop the Temporal server:             .venv/bin/dagwright down"""


@contextmanager
def _loaded_search_server(settings: MaritimeSettings, data: DataSet, output: Output) -> Iterator[None]:
    """Keep a loaded search server running inside the block; stop it afterwards if it was started here."""
    local = LocalSearch.from_settings(settings)
    is_own_server = settings.opensearch_url is None and local.find() is None
    try:
        output.print(asyncio.run(_prepare(local, settings, data)))
        yield
    finally:
        if is_own_server:
            asyncio.run(local.stop())


async def _prepare(local: LocalSearch, settings: MaritimeSettings, data: DataSet) -> str:
    """Start the server, load the shipments if they are missing, and return a status message.

    Raises:
        CommandError: there is no server, or it rejects the shipments.
    """
    try:
        address = settings.opensearch_url or (await local.start()).address
        return await _fill(address, Indices(settings.opensearch_prefix), data)
    except NoSearchServer as error:
        raise CommandError(str(error), code=CommandErrorCode.SERVER_UNAVAILABLE) from error
    except OpenSearchException as error:
        message = f"the search server at {display_address(address)} rejected the shipments: {error}"
        raise CommandError(message, code=CommandErrorCode.SERVER_UNAVAILABLE) from error
    except LoadFailed as error:
        raise CommandError(str(error)) from error


async def _fill(address: str, indices: Indices, data: DataSet) -> str:
    """Load the shipments if they are missing, and return a status message."""
    message = (
        f"{data.document_count:,} shipments in {indices.prefix}-* on the search server at {display_address(address)}"
    )
    async with open_client(address) as client:
        if await is_loaded(client, indices, data):
            return message
        await load(client, indices, data)
    return f"loaded {message}"


if __name__ == "__main__":
    end_process(run_guarded(lambda: demo(Output()), Output(), load_settings=load_settings))
