"""HTTP servers for tests: handlers, constant responses and POST requests in threads, and ASGI applications."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
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
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """HTTP request that a server received."""

    headers: Mapping[str, str]
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
def serve_response(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve the same response to every GET request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serve_handler(Handler) as address:
        yield address


@contextmanager
def serve_posts(respond: Callable[[ReceivedRequest], ServiceResponse]) -> Iterator[str]:
    """Serve POST requests inside the block, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            response = respond(ReceivedRequest({name.lower(): value for name, value in self.headers.items()}, body))
            if response.status == 0:
                self.close_connection = True
                return
            self.send_response(response.status)
            for name, value in {**response.headers, "Content-Length": str(len(response.content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serve_handler(Handler) as address:
        yield address


@asynccontextmanager
async def serve_for_client(app: ASGIApp, *, stop_event: asyncio.Event) -> AsyncIterator[httpx.AsyncClient]:
    """Serve an application inside the block; yield a client for it."""
    listener = open_socket("127.0.0.1", 0)
    async with (
        serving_app(app, listener, stop_event=stop_event),
        httpx.AsyncClient(base_url=address_of(listener), timeout=60) as http,
    ):
        yield http
