"""What stands before all endpoints, with an application that tells who calls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse

from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.desk import CALLER, STREAM
from dagwright.interfaces.http.errors import install_errors
from dagwright.interfaces.http.guard import Guard
from dagwright.interfaces.http.hosts import Hosts
from dagwright.interfaces.http.keys import KeyFile
from dagwright.interfaces.http.limits import Limits, StreamOfKey, Uses


class Guarded:
    """An application behind a guard."""

    def __init__(self, folder: Path) -> None:
        self.leaving = asyncio.Event()
        self.keys = KeyFile(folder / "keys.json")
        self.uses = Uses(Limits(requests_a_minute=3, streams=1, runs=1, body_bytes=100, plan_bytes=100), lambda: 0.0)
        app = FastAPI()
        install_errors(app)
        app.add_middleware(Guard, keys=self.keys, uses=self.uses, hosts=Hosts(["gateway"]), leaving=self.leaving)

        @app.post("/body")
        async def body(request: Request, given: dict[str, Any]) -> dict[str, Any]:
            caller = request.scope[CALLER]
            return {"owner": caller.owner, "given": len(given), "streams": 0}

        @app.get("/stream")
        async def stream(request: Request) -> StreamingResponse:
            is_open = request.scope[STREAM].opens()

            async def pieces() -> AsyncIterator[str]:
                yield f": {is_open} {StreamOfKey(self.uses, self.id).opens()}\n\n"

            return StreamingResponse(pieces(), media_type="text/event-stream")

        @app.get("/readyz")
        async def readyz() -> dict[str, str]:
            return {}

        self.id = ""
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    def key_of(self, owner: str) -> dict[str, str]:
        key, text = self.keys.add(owner, list(Scope))
        self.id = key.id
        return {"Authorization": f"Bearer {text}"}


async def test_everybody_is_let_in_where_there_are_no_keys(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    answers = [await guarded.http.post("/body", json={}) for _ in range(5)]
    assert [each.json()["owner"] for each in answers] == [None] * 5


async def test_key_says_who_calls(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    ann = guarded.key_of("ann")
    assert (await guarded.http.post("/body", json={}, headers=ann)).json()["owner"] == "ann"
    assert (await guarded.http.get("/readyz")).status_code == 200
    for headers in ({}, {"Authorization": "Bearer dw-x-y"}, {"Authorization": "Basic YTpi"}):
        refused = await guarded.http.post("/body", json={}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert refused.headers["www-authenticate"] == "Bearer"


async def test_invalid_keys_are_limited_and_valid_ones_are_not(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    ann = guarded.key_of("ann")
    wrong = {"Authorization": "Bearer dw-x-y"}
    statuses = [(await guarded.http.post("/body", json={}, headers=wrong)).status_code for _ in range(25)]
    refused = await guarded.http.post("/body", json={}, headers=wrong)
    assert statuses == [401] * 20 + [429] * 5
    assert (refused.headers["retry-after"], refused.json()["error"]["code"]) == ("3", "rate_limit_exceeded")
    assert (await guarded.http.post("/body", json={})).status_code == 401
    assert (await guarded.http.post("/body", json={}, headers=ann)).status_code == 200


async def test_key_lets_in_from_everywhere_what_is_refused_without_one(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    foreign = {"Host": "evil.example.com", "Origin": "https://evil.example.com"}
    refused = await guarded.http.post("/body", json={}, headers=foreign)
    health = await guarded.http.get("/readyz", headers=foreign)
    taken = await guarded.http.post("/body", json={}, headers={**foreign, **guarded.key_of("ann")})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_host")
    assert (health.status_code, taken.status_code) == (200, 200)


async def test_unreadable_keys_let_nobody_in(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    (tmp_path / "keys.json").write_text("{", encoding="utf-8")
    refused = await guarded.http.post("/body", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "keys_unreadable")


async def test_too_many_requests_are_told_when_there_is_room(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    ann = guarded.key_of("ann")
    statuses = [(await guarded.http.post("/body", json={}, headers=ann)).status_code for _ in range(3)]
    refused = await guarded.http.post("/body", json={}, headers=ann)
    assert statuses == [200] * 3
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "20")


@pytest.mark.parametrize("is_told", [True, False])
async def test_body_that_is_too_large_is_refused_whether_or_not_its_size_is_told(
    tmp_path: Path, *, is_told: bool
) -> None:
    guarded = Guarded(tmp_path)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"a":"'
        for _ in range(20):
            yield b"x" * 10
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    content: Any = b'{"a":"' + b"x" * 200 + b'"}' if is_told else pieces()
    refused = await guarded.http.post("/body", content=content, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")
    assert "100 bytes" in refused.json()["error"]["message"]


async def test_gateway_that_drains_refuses_requests_and_reports_it(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.leaving.set()
    refused = await guarded.http.post("/body", json={})
    assert (refused.status_code, refused.json()["error"]["code"], refused.headers["retry-after"]) == (
        503,
        "draining",
        "2",
    )
    assert (await guarded.http.get("/readyz")).status_code == 200


async def test_stream_counts_until_it_has_ended(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    ann = guarded.key_of("ann")
    during = (await guarded.http.get("/stream", headers=ann)).text
    assert during == ": True False\n\n"
    assert StreamOfKey(guarded.uses, guarded.id).opens()
