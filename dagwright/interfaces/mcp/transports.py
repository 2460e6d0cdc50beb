"""How the MCP server is reached: standard input and output, or streamable HTTP."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, cast

import anyio
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from dagwright.process.listening import listening

PATH = "/mcp"


class Wire:
    """The standard streams as the protocol has them to itself: whatever else is printed goes to stderr.

    A tool of a plan may print when it is imported, so this is made before anything else.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input = os.fdopen(os.dup(0), "rb")
        self._output = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    async def lines(self) -> AsyncIterator[str]:
        """Yields the lines that come, to the end of the input.

        They are read by a thread that keeps nobody: a read can not be given up, and the end of the process may not wait
        for it.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue()

        def read() -> None:
            with suppress(RuntimeError):
                # The loop may be gone by then.
                while line := self._input.readline():
                    loop.call_soon_threadsafe(queue.put_nowait, line)
                loop.call_soon_threadsafe(queue.put_nowait, b"")

        threading.Thread(target=read, daemon=True).start()
        while line := await queue.get():
            yield line.decode("utf-8", "replace")

    def writer(self) -> TextIOWrapper:
        """Returns what is written to the client."""
        return TextIOWrapper(self._output, encoding="utf-8", newline="\n")


async def serve_stdio(server: Server[Any], wire: Wire) -> None:
    """Serves one client until it closes the standard input."""
    # It is iterated over, and nothing else.
    lines = cast("anyio.AsyncFile[str]", wire.lines())
    async with stdio_server(lines, anyio.wrap_file(wire.writer())) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(server: Server[Any], listener: socket.socket, *, host: str) -> None:
    """Serves clients by streamable HTTP at `PATH` until it is cancelled.

    Args:
        host: as somebody named it; on one of this machine only requests to this machine are taken.
    """
    app = server.streamable_http_app(streamable_http_path=PATH, host=host)
    async with server.session_manager.run(), listening(app, listener):
        await asyncio.Event().wait()
