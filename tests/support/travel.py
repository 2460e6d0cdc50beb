"""The travel service of examples/travel, and other HTTP handlers, served by threads of this process."""

import runpy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "travel"


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
def travel_service() -> Iterator[str]:
    with serve_handler(runpy.run_path(str(EXAMPLE / "server.py"))["Handler"]) as address:
        yield address
