"""What commands that start runs share: the connection, whoever serves the runs, and what is left to the background."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from dagwright.cli.background import start_worker
from dagwright.cli.background_settings import refuse_other_settings, serving_beside
from dagwright.server import Connection, LocalServer, open_connection
from dagwright.server.retained import claim_store
from dagwright.settings import Settings
from dagwright.templates import Templates, load_templates
from dagwright.told_tools import tell_cards
from dagwright.toolset import Toolset
from worker import serving


@asynccontextmanager
async def connected_to_run(settings: Settings, toolset: Toolset) -> AsyncIterator[Connection]:
    """Connects for a command that starts runs with these tools.

    What could not be served is told before a run is there: one that nobody can serve would wait for ever. So is
    something else that serves runs of the folder with other settings.

    Raises:
        CommandRefused: there is one.
        PricesUnreadable: the prices of models cannot be read, which every worker needs.
        NoServer: none could be had.
        StoreUnavailable: large values can not be kept.
    """
    toolset.models.prices()
    refuse_other_settings(settings)
    async with open_connection(settings) as connection:
        await claim_store(toolset.store, connection.client)
        # A worker in the background may have been started with other cards.
        await tell_cards(toolset.store, toolset.agents)
        yield connection


@asynccontextmanager
async def served(client: Client, toolset: Toolset | None, *, settings: Settings) -> AsyncIterator[None]:
    """Serves runs for as long as the block lasts.

    Args:
        toolset: tools to serve with; `None` leaves the work to others.

    Raises:
        CommandRefused: something else that serves runs of the folder has other settings.
    """
    if toolset is None:
        yield
        return
    async with serving_beside(settings), serving(client, toolset, task_queue=settings.task_queue):
        yield


async def leave_to_background(settings: Settings, toolset: Toolset) -> None:
    """Leaves the server, and a worker with these tools, in the background until `down`.

    Only for a run that is not refused: a worker that nobody knows of would take calls with the environment of a command
    that has come to nothing, and to end it is no way back, as another command may rely on it by then.

    Raises:
        CommandRefused: what serves runs here already has other settings.
    """
    await start_worker(settings, toolset)
    # Behind the worker, which may be refused: then nothing stays.
    LocalServer(settings).keep()


def settings_with_plans(settings: Settings, plans: str | None) -> Settings:
    """Returns settings with the folder of `--plans`, if it is given."""
    return settings if plans is None else settings.model_copy(update={"plans": Path(plans).expanduser().absolute()})


def templates_of(settings: Settings, toolset: Toolset) -> Templates:
    """Returns the plans that are published by name; none if no folder is named.

    Raises:
        TemplatesUnreadable: the folder is wrong.
    """
    return load_templates(settings.plans, toolset.declarations()) if settings.plans is not None else {}
