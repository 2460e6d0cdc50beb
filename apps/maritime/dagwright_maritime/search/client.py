"""Clients of search servers: one that a block opens, and those that a process keeps."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

_TIMEOUT_S = 30.0
"""Of a request that does not say how long it may take."""
_CONNECTIONS = 100
"""Of one client: as many as a worker has calls at once. One that waits for another would count that as its own time."""

_CLIENT_LOGGER = "opensearch"
"""It warns of every failed request, with a traceback; the caller reports the failure once."""


class SearchClients:
    """The clients of a process, one for each address; of one event loop.

    A request is sent once: who retries is the caller, such as Temporal.
    """

    def __init__(self) -> None:
        self._clients: dict[str, AsyncOpenSearch] = {}

    def client(self, address: str) -> "AsyncOpenSearch":
        """Returns the client of the server at an address; nothing is sent before it is used."""
        # A command that only lists or checks the tools needs no client, and its import takes 0.3 s of CPU time.
        from opensearchpy import AsyncOpenSearch  # noqa: PLC0415

        if address not in self._clients:
            logging.getLogger(_CLIENT_LOGGER).setLevel(logging.ERROR)
            self._clients[address] = AsyncOpenSearch(
                hosts=[address], timeout=_TIMEOUT_S, maxsize=_CONNECTIONS, max_retries=0, retry_on_timeout=False
            )
        return self._clients[address]

    async def close(self) -> None:
        """Closes all of them."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator["AsyncOpenSearch"]:
    """Opens a client of the server at an address for as long as the block lasts."""
    clients = SearchClients()
    try:
        yield clients.client(address)
    finally:
        await clients.close()


def shown(address: str) -> str:
    """Returns an address without the name and password that it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
