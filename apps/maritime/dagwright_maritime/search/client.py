"""Clients of search servers: a client for a `with` block, and the shared clients of a process."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

_TIMEOUT_S = 30.0
"""Default timeout of a request."""
_CONNECTIONS = 100
"""Connections per client: one per concurrent call of a worker, because waiting for a connection would count as request
time."""

_CLIENT_LOGGER = "opensearch"
"""Logger that logs a warning with a traceback for every failed request. Its warnings are off, because the caller
already reports the failure."""


class SearchClients:
    """The clients of a process, one per address, for one event loop.

    Requests are sent once; retries are up to the caller, such as Temporal.
    """

    def __init__(self) -> None:
        self._clients: dict[str, AsyncOpenSearch] = {}

    def client(self, address: str) -> "AsyncOpenSearch":
        """Return the client for an address; the client connects at first use."""
        # Imported here: the import takes 0.3 s of CPU time, and commands that list or check tools need no client.
        from opensearchpy import AsyncOpenSearch  # noqa: PLC0415

        if address not in self._clients:
            logging.getLogger(_CLIENT_LOGGER).setLevel(logging.ERROR)
            self._clients[address] = AsyncOpenSearch(
                hosts=[address], timeout=_TIMEOUT_S, maxsize=_CONNECTIONS, max_retries=0, retry_on_timeout=False
            )
        return self._clients[address]

    async def close(self) -> None:
        """Close all clients."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator["AsyncOpenSearch"]:
    """Open a client for an address for the duration of the block."""
    clients = SearchClients()
    try:
        yield clients.client(address)
    finally:
        await clients.close()


def display_address(address: str) -> str:
    """Return an address without credentials."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
