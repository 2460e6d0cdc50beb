"""The application without a server: what is refused before anything is asked of Temporal, and when that is away."""

import json
from dataclasses import replace
from threading import get_ident, main_thread
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from dagwright.client import Started
from dagwright.gateway import app, examples
from dagwright.gateway.jobs import id_of_key
from dagwright.people import AnswerRefused
from tests.unit.gateway.conftest import Apart


def chat(model: str, **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi."}], **more}).encode()


PLAN = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


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
        ("POST", "/v1/orchestration/main/cancel", None),
    ],
)
async def test_temporal_that_is_away_is_told_as_such(away: Apart, method: str, path: str, body: Any) -> None:
    http, client, _ = away
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert client.asked


async def test_empty_key_is_none(away: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _, desk = away
    asked: list[str] = []

    async def start(*_: Any, workflow_id: str, **__: Any) -> Started:
        asked.append(workflow_id)
        return Started(workflow_id, "first", is_new=True)

    monkeypatch.setattr(desk.runs, "start", start)
    for key in ("", "", "one", "one"):
        await http.post("/v1/runs", json={"plan": PLAN}, headers={"Idempotency-Key": key})
    assert (len({*asked}), asked[2:]) == (3, [id_of_key("one")] * 2)


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("/v1/runs", b"{", "invalid_json"),
        ("/v1/runs", b"[]", "invalid_json"),
        ("/v1/runs", b"{}", "invalid_value"),
        ("/v1/runs", b'{"template": "a", "plan": {}}', "invalid_value"),
        ("/v1/runs", b'{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": "\\ud800"}}', "invalid_json"),
        ("/v1/runs", b'{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": NaN}}', "invalid_json"),
        ("/v1/runs", b'{"plan": {}, "deadline": 1}', "invalid_value"),
        ("/v1/runs", b'{"template": "double", "deadline": "soon"}', "invalid_value"),
        ("/v1/runs/run-1/nodes", b'{"nodes": []}', "invalid_value"),
        ("/v1/runs/run-1/nodes/sum/result", b"{}", "invalid_value"),
        ("/v1/runs/run-1/feedback", b'{"answer": 1, "reqest": "check"}', "invalid_value"),
        ("/v1/runs/%00/cancel", b"{}", "invalid_run_id"),
        ("/v1/chat/completions", chat("plan/double", session_id="\0"), "invalid_session_id"),
        ("/v1/chat/completions", chat("small", max_rounds=3), "invalid_value"),
        ("/v1/chat/completions", chat("plan/double", worker_timeout="2m"), "invalid_value"),
        ("/v1/chat/completions", chat("plan/double", session_id="a/b"), "invalid_session_id"),
        ("/v1/chat/completions", chat("plan/double", session_id="."), "invalid_session_id"),
        ("/v1/chat/completions", chat("plan/double", session_id=" .. "), "invalid_session_id"),
        ("/v1/chat/completions", chat("plan/double", n=2), "unsupported_parameter"),
        ("/v1/responses", b'{"model": "small", "input": "Hi.", "max_rounds": 3}', "invalid_value"),
    ],
)
async def test_wrong_request_is_refused_before_anything_is_asked(
    away: Apart, path: str, content: bytes, code: str
) -> None:
    http, client, _ = away
    answer = await http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
    assert not client.asked


@pytest.mark.parametrize("id", ["run-2/1-3", "/1-3", "run-2/1-9e"])
async def test_place_in_the_events_of_another_run_is_refused(away: Apart, id: str) -> None:
    http, client, _ = away
    path = "/v1/runs/run-1/events"
    for answer in (await http.get(path, headers={"Last-Event-ID": id}), await http.get(path, params={"after": id})):
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after"), answer.text
    assert not client.asked


async def test_unknown_state_is_refused_and_those_there_are_are_told(away: Apart) -> None:
    http, client, _ = away
    refused = await http.get("/v1/runs?status=runing")
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], client.asked) == (400, "status", [])
    assert "'running', 'waiting'" in error["message"]


async def test_form_is_told_what_to_send(away: Apart) -> None:
    http, _, _ = away
    answer = await http.post("/v1/runs", data={"plan": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_plan_is_checked_without_a_server(away: Apart) -> None:
    http, client, _ = away
    good = (await http.post("/v1/plans/check", json={"plan": PLAN})).json()
    text = (await http.post("/v1/plans/check", json={"plan": "plan: 1\nnodes: [{id: a, tool: calculater}]"})).json()
    assert (good["status"], good["nodes"], good["errors"]) == ("valid", 1, [])
    assert text["status"] == "invalid"
    assert (text["errors"][0]["code"], text["errors"][0]["line"]) == ("unknown_tool", 2)
    assert not client.asked


async def test_published_plan_is_told_as_its_example(away: Apart) -> None:
    http, client, _ = away
    assert (await http.get("/v1/plans/double")).json() == examples.PUBLISHED
    unknown = await http.get("/v1/plans/dubble")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert "'double'" in unknown.json()["error"]["message"]
    assert not client.asked


async def test_wrong_plan_names_no_field_of_another_request(away: Apart) -> None:
    http, _, _ = away
    told = (await http.post("/v1/runs", json={"plan": {"plan": 1, "nodes": [{"id": "a", "tool": "?"}]}})).json()
    assert (told["error"]["code"], told["error"]["param"]) == ("unknown_tool", None)


async def test_what_a_run_refuses_is_told(away: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _, desk = away

    async def refuse(*_: Any, **__: Any) -> str:
        raise AnswerRefused("the run is paused already")

    monkeypatch.setattr(type(desk.steering), "steer", refuse)
    told = await http.post("/v1/runs/run-1/pause")
    assert (told.status_code, told.json()["error"]["param"]) == (400, None)
    assert (told.json()["error"]["message"], told.json()["error"]["code"]) == ("the run is paused already", "refused")


async def test_wrong_inputs_name_the_field_in_which_they_stand(away: Apart) -> None:
    http, client, _ = away
    told = [
        (await http.post("/v1/chat/completions", json={**body, "model": "plan/double"})).json()["error"]
        for body in (
            {"messages": [{"role": "user", "content": "Go."}], "inputs": {"number": "many"}},
            {"messages": [{"role": "user", "content": '{"number": "many"}'}]},
        )
    ]
    assert [each["param"] for each in told] == ["inputs", "messages"]
    assert not client.asked


async def test_plan_with_conditions_is_prepared_outside_of_the_event_loop(away: Apart) -> None:
    http, client, _ = away
    nodes = [
        {"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}},
        {
            "id": "each",
            "tool": "calculator",
            "for_each": "{{PLACEHOLDER_some}}",
            "when": "sum.result > 2 && inputs.go",
            "arguments": {"expression": "{{item}} * 2"},
        },
    ]
    plan = {"plan": 1, "inputs": {"go": {"type": "boolean"}, "some": {"type": "array"}}, "nodes": nodes}
    checked = (await http.post("/v1/plans/check", json={"plan": plan})).json()
    started = await http.post("/v1/runs", json={"plan": plan, "inputs": {"go": True, "some": [1]}})
    assert checked["status"] == "valid", checked["errors"]
    assert started.status_code == 503
    assert client.asked


def _deep(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [120, 400, 20_000])
@pytest.mark.parametrize(
    ("method", "path", "before", "after"),
    [
        ("GET", "/v1/runs", "", ""),
        ("POST", "/v1/runs/run-1/resume", "", ""),
        ("POST", "/v1/plans/check", '{"plan": {"plan": 1, "nodes": [{"id": "a", "arguments": {"x": ', "}}]}}"),
        ("POST", "/v1/runs", '{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": ', "}}"),
        ("POST", "/v1/runs/run-1/feedback", '{"answer": ', "}"),
        ("POST", "/v1/chat/completions", '{"messages": [{"role": "user", "content": [{"a": ', "}]}]}"),
    ],
)
async def test_what_nests_too_deep_is_refused_in_words(
    away: Apart, method: str, path: str, before: str, after: str, depth: int
) -> None:
    http, client, _ = away
    content = f"{before}{_deep(depth)}{after}"
    answer = await http.request(method, path, content=content, headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"] in ("too_large", "invalid_json")) == (400, True), answer.text
    assert "deep" in error["message"]
    assert not client.asked


async def test_large_body_is_looked_through_beside_the_event_loop(away: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _, _ = away
    where: list[bool] = []
    monkeypatch.setattr(app, "refuse_unsendable", lambda _: where.append(get_ident() == main_thread().ident))
    for size in (10, 2_000_000):
        await http.post("/v1/plans/check", json={"plan": {"plan": 1, "title": "x" * size, "nodes": []}})
    assert where == [True, False]


async def test_page_of_another_site_reaches_nothing(away: Apart) -> None:
    http, client, _ = away
    cancel = "/v1/runs/run-1/cancel"
    renamed = await http.get("/v1/runs", headers={"Host": "evil.example.com"})
    posted = await http.post(cancel, headers={"Origin": "https://evil.example.com"})
    sandboxed = await http.post(cancel, headers={"Origin": "null"})
    assert [each.status_code for each in (renamed, posted, sandboxed)] == [403] * 3
    assert renamed.json()["error"]["code"] == "foreign_host"
    assert posted.json()["error"]["code"] == "foreign_origin"
    assert not client.asked
    # The console is a page of the gateway itself.
    own = await http.post(cancel, headers={"Origin": "http://localhost"})
    assert (own.status_code, client.asked != []) == (503, True)


async def test_page_of_an_origin_that_is_named_reads_a_defect_too(away: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, desk = away
    page = "https://a.example.com"
    settings = desk.settings.model_copy(update={"api_origins": page})

    def broken(_: object) -> None:
        raise AssertionError("no")

    monkeypatch.setattr(app, "told_json", broken)
    monkeypatch.setattr(type(desk.runs), "reach", AsyncMock())
    transport = httpx.ASGITransport(app.create_app(replace(desk, settings=settings)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        found = await http.get("/healthz", headers={"Origin": page})
        other = await http.get("/healthz", headers={"Origin": "https://b.example.com"})
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (500, page)
    assert "access-control-allow-origin" not in other.headers


async def test_page_of_another_port_of_the_address_it_listens_at_reaches_nothing(away: Apart) -> None:
    _, client, desk = away
    transport = httpx.ASGITransport(app.create_app(desk, host="127.0.0.1"), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8484") as http:
        other = await http.post("/v1/runs/run-1/cancel", headers={"Origin": "http://127.0.0.1:3000"})
        assert (other.status_code, other.json()["error"]["code"], client.asked) == (403, "foreign_origin", [])
        own = await http.post("/v1/runs/run-1/cancel", headers={"Origin": "http://127.0.0.1:8484"})
    assert (own.status_code, client.asked != []) == (503, True)
