"""Connection, worker and background processes of the commands that start runs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client

from dagwright.client.connecting import prepare_to_start
from dagwright.interfaces.cli.background import start_worker
from dagwright.interfaces.cli.background_settings import SettingsDiffer, reject_other_settings, serving_with_settings
from dagwright.plans.templates import TemplateFolder, open_templates
from dagwright.server import Connection, LocalServer, open_connection
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset
from dagwright.worker.capacity import capacity_of
from dagwright.worker.serving import serving


@asynccontextmanager
async def open_start_connection(
    settings: Settings, toolset: Toolset, *, requires_same_settings: bool = True
) -> AsyncIterator[Connection]:
    """Connect for a command that starts runs with these tools.

    Problems that would prevent every worker from serving a run are reported before the run starts.

    Args:
        requires_same_settings: reject the command if another process that serves runs of this state folder has other
            settings. A command whose worker would take part in these runs needs this check.

    Raises:
        SettingsDiffer: another process that serves runs of this state folder has other settings.
        PricesUnreadable: the prices of models cannot be read; every worker needs them.
        ServerUnreachable: no server is reachable.
        StoreMismatch: the workers use another payload store.
        StoreUnavailable: large values cannot be stored.
    """
    toolset.models.prices()
    if requires_same_settings:
        reject_other_settings(settings)
    async with open_connection(settings) as connection:
        await prepare_to_start(connection, settings, toolset)
        yield connection


@asynccontextmanager
async def serving_toolset(client: Client, toolset: Toolset | None, *, settings: Settings) -> AsyncIterator[None]:
    """Run a worker while the block lasts.

    Args:
        toolset: tools of the worker; `None` starts no worker.

    Raises:
        CommandError: another process that serves runs of this state folder has other settings.
    """
    if toolset is None:
        yield
        return
    async with serving_with_settings(settings), _serving_all(client, toolset, settings):
        yield


@asynccontextmanager
async def serve_unless_served_elsewhere(
    client: Client, toolset: Toolset, *, settings: Settings, report: Callable[[str], None]
) -> AsyncIterator[bool]:
    """Serve runs while the block lasts, unless another process serves them with other settings.

    Yields whether this process serves runs.

    Args:
        report: called with the reason why this process starts no worker.

    Raises:
        SettingsDiffer: the other process uses another server, namespace or queue, so it would not run the plans.
    """
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serving_with_settings(settings))
        except SettingsDiffer as difference:
            if difference.serves_other_runs:
                raise
            report(f"starting without a worker, because another process does the work: {difference.difference}")
            yield False
            return
        await stack.enter_async_context(_serving_all(client, toolset, settings))
        yield True


def _serving_all(client: Client, toolset: Toolset, settings: Settings) -> AbstractAsyncContextManager[None]:
    """Serve workflows and tools, whatever `DAGWRIGHT_SERVE` is: a command that runs a plan needs both."""
    capacity = replace(capacity_of(settings), role="all")
    return serving(client, toolset, task_queue=settings.task_queue, capacity=capacity)


async def continue_in_background(settings: Settings, toolset: Toolset) -> None:
    """Start a worker with these tools in the background, and keep the server running until `down`.

    Call this function only after a run was accepted. The worker of a failed command would execute calls with the
    environment of that command, and could not be ended, because another command might already use the worker.

    Raises:
        CommandError: a process that serves runs of this state folder has other settings.
    """
    await start_worker(settings, toolset)
    # The worker starts first: if its start fails, the server must not keep running.
    LocalServer(settings).keep_running()


def settings_with_plans(settings: Settings, plans: str | None) -> Settings:
    """Return the settings with the folder of `--plans`, if given."""
    return settings if plans is None else settings.model_copy(update={"plans": Path(plans).expanduser().absolute()})


def templates_of(settings: Settings, toolset: Toolset) -> TemplateFolder | None:
    """Return the folder of published plans; `None` if no folder is set.

    An error is logged for each unusable file.

    Raises:
        TemplatesUnreadable: the folder cannot be read or has no plan.
    """
    return None if settings.plans is None else open_templates(settings.plans, toolset.declarations())
