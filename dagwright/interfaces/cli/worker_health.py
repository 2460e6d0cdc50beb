"""The health endpoints of `worker.py`: where they listen, and what they check.

Imports the web framework only where it serves the endpoints: starting a worker without them stays quick.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from temporalio.client import Client

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.server.pollers import is_polling
from dagwright.settings import Settings
from dagwright.store import PayloadStore

_LOG = structlog.stdlib.get_logger("dagwright.process.health")


@asynccontextmanager
async def worker_health(
    settings: Settings, client: Client, store: PayloadStore, *, stopped: asyncio.Event
) -> AsyncIterator[None]:
    """Serve the health endpoints of a worker where `DAGWRIGHT_HEALTH_ADDRESS` says; without it, nothing.

    Args:
        stopped: set when the worker starts to drain.

    Raises:
        CommandRefused: another process listens there.
    """
    if settings.health_address is None:
        yield
        return
    require_extra("gateway")
    from dagwright.process.health import Readiness, serving_health  # noqa: PLC0415 - see above
    from dagwright.process.listening import PortTaken, address_of, opened_socket  # noqa: PLC0415 - see above

    host, _, port = settings.health_address.rpartition(":")
    try:
        listener = opened_socket(host.strip("[]"), int(port))
    except (PortTaken, OverflowError) as error:
        reason = str(error).partition(";")[0]
        raise CommandRefused(f"{reason}; change DAGWRIGHT_HEALTH_ADDRESS") from None

    async def temporal() -> None:
        if not await is_polling(client, settings.task_queue):
            raise ConnectionError(f"the Temporal server has seen no poll of task queue {settings.task_queue!r}")

    _LOG.info("health endpoints", address=address_of(listener))
    async with serving_health(listener, Readiness({"temporal": temporal, "store": store.check}, stopped=stopped)):
        yield
