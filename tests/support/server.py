"""The only module in which tests start a real Temporal server, with `LocalServer` as in Dagwright."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from dagwright.server import LocalServer, Server, open_connection
from dagwright.settings import Settings
from tests.support.eventually import eventually


class LiveServer:
    """A server that a test can kill and start again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._local = LocalServer(settings)
        self._connections = AsyncExitStack()

    @property
    def server(self) -> Server:
        server = self._local.find()
        assert server is not None, "the server does not run"
        return server

    @property
    def address(self) -> str:
        return self.server.address

    async def start(self) -> Client:
        """Start the server, or find it, and return a connected client.

        After `kill`, the server has the same database and port, so running workers continue.
        """
        connection = await self._connections.enter_async_context(open_connection(self.settings))
        return connection.client

    async def kill(self) -> None:
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: self._local.find() is None)

    async def kill_all(self) -> None:
        """Kill the background workers and the server, so that the end of a test does not wait for these processes."""
        await asyncio.gather(*(worker.stop(grace_s=0) for worker in self._local.workers()))
        if self._local.find() is not None:
            await self.kill()

    async def close(self) -> None:
        await self._connections.aclose()

    def environment(self) -> dict[str, str]:
        """Return the environment for a command in a separate process that uses this server."""
        return {**os.environ, "DAGWRIGHT_STATE_DIR": str(self.settings.state_dir)}


@asynccontextmanager
async def live_server(state_dir: Path) -> AsyncIterator[LiveServer]:
    """Run a server inside the block. If the state folder has a database, the server opens it."""
    server = LiveServer(Settings(state_dir=state_dir))
    try:
        await server.start()
        yield server
    finally:
        await server.close()
