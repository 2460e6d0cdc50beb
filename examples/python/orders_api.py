"""An HTTP API with orders in pages: `python examples/python/orders_api.py` prints its address and serves until stopped.

The first request of every page gets 503 with `Retry-After`, as busy APIs answer.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE_COUNT = 3
PAGE_SIZE = 4
_requested_pages: set[int] = set()


def orders(page: int) -> list[dict[str, str | int]]:
    """Return the orders of a page; every fifth order has no valid amount."""
    numbers = range(page * PAGE_SIZE, (page + 1) * PAGE_SIZE)
    return [{"id": f"o-{n}", "customer": f"c-{n % 3}", "cents": "?" if n % 5 == 4 else 1000 + 250 * n} for n in numbers]


class Handler(BaseHTTPRequestHandler):
    """Serves `/pages` and `/orders?page=N`."""

    def do_GET(self) -> None:
        """Answer a GET."""
        url = urlsplit(self.path)
        if url.path == "/pages":
            self._send(200, {"pages": list(range(PAGE_COUNT))})
            return
        page = int(parse_qs(url.query).get("page", ["0"])[0])
        if page not in _requested_pages:
            _requested_pages.add(page)
            self._send(503, {"error": "busy"}, {"Retry-After": "1"})
        else:
            self._send(200, {"orders": orders(page)})

    def _send(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
