"""Connection, worker and background processes of the commands that start runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client

from dagwright.client.connecting import prepare_to_start
from dagwright.interfaces.cli.background import start_worker
from dagwright.interfaces.cli.background_settings import OtherSettings, refuse_other_settings, serving_with_settings
from dagwright.plans.templates import TemplateFolder, open_templates
from dagwright.server import Connection, LocalServer, open_connection
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset
from dagwright.worker.capacity import capacity_of
from dagwright.worker.serving import serving


@asynccontextmanager
async def connected_to_run(
    settings: Settings, toolset: Toolset, *, is_comparing: bool = True
) -> AsyncIterator[Connection]:
    """Connect for a command that starts runs with these tools.

    Problems that would keep every worker from serving the run are reported before it starts.

    Args:
        is_comparing: the command takes part in the work, so its settings must equal those of the other processes.

    Raises:
        OtherSettings: another process that serves runs of the folder has other settings.
        PricesUnreadable: the prices of models, which every worker needs, cannot be read.
        ServerUnreachable: no server is reachable.
        StoreMismatch: the workers use another payload store.
        StoreUnavailable: large values cannot be stored.
    """
    toolset.models.prices()
    if is_comparing:
        refuse_other_settings(settings)
    async with open_connection(settings) as connection:
        await prepare_to_start(connection, settings, toolset)
        yield connection


@asynccontextmanager
async def served(client: Client, toolset: Toolset | None, *, settings: Settings) -> AsyncIterator[None]:
    """Run a worker inside the block.

    Args:
        toolset: tools of the worker; `None` starts no worker.

    Raises:
        CommandRefused: something else that serves runs of the folder has other settings.
    """
    if toolset is None:
        yield
        return
    async with serving_with_settings(settings), _serving_all(client, toolset, settings):
        yield


@asynccontextmanager
async def served_here_or_elsewhere(
    client: Client, toolset: Toolset, *, settings: Settings, report: Callable[[str], None]
) -> AsyncIterator[bool]:
    """Serve runs inside the block, unless another process serves them with other settings; yield whether it does.

    Args:
        report: called with the reason why this process starts no worker.

    Raises:
        OtherSettings: the other process serves another server, namespace or queue, so it would not run the plans.
    """
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serving_with_settings(settings))
        except OtherSettings as other:
            if other.is_elsewhere:
                raise
            report(f"starting without a worker, the other process does the work: {other.difference}")
            yield False
            return
        await stack.enter_async_context(_serving_all(client, toolset, settings))
        yield True


def _serving_all(client: Client, toolset: Toolset, settings: Settings) -> AbstractAsyncContextManager[None]:
    """Serve runs and tools: a command that runs a plan needs both, also if `DAGWRIGHT_SERVE` names one of them."""
    capacity = replace(capacity_of(settings), role="all")
    return serving(client, toolset, task_queue=settings.task_queue, capacity=capacity)


async def leave_to_background(settings: Settings, toolset: Toolset) -> None:
    """Leave the server and a worker with these tools in the background until `down`.

    Call it only for a run that was accepted: an unexpected worker would take calls with the environment of a failed
    command, and could not be ended, because another command may rely on it by then.
    Raises:
        CommandRefused: a process that serves runs of this folder has other settings.
    """
    await start_worker(settings, toolset)
    # After the worker, which may be refused: then the server must not stay.
    LocalServer(settings).keep()


def settings_with_plans(settings: Settings, plans: str | None) -> Settings:
    """Return the settings with the folder of `--plans`, if given."""
    return settings if plans is None else settings.model_copy(update={"plans": Path(plans).expanduser().absolute()})


def templates_of(settings: Settings, toolset: Toolset) -> TemplateFolder | None:
    """Return the folder of published plans, `None` if none is set; an error is logged for each unusable file.

    Raises:
        TemplatesUnreadable: the folder cannot be read or has no plan.
    """
    return None if settings.plans is None else open_templates(settings.plans, toolset.declarations())
