"""The application without a server: what is refused before anything is asked of Temporal, and when that is away."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.gateway import Desk, create_app, open_desk
from dagwright.people import AnswerRefused
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset import load_toolset

PLAN = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


class Away:
    """A client of Temporal whose server does not answer; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any, **__: Any) -> Any:
            self.asked.append(name)
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")

        async def listing(*_: Any, **__: Any) -> AsyncIterator[Any]:
            await ask()
            yield None

        if name == "get_workflow_handle":
            return lambda *_, **__: SimpleNamespace(
                id="run-1", describe=ask, execute_update=ask, signal=ask, cancel=ask
            )
        return listing if name == "list_workflows" else ask


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Away, Desk]]:
    client = Away()
    settings = Settings(state_dir=tmp_path, model="small")
    toolset = load_toolset(settings, ())
    connection = Connection(cast(Any, client), Server("nowhere", "default"), frozenset())
    async with open_desk(settings, connection, toolset, templates={}) as desk:
        transport = httpx.ASGITransport(create_app(desk), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield http, client, desk


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/runs", {"plan": PLAN}),
        ("GET", "/v1/runs", None),
        ("GET", "/v1/runs/run-1", None),
        ("GET", "/v1/runs/run-1/events", None),
        ("GET", "/v1/runs/run-1/events?after=1-5", None),
        ("GET", "/v1/runs/run-1/graph", None),
        ("GET", "/v1/runs/run-1/why", None),
        ("GET", "/v1/runs/run-1/nodes/sum", None),
        ("GET", "/v1/inbox", None),
        ("POST", "/v1/runs/run-1/feedback", {"answer": "yes"}),
        ("POST", "/v1/runs/run-1/pause", {}),
        ("POST", "/v1/runs/run-1/nodes/sum/retry", None),
        ("POST", "/v1/runs/run-1/fork", {}),
        ("GET", "/v1/orchestration/main", None),
        ("GET", "/v1/orchestration/main/events", None),
        ("POST", "/v1/orchestration/main/cancel", {}),
    ],
)
async def test_temporal_that_is_away_is_told_as_such(
    away: tuple[httpx.AsyncClient, Away, Desk], method: str, path: str, body: Any
) -> None:
    http, client, _ = away
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert client.asked


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("/v1/runs", b"{", "invalid_json"),
        ("/v1/runs", b"[]", "invalid_json"),
        ("/v1/runs", b"{}", "invalid_value"),
        ("/v1/runs", b'{"template": "a", "plan": {}}', "invalid_value"),
        ("/v1/runs", b'{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": "\\ud800"}}', "invalid_json"),
        ("/v1/runs", b'{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": NaN}}', "invalid_json"),
        ("/v1/runs", b'{"plan": {}, "timeout": 1}', "invalid_value"),
        ("/v1/runs/run-1/nodes", b'{"nodes": []}', "invalid_value"),
        ("/v1/runs/run-1/nodes/sum/result", b"{}", "invalid_value"),
        ("/v1/runs/run-1/feedback", b'{"answer": 1, "reqest": "check"}', "invalid_value"),
        ("/v1/runs/%00/cancel", b"{}", "invalid_session_id"),
    ],
)
async def test_wrong_request_is_refused_before_anything_is_asked(
    away: tuple[httpx.AsyncClient, Away, Desk], path: str, content: bytes, code: str
) -> None:
    http, client, _ = away
    answer = await http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
    assert not client.asked


async def test_form_is_told_what_to_send(away: tuple[httpx.AsyncClient, Away, Desk]) -> None:
    http, _, _ = away
    answer = await http.post("/v1/runs", data={"plan": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_plan_is_checked_without_a_server(away: tuple[httpx.AsyncClient, Away, Desk]) -> None:
    http, client, _ = away
    good = (await http.post("/v1/plans/check", json={"plan": PLAN})).json()
    text = (await http.post("/v1/plans/check", json={"plan": "plan: 1\nnodes: [{id: a, tool: calculater}]"})).json()
    assert (good["status"], good["nodes"], good["errors"]) == ("valid", 1, [])
    assert text["status"] == "invalid"
    assert text["errors"][0]["code"] == "unknown_tool"
    assert not client.asked


async def test_wrong_plan_names_no_field_of_another_request(away: tuple[httpx.AsyncClient, Away, Desk]) -> None:
    http, _, _ = away
    told = (await http.post("/v1/runs", json={"plan": {"plan": 1, "nodes": [{"id": "a", "tool": "?"}]}})).json()
    assert (told["error"]["code"], told["error"]["param"]) == ("unknown_tool", None)


async def test_what_a_run_refuses_is_told(
    away: tuple[httpx.AsyncClient, Away, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    http, _, desk = away

    async def refuse(*_: Any, **__: Any) -> str:
        raise AnswerRefused("the run is paused already")

    monkeypatch.setattr(type(desk.steering), "steer", refuse)
    told = await http.post("/v1/runs/run-1/pause")
    assert (told.status_code, told.json()["error"]["param"]) == (400, None)
    assert told.json()["error"]["message"] == "the run is paused already"
