"""Pages of the console over a gateway that has no worker: what they draw and send by themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page

from tests.support.browser import opened
from tests.support.gateway import gateway
from tests.support.server import LiveServer


@asynccontextmanager
async def console_page(server: LiveServer, chromium: Browser, folder: Path, *, view: str) -> AsyncIterator[Page]:
    """Opens a view of the console inside the block.

    Args:
        folder: where the gateway keeps what it needs.
        view: as addresses name it, such as `plan`.
    """
    async with (
        gateway(server, folder=folder, has_worker=False) as live,
        opened(chromium, f"{live.url}/console/#/{view}") as page,
    ):
        yield page
