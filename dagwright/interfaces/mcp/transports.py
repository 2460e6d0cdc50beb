"""Transports of the MCP server: standard input and output, or streamable HTTP."""

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

from dagwright.process.listening import serving_app

PATH = "/mcp"


class StdioStreams:
    """The standard streams, reserved for the protocol: all other output goes to stderr.

    Create this object before tool modules are imported, because the modules may print.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input = os.fdopen(os.dup(0), "rb")
        self._output = os.fdopen(os.dup(1), "wb")
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.close(null_device)
        os.dup2(2, 1)

    async def lines(self) -> AsyncIterator[str]:
        """Yield the lines of the input until it ends.

        A daemon thread reads the lines: a blocking read cannot be cancelled, and must not delay the end of the process.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue()

        def read_lines() -> None:
            with suppress(RuntimeError):
                # The loop may be closed before the next line arrives.
                while line := self._input.readline():
                    loop.call_soon_threadsafe(queue.put_nowait, line)
                loop.call_soon_threadsafe(queue.put_nowait, b"")

        threading.Thread(target=read_lines, daemon=True).start()
        while line := await queue.get():
            yield line.decode("utf-8", "replace")

    def writer(self) -> TextIOWrapper:
        """Return a text stream to the client."""
        return TextIOWrapper(self._output, encoding="utf-8", newline="\n")


async def serve_stdio(server: Server[Any], streams: StdioStreams) -> None:
    """Serve one client until it closes standard input."""
    # `lines` is not a file, but `stdio_server` only iterates over it.
    lines = cast("anyio.AsyncFile[str]", streams.lines())
    async with stdio_server(lines, anyio.wrap_file(streams.writer())) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(server: Server[Any], listener: socket.socket, *, host: str) -> None:
    """Serve clients by streamable HTTP at `PATH` until cancelled.

    Args:
        host: host of the listener; for a loopback host, only requests with a loopback `Host` header are accepted.
    """
    app = server.streamable_http_app(streamable_http_path=PATH, host=host)
    async with server.session_manager.run(), serving_app(app, listener):
        await asyncio.Event().wait()
