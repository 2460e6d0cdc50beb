"""A real HTTP server in the role of a service agent, with the responses that a test defines."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.travel import serve_handler


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the service; with status 0 the service closes the connection instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """HTTP request that the service received."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def json_body(self) -> Any:
        return json.loads(self.body)


class AgentService:
    """A service that sends `replies` in order and repeats the last reply; `requests` are the received requests."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[ReceivedRequest] = []
        self.url = ""

    def respond(self, request: ReceivedRequest) -> Reply:
        self.requests.append(request)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def agent_service(*replies: Reply) -> Iterator[AgentService]:
    service = AgentService(*replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            reply = service.respond(
                ReceivedRequest({name.lower(): value for name, value in self.headers.items()}, body)
            )
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

    with serve_handler(Handler) as address:
        service.url = f"{address}/ask?token=hidden"
        yield service
