"""A proxy that a test can close or silence while its server keeps running."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

_READ_BYTES = 64 * 1024


class ServerProxy:
    """A port that forwards to a server. The next `remaining_silent_connection_count` connections get no response."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self._port = 0
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.remaining_silent_connection_count = 0

    @property
    def address(self) -> str:
        """The address, which is the same after `close` and `open`."""
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._connections.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.create_task(self._forward(reader, writer)))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _abort_at_end(writer), suppress(OSError):
            if self.remaining_silent_connection_count:
                self.remaining_silent_connection_count -= 1
                await reader.read(-1)
                return
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            with _abort_at_end(server_writer):
                await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))


@contextmanager
def _abort_at_end(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(_READ_BYTES):
        writer.write(content)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def server_proxy(target: str) -> AsyncIterator[ServerProxy]:
    proxy = ServerProxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
