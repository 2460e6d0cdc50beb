"""A real HTTP server in the role of a service agent, with the responses that a test defines."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.travel import serve_handler


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A response of the service. For status 0, the service closes the connection without a response."""

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
    """A service that sends `responses` in order and repeats the last response."""

    def __init__(self, *responses: ServiceResponse) -> None:
        self.responses = list(responses)
        self.requests: list[ReceivedRequest] = []
        self.url = ""

    def respond(self, request: ReceivedRequest) -> ServiceResponse:
        self.requests.append(request)
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


@contextmanager
def agent_service(*responses: ServiceResponse) -> Iterator[AgentService]:
    service = AgentService(*responses)
    with serve_posts(service.respond) as address:
        service.url = f"{address}/ask?token=hidden"
        yield service


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
