"""Looks at a server that does not answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from dagwright.interfaces.http.patience import Patience


class Patient:
    """An application whose server is there or not."""

    def __init__(self) -> None:
        self.is_there = True
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
        async def broken() -> None:
            raise ZeroDivisionError

        app.add_middleware(Patience, reach=self._reach, patience_s=0.01)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    async def _reach(self) -> None:
        self.reached += 1
        if self.reached == 3:
            self.go_on.set()
        if not self.is_there:
            raise RPCError("no", self.status, b"")


async def test_who_looks_is_told_that_the_server_does_not_answer() -> None:
    patient = Patient()
    patient.is_there = False
    answer = await patient.http.get("/slow")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert (patient.reached, patient.given_up) == (1, ["slow"])
    assert answer.headers["retry-after"]


async def test_look_that_takes_long_is_not_given_up_while_the_server_is_there() -> None:
    patient = Patient()
    answer = await patient.http.get("/slow")
    assert (answer.status_code, answer.json(), patient.reached) == (200, "here", 3)
    silent = Patient()
    silent.is_there, silent.status = False, RPCStatusCode.PERMISSION_DENIED
    assert (await silent.http.get("/slow")).json() == "here"


@pytest.mark.parametrize(("method", "path", "text"), [("POST", "/slow", '"here"'), ("GET", "/stream", "ab")])
async def test_what_is_being_done_or_told_is_left_alone(method: str, path: str, text: str) -> None:
    patient = Patient()
    patient.is_there = False

    async def later() -> None:
        await asyncio.sleep(0.1)
        patient.go_on.set()

    answer, _ = await asyncio.gather(patient.http.request(method, path), later())
    assert (answer.status_code, answer.text, patient.reached) == (200, text, 0)


async def test_defect_stays_one() -> None:
    with pytest.raises(ZeroDivisionError):
        await Patient().http.get("/broken")


async def test_client_that_leaves_ends_the_look() -> None:
    patient = Patient()
    looking: asyncio.Task[Any] = asyncio.create_task(patient.http.get("/slow"))
    await asyncio.sleep(0.005)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert patient.given_up == ["slow"]
