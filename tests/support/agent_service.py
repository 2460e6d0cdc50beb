"""A real HTTP server in the role of a service agent, with the responses that a test defines."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.http_servers import ReceivedRequest, ServiceResponse, serve_requests


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
    with serve_requests(service.respond) as address:
        service.url = f"{address}/ask?token=hidden"
        yield service
