"""`dagwright worker` and `worker.py`: run a worker until SIGTERM or SIGINT."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import structlog
from temporalio.client import Client

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.background_settings import serving_with_settings
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.process_exit import ExitWatchdog, create_stop_event
from dagwright.interfaces.cli.server_commands import WorkerArguments
from dagwright.logging import configure_logging
from dagwright.process import event_loop
from dagwright.process.drain import writes_in_flight
from dagwright.server import open_connection
from dagwright.server.pollers import is_polling
from dagwright.settings import Settings, load_settings
from dagwright.store import PayloadStore
from dagwright.toolset.toolset import Toolset, load_toolset, references_of
from dagwright.worker.capacity import capacity_of
from dagwright.worker.serving import prepare_to_serve, serving


def worker(arguments: WorkerArguments, output: Output) -> int:
    """Run a worker until SIGINT or SIGTERM; with `--json`, write a document when the worker is ready.

    Raises:
        CommandError: another process that serves runs of this state folder has other settings.
        ServerUnreachable: no Temporal server is reachable.
        ToolLoadError: the tools cannot be loaded.
        StoreUnavailable: large values cannot be stored.
    """
    settings = load_settings()
    options = {"task_queue": arguments.task_queue, "serve": arguments.serve}
    settings = settings.model_copy(update={name: value for name, value in options.items() if value is not None})
    configure_logging(settings)
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    event_loop.run(_serve(settings, toolset, output=output))
    return ExitCode.COMPLETED


async def _serve(settings: Settings, toolset: Toolset, *, output: Output) -> None:
    await prepare_to_serve(settings, toolset)
    stop_event = create_stop_event()
    log = structlog.stdlib.get_logger("dagwright.worker")
    with closing(ExitWatchdog()) as exit_watchdog:
        async with (
            open_connection(settings) as connection,
            serving_with_settings(settings),
            # The endpoints open before the worker, to report the process as alive while the worker starts and drains.
            _serving_health_endpoints(settings, connection.client, toolset.store, stop_event=stop_event),
            serving(connection.client, toolset, task_queue=settings.task_queue, capacity=capacity_of(settings)),
        ):
            if connection.server.is_new:
                log.warning(
                    "no server was running, so this worker started one; set TEMPORAL_ADDRESS to use another server"
                )
            queues = [*dict.fromkeys([settings.task_queue, *toolset.user_queues])]
            for agent, missing_tools in toolset.agents.missing_tools(toolset.declarations()).items():
                log.warning("an agent refers to unknown tools", agent=agent, tools=missing_tools)
            log.info("worker started", address=connection.server.address, task_queues=queues, serves=settings.serve)
            if output.is_json:
                output.document(
                    {"status": "serving", "address": connection.server.address, "task_queues": queues},
                    is_single_line=True,
                )
            await stop_event.wait()
            log.info("worker stopping", writes_in_flight=writes_in_flight.count)
            exit_watchdog.start(ExitCode.COMPLETED)


@asynccontextmanager
async def _serving_health_endpoints(
    settings: Settings, client: Client, store: PayloadStore, *, stop_event: asyncio.Event
) -> AsyncIterator[None]:
    """Serve the health endpoints at `DAGWRIGHT_HEALTH_ADDRESS`, if set.

    Args:
        stop_event: set when the worker starts to drain.

    Raises:
        CommandError: the address is not available.
    """
    if settings.health_address is None:
        yield
        return
    require_extra("gateway")
    # The web framework is imported only if the endpoints are served, so that other workers start quickly.
    from dagwright.process.health import Readiness, serving_health  # noqa: PLC0415
    from dagwright.process.listening import PortTaken, address_of, open_socket  # noqa: PLC0415

    host, _, port = settings.health_address.rpartition(":")
    try:
        listener = open_socket(host.strip("[]"), int(port))
    except (PortTaken, OverflowError) as error:
        reason = str(error).partition(";")[0]
        raise CommandError(f"{reason}; change DAGWRIGHT_HEALTH_ADDRESS") from None

    async def check_poller() -> None:
        if not await is_polling(client, settings.task_queue):
            raise ConnectionError(f"the Temporal server has seen no poll of task queue {settings.task_queue!r}")

    structlog.stdlib.get_logger("dagwright.process.health").info("health endpoints", address=address_of(listener))
    async with serving_health(
        listener, Readiness({"temporal": check_poller, "store": store.check}, stop_event=stop_event)
    ):
        yield
