"""Streams of a model over HTTP, without Temporal: they start immediately, even if the model is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr

from dagwright.interfaces.http import direct
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import open_context
from dagwright.interfaces.http.sse import HEARTBEAT
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.testing import HttpError, ModelServer, Silence, step
from dagwright.toolset.toolset import load_toolset
from tests.support.eventually import eventually
from tests.support.gateway import events_of
from tests.support.http_servers import serve_for_client
from tests.unit.interfaces.http.conftest import status_and_code_of

pytestmark = pytest.mark.waits

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
each_path = pytest.mark.parametrize("path", [CHAT, RESPONSES])
PAGE_ORIGIN = "https://page.example.com"
HEARTBEAT_COMMENT = HEARTBEAT.strip().removeprefix(": ")


def request_body(path: str) -> dict[str, Any]:
    message = {"input": "Hi."} if path == RESPONSES else {"messages": [{"role": "user", "content": "Hi."}]}
    return {"model": "small", "stream": True, **message}


@asynccontextmanager
async def gateway(folder: Path, model_answer: Any) -> AsyncIterator[tuple[httpx.AsyncClient, ModelServer]]:
    async with ModelServer(model_answer) as models:
        key = SecretStr("key")
        gateway_settings = {"openai_base_url": models.base_url, "openai_api_key": key, "api_origins": PAGE_ORIGIN}
        settings = Settings(state_dir=folder, model="small", **gateway_settings)
        connection = Connection(cast("Any", None), Server("nowhere", "default"), frozenset())
        async with (
            open_context(settings, connection, load_toolset(settings), templates={}, heartbeat_s=0.02) as context,
            serve_for_client(create_app(context), stop_event=context.stop_event) as http,
        ):
            yield http, models


@pytest.fixture
def short_start_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the headers of a stream 0.01 s after its request, even if the model has not responded."""
    monkeypatch.setattr(direct, "START_WAIT_S", 0.01)


@each_path
@pytest.mark.usefixtures("short_start_wait")
async def test_stream_starts_before_the_model_responds(tmp_path: Path, path: str) -> None:
    release_event = asyncio.Event()
    # The model sends no part of its answer before the event is set, so the first part of the stream is a heartbeat.
    answer = step("Hello.", release_event=release_event)
    async with gateway(tmp_path, answer) as (http, _), http.stream("POST", path, json=request_body(path)) as response:
        chunks = response.aiter_text()
        first_part = await anext(chunks)
        release_event.set()
        events = events_of(first_part + "".join([chunk async for chunk in chunks]))
    contents = [event.content for event in events if isinstance(event.content, dict)]
    if path == CHAT:
        text = "".join(choice["delta"].get("content") or "" for content in contents for choice in content["choices"])
    else:
        text = contents[-1]["response"]["output"][0]["content"][0]["text"]
    assert (response.status_code, response.headers["x-routing-mode"], text) == (200, "direct", "Hello.")
    assert [event.comment for event in events_of(first_part)] == [HEARTBEAT_COMMENT] * len(events_of(first_part))


@each_path
async def test_early_error_of_the_model_is_the_status_of_the_response(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, HttpError(429, "Slow down.", retry_after=3)) as (http, _):
        assert status_and_code_of(await http.post(path, json=request_body(path))) == (429, "rate_limit_exceeded")


@each_path
@pytest.mark.usefixtures("short_start_wait")
async def test_late_error_of_the_model_is_an_event_of_the_stream(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, HttpError(429, "Slow down.", retry_after=3, first_byte_delay_s=0.3)) as (http, _):
        response = await http.post(path, json=request_body(path))
    events = events_of(response.text.replace("event: error\n", ""))
    contents = [event.content for event in events if event.comment is None]
    assert response.status_code == 200
    if path == CHAT:
        assert [contents[0]["error"]["code"], *contents[1:]] == ["rate_limit_exceeded", "[DONE]"]
    else:
        (error,) = contents
        assert (error["type"], error["code"], error["sequence_number"]) == ("error", "rate_limit_exceeded", 0)


@each_path
@pytest.mark.usefixtures("short_start_wait")
async def test_model_call_is_cancelled_when_the_client_disconnects(tmp_path: Path, path: str) -> None:
    def model_call_tasks() -> list[str]:
        names = [cast("Any", task.get_coro()).__name__ for task in asyncio.all_tasks()]
        return [name for name in names if name in ("_first_chunk", "_model_response")]

    async with gateway(tmp_path, Silence()) as (http, models):
        async with http.stream("POST", path, json=request_body(path)):
            await eventually(lambda: len(models.calls) == 1)
            assert len(model_call_tasks()) == 1
        await eventually(lambda: not model_call_tasks())


@each_path
async def test_allowed_origin_can_read_the_header_x_should_retry(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, HttpError(401, "No.", code="invalid_api_key")) as (http, _):
        response = await http.post(path, json=request_body(path), headers={"Origin": PAGE_ORIGIN})
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert "x-should-retry" in response.headers["access-control-expose-headers"].split(", ")
