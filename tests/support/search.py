"""The only module in which tests start a real search server and load shipments."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from opensearchpy import AsyncOpenSearch

from dagwright.settings import Settings, settings_as
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import RecordedCall, tool_context
from dagwright.toolset.toolset import environment_of
from dagwright_maritime.index_loading import load
from dagwright_maritime.indices import Indices
from dagwright_maritime.search.client import open_client
from dagwright_maritime.search.server import LocalSearch, RunningSearch
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DataSet, Shipment
from tests.support.eventually import eventually

TODAY = date(2026, 2, 10)
"""The current day for the tests' shipments: the last quarter is October to December 2025, yesterday is 9 February."""


class LiveSearch:
    """A search server that a test can kill and start again."""

    def __init__(self, local: LocalSearch) -> None:
        self._local = local

    @property
    def running_server(self) -> RunningSearch:
        server = self._local.find()
        assert server is not None, "the search server does not run"
        return server

    @property
    def address(self) -> str:
        return self.running_server.address

    async def start(self) -> None:
        """Start the server; after `kill`, the port and the documents are the same."""
        await self._local.start()

    async def kill(self) -> None:
        os.kill(self.running_server.pid, signal.SIGKILL)
        await eventually(lambda: self._local.find() is None)


@asynccontextmanager
async def live_search(folder: Path) -> AsyncIterator[LiveSearch]:
    """Run a search server with a state folder inside the block."""
    local = LocalSearch(folder, Settings().cache_home)
    try:
        search_server = LiveSearch(local)
        await search_server.start()
        yield search_server
    finally:
        await local.stop()


@dataclass(frozen=True, slots=True)
class Maritime:
    """Loaded shipments: their location and their parameters."""

    search: LiveSearch
    indices: Indices
    data: DataSet

    def shipments(self) -> Iterator[Shipment]:
        """Generate the loaded shipments again, to check answers."""
        return self.data.shipments()

    def settings(self, settings: Settings) -> MaritimeSettings:
        search_settings = {"opensearch_url": self.search.address, "opensearch_prefix": self.indices.prefix}
        return settings_as(MaritimeSettings, settings).model_copy(update=search_settings)

    @asynccontextmanager
    async def call(self, **fields: Any) -> AsyncIterator[RecordedCall]:
        """Make the shipments available to a worker tool. `fields` are arguments of `tool_context`."""
        async with self.tool_environment() as environment:
            with tool_context(environment=environment, **fields) as recorded_call:
                yield recorded_call

    @asynccontextmanager
    async def tool_environment(self) -> AsyncIterator[ToolEnvironment]:
        environment = environment_of(self.settings(Settings()))
        try:
            yield environment
        finally:
            await environment.resources.close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncOpenSearch]:
        async with open_client(self.search.address) as client:
            yield client


async def load_maritime(
    search: LiveSearch, prefix: str, *, shipment_count: int = 10_000, today: date = TODAY
) -> Maritime:
    """Load shipments into indices with a prefix. A test that changes shipments needs a unique prefix."""
    indices, data = Indices(prefix), DataSet(today, shipment_count)
    async with open_client(search.address) as client:
        await load(client, indices, data)
    return Maritime(search, indices, data)
