"""Requests to a Temporal server that does not respond."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from dagwright.interfaces.http.upstream_timeout import UpstreamTimeoutMiddleware
from tests.unit.interfaces.http.conftest import error_of


class SlowGateway:
    def __init__(self, *, check_interval_s: float = 0.01) -> None:
        self.responds = True
        self.status = RPCStatusCode.DEADLINE_EXCEEDED
        self.checks = 0
        self.cancelled: list[str] = []
        self.released = asyncio.Event()
        app = FastAPI()

        @app.api_route("/slow", methods=["GET", "POST"])
        async def slow() -> str:
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.append("slow")
                raise
            return "here"

        @app.get("/stream")
        async def stream() -> StreamingResponse:
            async def pieces() -> AsyncIterator[str]:
                yield "a"
                await self.released.wait()
                yield "b"

            return StreamingResponse(pieces())

        @app.get("/broken")
        async def raise_error() -> None:
            raise ZeroDivisionError

        app.add_middleware(
            UpstreamTimeoutMiddleware, check_connection=self._check_connection, check_interval_s=check_interval_s
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    async def _check_connection(self) -> None:
        self.checks += 1
        if self.checks == 3:
            self.released.set()
        if not self.responds:
            raise RPCError("no", self.status, b"")


async def test_read_request_fails_if_the_server_does_not_respond() -> None:
    gateway = SlowGateway()
    gateway.responds = False
    answer = await gateway.http.get("/slow")
    assert (*error_of(answer), answer.headers["retry-after"] != "") == (503, "unavailable", True)
    assert (gateway.checks, gateway.cancelled) == (1, ["slow"])


async def test_slow_read_continues_while_the_server_responds() -> None:
    gateway = SlowGateway()
    answer = await gateway.http.get("/slow")
    assert (answer.status_code, answer.json(), gateway.checks) == (200, "here", 3)
    rejecting_gateway = SlowGateway()
    rejecting_gateway.responds, rejecting_gateway.status = False, RPCStatusCode.PERMISSION_DENIED
    assert (await rejecting_gateway.http.get("/slow")).json() == "here"


@pytest.mark.parametrize(("method", "path", "text"), [("POST", "/slow", '"here"'), ("GET", "/stream", "ab")])
async def test_writes_and_open_streams_are_not_cancelled(method: str, path: str, text: str) -> None:
    # Long enough for the first piece of the stream on a busy machine.
    gateway = SlowGateway(check_interval_s=0.3)
    gateway.responds = False

    async def later() -> None:
        await asyncio.sleep(0.6)
        gateway.released.set()

    answer, _ = await asyncio.gather(gateway.http.request(method, path), later())
    assert (answer.status_code, answer.text, gateway.checks) == (200, text, 0)


async def test_defect_is_raised_and_a_disconnect_cancels_the_request() -> None:
    gateway = SlowGateway()
    with pytest.raises(ZeroDivisionError):
        await gateway.http.get("/broken")
    request: asyncio.Task[Any] = asyncio.create_task(gateway.http.get("/slow"))
    await asyncio.sleep(0.005)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert gateway.cancelled == ["slow"]
