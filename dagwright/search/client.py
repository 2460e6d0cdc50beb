"""Opens a client of the search server that the settings name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from opensearchpy import AsyncOpenSearch

from dagwright.search.server import find_address
from dagwright.settings import Settings

_TIMEOUT_S = 30.0


@asynccontextmanager
async def open_search(settings: Settings, *, timeout_s: float = _TIMEOUT_S) -> AsyncIterator[AsyncOpenSearch]:
    """Opens a client for as long as the block lasts; nothing is sent before it is used.

    A request is sent once: who retries is the caller, such as Temporal.

    Args:
        timeout_s: seconds that one request may take, > 0.

    Raises:
        NotRunning: no server is named and none runs in the state folder.
    """
    async with client_of(find_address(settings), timeout_s=timeout_s) as client:
        yield client


@asynccontextmanager
async def client_of(address: str, *, timeout_s: float = _TIMEOUT_S) -> AsyncIterator[AsyncOpenSearch]:
    """Opens a client of the server at an address; else as `open_search`."""
    client = AsyncOpenSearch(hosts=[address], timeout=timeout_s, max_retries=0, retry_on_timeout=False)
    try:
        yield client
    finally:
        await client.close()


def shown(address: str) -> str:
    """Returns an address without the name and password that it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
