"""HTTP servers for tests: request handlers that run in threads, and ASGI applications."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from starlette.types import ASGIApp

from dagwright.process.listening import address_of, open_socket, serving_app


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A response of a server. For status 0, the server closes the connection without a response."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """HTTP request that a server received."""

    method: str
    path: str
    headers: httpx.Headers
    body: bytes

    @property
    def json_body(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serve_handler(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serve_requests(
    respond: Callable[[ReceivedRequest], ServiceResponse], *, protocol: str = "HTTP/1.0"
) -> Iterator[str]:
    """Serve requests of all methods inside the block, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            response = respond(ReceivedRequest(self.command, self.path, httpx.Headers(self.headers.items()), body))
            if response.status == 0:
                self.close_connection = True
                return
            self.send_response(response.status)
            for name, value in {**response.headers, "Content-Length": str(len(response.content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serve_handler(Handler) as address:
        yield address


def serve_response(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> AbstractContextManager[str]:
    """Serve the same response to every request."""
    response = ServiceResponse(status, body, headers or {})
    return serve_requests(lambda _: response)


@asynccontextmanager
async def serve_for_client(app: ASGIApp, *, stop_event: asyncio.Event) -> AsyncIterator[httpx.AsyncClient]:
    """Serve an application inside the block; yield a client for it."""
    listener = open_socket("127.0.0.1", 0)
    async with (
        serving_app(app, listener, stop_event=stop_event),
        httpx.AsyncClient(base_url=address_of(listener), timeout=60) as http,
    ):
        yield http
