"""A real HTTP server that answers as a service agent does, or as a test wants."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What the service answers once.

    Args:
        status: 0 breaks the connection off.
        body: JSON, or bytes as they are.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


class AgentService:
    """What the service was asked, in order; it answers with `replies`, one after the other, the last for all others."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self.url = ""

    def take(self, asked: Asked) -> Reply:
        """Returns the answer."""
        self.asked.append(asked)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def agent_service(*replies: Reply) -> Iterator[AgentService]:
    """Serves for as long as the block lasts."""
    service = AgentService(*replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            reply = service.take(Asked({name.lower(): value for name, value in self.headers.items()}, body))
            if reply.status == 0:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            service.url = f"http://127.0.0.1:{server.server_address[1]}/ask?token=hidden"
            yield service
        finally:
            server.shutdown()
            thread.join()
