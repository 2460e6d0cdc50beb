"""A small HTTP/1.1 server whose responses can fail in every way: cut off, reset, or never sent.

h11 implements the protocol. This module reads and writes the sockets, because existing servers cannot break a
connection in the middle of a response.
"""

import asyncio
import json
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import h11

from dagwright.testing.script import ScriptNotFollowed

MAX_BODY_BYTES = 64 * 1024 * 1024
JSON_TYPE = {"content-type": "application/json"}
_READ_BYTES = 64 * 1024


class ConnectionGone(Exception):
    """The client or the script has closed the connection."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request with its complete body; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class ResponseSender:
    """Sender of the response to one request."""

    def __init__(self, protocol: h11.Connection, writer: asyncio.StreamWriter) -> None:
        self._protocol = protocol
        self._writer = writer

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of the response; without a length, the body is chunked."""
        await self._send(h11.Response(status_code=status, headers=list(headers.items())))

    async def write(self, content: bytes) -> None:
        """Send a part of the body."""
        await self._send(h11.Data(data=content))

    async def end(self) -> None:
        """End the body normally."""
        await self._send(h11.EndOfMessage())

    async def send_response(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        await self.start(status, {**headers, "content-length": str(len(body))})
        await self.write(body)
        await self.end()

    async def send_json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Send a complete JSON response."""
        await self.send_response(
            status, json.dumps(body, ensure_ascii=False).encode(), {**JSON_TYPE, **(headers or {})}
        )

    def reset(self) -> None:
        """Reset the connection, so that the client gets an RST.

        Raises:
            ConnectionGone: always.
        """
        sock = self._writer.get_extra_info("socket")
        # Closing without lingering discards unsent data and sends a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        raise ConnectionGone

    async def close(self) -> None:
        """Close the connection in the middle of the response, after flushing the written part.

        Raises:
            ConnectionGone: always.
        """
        await self._writer.drain()
        self._writer.close()
        raise ConnectionGone

    async def _send(self, event: h11.Event) -> None:
        content = self._protocol.send(event)
        if content:
            self._writer.write(content)
            try:
                await self._writer.drain()
            except ConnectionError as error:
                raise ConnectionGone from error


Handler = Callable[[ReceivedRequest, ResponseSender], Awaitable[None]]


class HttpServer:
    """An HTTP server on one port; use it in `async with`."""

    def __init__(self, handler: Handler, *, host: str, port: int) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._address = ""
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Return host and port; available after the start of the server, and also after its end."""
        assert self._address, "the server is not started"
        return self._address

    async def __aenter__(self) -> "HttpServer":
        self._server = await asyncio.start_server(self._handle_connection, self._host, self._port)
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._handle_requests(reader, writer)
        except (ConnectionGone, ConnectionError, h11.RemoteProtocolError):
            pass
        except asyncio.CancelledError:
            # The server is stopping. If the task ended as cancelled, asyncio would print its traceback.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _handle_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = h11.Connection(h11.SERVER)
        while True:
            request = await _next_request(protocol, reader, writer)
            if request is None:
                return
            response_task = asyncio.ensure_future(self._handler(request, ResponseSender(protocol, writer)))
            # The client sends its next request after this response. If the data of the client ends before the response,
            # the client has disconnected.
            disconnect_task = asyncio.ensure_future(_wait_for_disconnect(reader, protocol))
            try:
                await asyncio.wait({response_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
                if not response_task.done():
                    return
                response_task.result()
            finally:
                disconnect_task.cancel()
                response_task.cancel()
                await asyncio.gather(disconnect_task, response_task, return_exceptions=True)
            if protocol.our_state is h11.MUST_CLOSE or protocol.their_state is not h11.DONE:
                return
            protocol.start_next_cycle()


async def _wait_for_disconnect(reader: asyncio.StreamReader, protocol: h11.Connection) -> None:
    while content := await reader.read(_READ_BYTES):
        protocol.receive_data(content)


async def _next_request(
    protocol: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> ReceivedRequest | None:
    """Return the next request of a connection; `None` if the client has closed the connection."""
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            if protocol.they_are_waiting_for_100_continue:
                writer.write(protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            protocol.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise ConnectionGone
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            return ReceivedRequest(head.method.decode(), head.target.decode(), headers, bytes(body))
        else:
            return None


class ScriptedServer(ABC):
    """A server that strictly follows a script; use it in `async with`.

    Raises:
        ScriptNotFollowed: at the end of the block. If the block ends with an error, the report is added to that
            error as a note instead, because the first failure may be the cause.
    """

    def __init__(self, *, host: str, port: int) -> None:
        self._http = HttpServer(self._answer, host=host, port=port)

    @abstractmethod
    def report(self) -> str:
        """Return a readable report of all deviations from the script; empty if there are none."""

    @abstractmethod
    async def _answer(self, request: ReceivedRequest, sender: ResponseSender) -> None:
        """Send the response to one request."""

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)
        report = self.report()
        if report and error is None:
            raise ScriptNotFollowed(report)
        if report and error is not None:
            error.add_note(report)
