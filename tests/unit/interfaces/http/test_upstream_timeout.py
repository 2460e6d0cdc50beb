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


class Patient:
    def __init__(self, *, check_interval_s: float = 0.01) -> None:
        self.exists = True
        self.status = RPCStatusCode.DEADLINE_EXCEEDED
        self.reached = 0
        self.given_up: list[str] = []
        self.go_on = asyncio.Event()
        app = FastAPI()

        @app.api_route("/slow", methods=["GET", "POST"])
        async def slow() -> str:
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.given_up.append("slow")
                raise
            return "here"

        @app.get("/stream")
        async def stream() -> StreamingResponse:
            async def pieces() -> AsyncIterator[str]:
                yield "a"
                await self.go_on.wait()
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
        self.reached += 1
        if self.reached == 3:
            self.go_on.set()
        if not self.exists:
            raise RPCError("no", self.status, b"")


async def test_read_request_fails_if_the_server_does_not_respond() -> None:
    patient = Patient()
    patient.exists = False
    answer = await patient.http.get("/slow")
    assert (*error_of(answer), answer.headers["retry-after"] != "") == (503, "unavailable", True)
    assert (patient.reached, patient.given_up) == (1, ["slow"])


async def test_slow_read_continues_while_the_server_responds() -> None:
    patient = Patient()
    answer = await patient.http.get("/slow")
    assert (answer.status_code, answer.json(), patient.reached) == (200, "here", 3)
    silent = Patient()
    silent.exists, silent.status = False, RPCStatusCode.PERMISSION_DENIED
    assert (await silent.http.get("/slow")).json() == "here"


@pytest.mark.parametrize(("method", "path", "text"), [("POST", "/slow", '"here"'), ("GET", "/stream", "ab")])
async def test_writes_and_open_streams_are_not_cancelled(method: str, path: str, text: str) -> None:
    # Long enough for the first piece of the stream on a busy machine.
    patient = Patient(check_interval_s=0.3)
    patient.exists = False

    async def later() -> None:
        await asyncio.sleep(0.6)
        patient.go_on.set()

    answer, _ = await asyncio.gather(patient.http.request(method, path), later())
    assert (answer.status_code, answer.text, patient.reached) == (200, text, 0)


async def test_defect_is_raised_and_a_disconnect_cancels_the_request() -> None:
    patient = Patient()
    with pytest.raises(ZeroDivisionError):
        await patient.http.get("/broken")
    looking: asyncio.Task[Any] = asyncio.create_task(patient.http.get("/slow"))
    await asyncio.sleep(0.005)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert patient.given_up == ["slow"]
