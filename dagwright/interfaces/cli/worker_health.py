"""Health endpoints of a worker.

The web framework is imported only if the endpoints are served, so that other workers start quickly.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from temporalio.client import Client

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.exit_codes import CommandRefused
from dagwright.server.pollers import is_polling
from dagwright.settings import Settings
from dagwright.store import PayloadStore

_LOG = structlog.stdlib.get_logger("dagwright.process.health")


@asynccontextmanager
async def worker_health(
    settings: Settings, client: Client, store: PayloadStore, *, stopped: asyncio.Event
) -> AsyncIterator[None]:
    """Serve the health endpoints at `DAGWRIGHT_HEALTH_ADDRESS`, if set.

    Args:
        stopped: set when the worker starts to drain.

    Raises:
        CommandRefused: another process listens at this address.
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
