"""Requests to a gateway whose Temporal server does not respond."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from dagwright.interfaces.http.upstream_timeout import UpstreamTimeoutMiddleware
from tests.unit.interfaces.http.conftest import status_and_code_of


class SlowGateway:
    def __init__(self, *, check_interval_s: float = 0.01) -> None:
        self.check_error: RPCStatusCode | None = None
        self.connection_checks = 0
        self.cancelled_handlers: list[str] = []
        self.release_event = asyncio.Event()
        app = FastAPI()

        @app.api_route("/slow", methods=["GET", "POST"])
        async def slow() -> str:
            try:
                await self.release_event.wait()
            except asyncio.CancelledError:
                self.cancelled_handlers.append("slow")
                raise
            return "here"

        @app.get("/stream")
        async def stream() -> StreamingResponse:
            async def chunks() -> AsyncIterator[str]:
                yield "a"
                await self.release_event.wait()
                yield "b"

            return StreamingResponse(chunks())

        @app.get("/broken")
        async def raise_error() -> None:
            raise ZeroDivisionError

        app.add_middleware(
            UpstreamTimeoutMiddleware, check_connection=self._check_connection, check_interval_s=check_interval_s
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    async def _check_connection(self) -> None:
        self.connection_checks += 1
        if self.connection_checks == 3:
            self.release_event.set()
        if self.check_error is not None:
            raise RPCError("no", self.check_error, b"")


async def test_read_request_fails_if_the_server_does_not_respond() -> None:
    gateway = SlowGateway()
    gateway.check_error = RPCStatusCode.DEADLINE_EXCEEDED
    response = await gateway.http.get("/slow")
    assert (*status_and_code_of(response), response.headers["retry-after"] != "") == (503, "server_unavailable", True)
    assert (gateway.connection_checks, gateway.cancelled_handlers) == (1, ["slow"])


async def test_slow_read_continues_while_the_server_responds_even_with_an_error() -> None:
    gateway = SlowGateway()
    response = await gateway.http.get("/slow")
    assert (response.status_code, response.json(), gateway.connection_checks) == (200, "here", 3)
    rejecting_gateway = SlowGateway()
    rejecting_gateway.check_error = RPCStatusCode.PERMISSION_DENIED
    assert (await rejecting_gateway.http.get("/slow")).json() == "here"


@pytest.mark.parametrize(("method", "path", "text"), [("POST", "/slow", '"here"'), ("GET", "/stream", "ab")])
async def test_writes_and_open_streams_are_not_cancelled(method: str, path: str, text: str) -> None:
    # The interval is long enough to receive the first piece of the stream on a busy machine.
    gateway = SlowGateway(check_interval_s=0.3)
    gateway.check_error = RPCStatusCode.DEADLINE_EXCEEDED

    async def release_later() -> None:
        await asyncio.sleep(0.6)
        gateway.release_event.set()

    response, _ = await asyncio.gather(gateway.http.request(method, path), release_later())
    assert (response.status_code, response.text, gateway.connection_checks) == (200, text, 0)


async def test_handler_error_is_raised_and_a_disconnect_cancels_the_handler() -> None:
    gateway = SlowGateway()
    with pytest.raises(ZeroDivisionError):
        await gateway.http.get("/broken")
    request: asyncio.Task[Any] = asyncio.create_task(gateway.http.get("/slow"))
    await asyncio.sleep(0.005)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert gateway.cancelled_handlers == ["slow"]
