"""The middleware before all endpoints: hosts, origins, keys, limits, and a gateway that drains."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from dagwright.interfaces.http.access import AccessMiddleware
from dagwright.interfaces.http.allowed_hosts import AllowedHosts, split_at_commas
from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import ASGI_CALLER, ASGI_STREAM
from dagwright.interfaces.http.errors import install_error_handlers
from dagwright.interfaces.http.key_limits import KeyLimits, KeyUsage, StreamReservation
from tests.unit.interfaces.http.conftest import JSON, message_of, status_and_code_of


class GuardedGateway:
    """Gateway with the access middleware and three endpoints."""

    def __init__(self, folder: Path) -> None:
        self.stop_event = asyncio.Event()
        self.keys = KeyFile(folder / "keys.json")
        limits = KeyLimits(requests_per_minute=3, streams=1, runs=1, body_bytes=100, plan_bytes=100)
        self.usage = KeyUsage(limits, lambda: 0.0)
        app = FastAPI()
        install_error_handlers(app)
        app.add_middleware(
            AccessMiddleware,
            keys=self.keys,
            usage=self.usage,
            hosts=AllowedHosts(["gateway"]),
            stop_event=self.stop_event,
        )

        @app.post("/body")
        async def body(request: Request, fields: dict[str, Any]) -> dict[str, Any]:
            caller = request.scope[ASGI_CALLER]
            return {"owner": caller.owner, "field_count": len(fields)}

        @app.get("/stream")
        async def stream(request: Request) -> StreamingResponse:
            is_reserved = request.scope[ASGI_STREAM].reserve()

            async def chunks() -> AsyncIterator[str]:
                yield f": {is_reserved} {StreamReservation(self.usage, self.key_id).reserve()}\n\n"

            return StreamingResponse(chunks(), media_type="text/event-stream")

        @app.get("/readyz")
        async def readyz() -> dict[str, str]:
            return {}

        self.key_id = ""
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    def add_key(self, owner: str) -> dict[str, str]:
        """Add a key with all scopes, and return the headers of its requests."""
        key, text = self.keys.add(owner, list(KeyScope))
        self.key_id = key.id
        return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def guarded_gateway(tmp_path: Path) -> GuardedGateway:
    return GuardedGateway(tmp_path)


async def test_without_keys_all_calls_are_accepted(guarded_gateway: GuardedGateway) -> None:
    responses = [await guarded_gateway.http.post("/body", json={}) for _ in range(5)]
    assert [response.json()["owner"] for response in responses] == [None] * 5


async def test_key_identifies_the_caller(guarded_gateway: GuardedGateway) -> None:
    ann_headers = guarded_gateway.add_key("ann")
    assert (await guarded_gateway.http.post("/body", json={}, headers=ann_headers)).json()["owner"] == "ann"
    assert (await guarded_gateway.http.get("/readyz")).status_code == 200
    for headers in ({}, {"Authorization": "Bearer dw-x-y"}, {"Authorization": "Basic YTpi"}):
        response = await guarded_gateway.http.post("/body", json={}, headers=headers)
        assert (*status_and_code_of(response), response.headers["www-authenticate"]) == (
            401,
            "invalid_api_key",
            "Bearer",
        )


async def test_limit_of_invalid_keys_does_not_apply_to_valid_keys(guarded_gateway: GuardedGateway) -> None:
    ann_headers, invalid_headers = guarded_gateway.add_key("ann"), {"Authorization": "Bearer dw-x-y"}
    responses = [await guarded_gateway.http.post("/body", json={}, headers=invalid_headers) for _ in range(26)]
    assert [response.status_code for response in responses] == [401] * 20 + [429] * 6
    assert (responses[-1].headers["retry-after"], status_and_code_of(responses[-1])) == (
        "3",
        (429, "rate_limit_exceeded"),
    )
    assert (await guarded_gateway.http.post("/body", json={})).status_code == 401
    assert (await guarded_gateway.http.post("/body", json={}, headers=ann_headers)).status_code == 200


async def test_foreign_host_needs_a_key(guarded_gateway: GuardedGateway) -> None:
    foreign_headers = {"Host": "evil.example.com", "Origin": "https://evil.example.com"}
    assert status_and_code_of(await guarded_gateway.http.post("/body", json={}, headers=foreign_headers)) == (
        403,
        "foreign_host",
    )
    assert (await guarded_gateway.http.get("/readyz", headers=foreign_headers)).status_code == 200
    headers = {**foreign_headers, **guarded_gateway.add_key("ann")}
    assert (await guarded_gateway.http.post("/body", json={}, headers=headers)).status_code == 200


async def test_gateway_that_drains_or_cannot_read_its_keys_rejects_api_requests(
    guarded_gateway: GuardedGateway, tmp_path: Path
) -> None:
    guarded_gateway.stop_event.set()
    response = await guarded_gateway.http.post("/body", json={})
    assert (*status_and_code_of(response), response.headers["retry-after"]) == (503, "draining", "2")
    assert (await guarded_gateway.http.get("/readyz")).status_code == 200
    guarded_gateway.stop_event.clear()
    (tmp_path / "keys.json").write_text("{", encoding="utf-8")
    assert status_and_code_of(await guarded_gateway.http.post("/body", json={})) == (503, "keys_unreadable")


async def test_request_over_the_limit_gets_the_header_retry_after(guarded_gateway: GuardedGateway) -> None:
    ann_headers = guarded_gateway.add_key("ann")
    responses = [await guarded_gateway.http.post("/body", json={}, headers=ann_headers) for _ in range(4)]
    assert [response.status_code for response in responses] == [200] * 3 + [429]
    assert responses[-1].headers["retry-after"] == "20"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_too_large_body_is_rejected(guarded_gateway: GuardedGateway, is_streamed: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"a":"'
        for _ in range(20):
            yield b"x" * 10
        yield b'"}'

    content: Any = chunks() if is_streamed else b'{"a":"' + b"x" * 200 + b'"}'
    response = await guarded_gateway.http.post("/body", content=content, headers=JSON)
    assert status_and_code_of(response) == (413, "request_too_large")
    assert "100 bytes" in message_of(response)


async def test_stream_counts_against_the_limit_until_it_ends(guarded_gateway: GuardedGateway) -> None:
    text = (await guarded_gateway.http.get("/stream", headers=guarded_gateway.add_key("ann"))).text
    assert text == ": True False\n\n"
    assert StreamReservation(guarded_gateway.usage, guarded_gateway.key_id).reserve()


HOSTS = AllowedHosts(["gateway", "api.example.com"], ["https://a.example.com"])


def _rejection_code(hosts: AllowedHosts, host: str | None, origin: str | None = None) -> str | None:
    headers = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    rejection = hosts.rejection(Headers(headers))
    return None if rejection is None else rejection[0]


ALLOWED_HOSTS = ("localhost", "LOCALHOST:8484", "[::1]:8484", "10.0.0.7", "gateway:8484", None)
FOREIGN_HOSTS = ("evil.example.com", "localhost.example.com", "127.0.0.1.example.com", "[::1", "@localhost.")
FOREIGN_ORIGINS = ["https://evil.example.com", "http://localhost:3000", "http://localhost", "null", "", "http://["]


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        *((host, None, None) for host in ALLOWED_HOSTS),
        *((host, None, "foreign_host") for host in FOREIGN_HOSTS),
        ("localhost:8484", "http://localhost:8484", None),
        ("10.0.0.7:8484", "http://10.0.0.7:8484", None),
        ("localhost:8484", "https://a.example.com", None),
        # Here, a proxy terminates TLS and forwards the request to the address of the gateway.
        ("127.0.0.1:8484", "https://api.example.com", None),
        *(("localhost:8484", origin, "foreign_origin") for origin in (*FOREIGN_ORIGINS, "https://b.a.example.com")),
    ],
)
def test_only_hosts_and_origins_of_the_gateway_or_its_settings_are_accepted(
    host: str | None, origin: str | None, code: str | None
) -> None:
    assert _rejection_code(HOSTS, host, origin) == code


def test_listening_host_and_wildcards_are_allowed() -> None:
    hosts = AllowedHosts(listening_host="Box.example.com")
    assert _rejection_code(hosts, "box.example.com:8484", "http://box.example.com:8484") is None
    assert _rejection_code(hosts, "localhost:8484", "http://localhost:8484") is None
    assert _rejection_code(hosts, "box.example.com:8484", "http://box.example.com:3000") == "foreign_origin"
    assert _rejection_code(AllowedHosts(), "box.example.com:8484") == "foreign_host"
    assert _rejection_code(AllowedHosts(["*"], ["*"]), "evil.example.com", "https://evil.example.com") is None
    # An allowed host does not allow foreign origins.
    assert _rejection_code(AllowedHosts(["*"]), "a.example.com", "https://evil.example.com") == "foreign_origin"
    assert (split_at_commas(None), split_at_commas(" a, b,")) == ([], ["a", "b"])
