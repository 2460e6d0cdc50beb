"""A proxy to a server that a test can close or silence while the server itself keeps running."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

_READ_BYTES = 64 * 1024


class Gate:
    """A port that forwards to a server; the next `silent` connections get no response."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self._port = 0
        self._listening: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.silent = 0

    @property
    def address(self) -> str:
        """The address; it stays the same while the gate is used."""
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._take, "127.0.0.1", self._port)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._connections.clear()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.create_task(self._lead(reader, writer)))

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _broken_off(writer), suppress(OSError):
            if self.silent:
                self.silent -= 1
                await reader.read(-1)
                return
            back, forth = await asyncio.open_connection(*self._target)
            with _broken_off(forth):
                await asyncio.gather(_copy(reader, forth), _copy(back, writer))


@contextmanager
def _broken_off(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while sent := await reader.read(_READ_BYTES):
        writer.write(sent)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def gate_to(target: str) -> AsyncIterator[Gate]:
    gate = Gate(target)
    await gate.open()
    try:
        yield gate
    finally:
        await gate.close()
