"""The application without a server: what is refused before anything is asked of Temporal, and when that is away."""

import asyncio
import json
import socket
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from dagwright.client.feedback import AnswerRefused
from dagwright.client.runs import Started
from dagwright.client.starts import StartRequest
from dagwright.history.run_reader import RunClosed
from dagwright.interfaces.http import app, examples
from dagwright.interfaces.http.jobs import id_of_key
from dagwright.interfaces.http.patience import Patience
from dagwright.worker.health import Readiness
from dagwright.worker.listening import address_of, listening, opened_socket
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


async def test_slow_request_reports_the_missing_server_and_no_defect(
    away: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, desk = away

    async def page_of_runs(**_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(desk.runs, "page_of_runs", page_of_runs)
    monkeypatch.setattr(app, "Patience", partial(Patience, patience_s=0.01))
    transport = httpx.ASGITransport(app.create_app(desk), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/v1/runs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
    assert client.asked == ["check_health"]


async def test_empty_key_is_none(away: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _, desk = away
    asked: list[str] = []

    async def start(request: StartRequest) -> Started:
        asked.append(str(request.workflow_id))
        return Started(asked[-1], "first", is_new=True)

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
    (problem,) = told["error"]["errors"]
    assert (problem["code"], problem["pointer"]) == ("unknown_tool", "/nodes/0/tool")
    text = "plan: 1\nnodes:\n  - id: a\n    tool: '?'\n"
    written = (await http.post("/v1/runs", json={"plan": text})).json()
    assert [(each["pointer"], each["line"]) for each in written["error"]["errors"]] == [("/nodes/0/tool", 4)]


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


@pytest.mark.parametrize("depth", [120, 400, 9_000])
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

    monkeypatch.setattr(Readiness, "problems", broken)
    transport = httpx.ASGITransport(app.create_app(replace(desk, settings=settings)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        found = await http.get("/readyz", headers={"Origin": page})
        other = await http.get("/readyz", headers={"Origin": "https://b.example.com"})
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (500, page)
    assert {"X-Run-Id", "Location"} <= {*found.headers["access-control-expose-headers"].split(", ")}
    assert "access-control-allow-origin" not in other.headers


async def test_page_of_another_port_of_the_address_it_listens_at_reaches_nothing(away: Apart) -> None:
    _, client, desk = away
    transport = httpx.ASGITransport(app.create_app(desk, host="127.0.0.1"), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8484") as http:
        other = await http.post("/v1/runs/run-1/cancel", headers={"Origin": "http://127.0.0.1:3000"})
        assert (other.status_code, other.json()["error"]["code"], client.asked) == (403, "foreign_origin", [])
        own = await http.post("/v1/runs/run-1/cancel", headers={"Origin": "http://127.0.0.1:8484"})
    assert (own.status_code, client.asked != []) == (503, True)


@pytest.mark.parametrize("metadata", ["a=\0", "a=\x1f", "a\0=b", "a=" + "x" * 300])
async def test_metadata_that_no_run_has_is_refused_at_once(away: Apart, metadata: str) -> None:
    http, client, _ = away
    refused = await http.get("/v1/runs", params={"metadata": metadata})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata")
    assert not client.asked


@pytest.mark.parametrize(
    ("status", "is_stopped", "told"),
    [
        ("running", True, {"ok": True, "message": "the run is being stopped already", "status": "running"}),
        ("cancelled", True, {"ok": True, "message": "the run is cancelled already", "status": "cancelled"}),
        ("completed", False, None),
    ],
)
async def test_second_cancel_tells_the_state_of_the_run(
    away: Apart, monkeypatch: pytest.MonkeyPatch, status: str, is_stopped: bool, told: dict[str, Any] | None
) -> None:
    http, _, desk = away

    async def refuse(*_: Any, **__: Any) -> str:
        if status == "running":
            raise AnswerRefused("the run is being stopped already")
        raise RunClosed("the run 'run-1' has ended")

    async def read() -> Any:
        scheduler = SimpleNamespace(is_stopped=is_stopped)
        return SimpleNamespace(is_closed=status != "running", status=status, scheduler=scheduler)

    monkeypatch.setattr(desk.steering, "cancel", refuse)
    monkeypatch.setattr(desk.runs, "feed", lambda _: SimpleNamespace(read=read))
    answer = await http.post("/v1/runs/run-1/cancel")
    if told is None:
        assert (answer.status_code, answer.json()["error"]["message"]) == (409, "the run 'run-1' has ended")
    else:
        assert (answer.status_code, answer.json()) == (200, {"run_id": "run-1", **told})


async def test_gateway_that_drains_is_not_ready(away: Apart) -> None:
    http, client, desk = away
    desk.leaving.set()
    answers = [await http.get(path) for path in ("/readyz", "/livez", "/v1/runs")]
    assert [each.status_code for each in answers] == [503, 200, 503]
    assert [answers[index].json()["error"]["code"] for index in (0, 2)] == ["draining"] * 2
    assert not client.asked


async def test_large_policy_is_refused(away: Apart) -> None:
    http, client, _ = away
    rule = {"tool": "x", "then": "ask", "arguments": {"description": "x" * 300_000}}
    for path, body in (("/v1/runs", {"template": "double"}), ("/v1/runs/run-1/policy", {})):
        refused = await http.post(path, json={**body, "policy": {"rules": [rule]}})
        assert (refused.status_code, "at most 262,144" in refused.json()["error"]["message"]) == (400, True)
    assert not client.asked


async def test_models_have_a_plausible_time(away: Apart) -> None:
    http, _, _ = away
    told = (await http.get("/v1/models/plan/double")).json()
    assert 1_700_000_000 < told["created"] < time.time()


@pytest.mark.parametrize(
    ("proxies", "counted"), [(None, "127.0.0.1"), ("10.0.0.1", "127.0.0.1"), ("127.0.0.0/8", "9.9.9.9")]
)
async def test_address_of_a_client_comes_only_from_proxies_that_are_named(proxies: str | None, counted: str) -> None:
    seen: list[str] = []

    async def told(scope: Any, _: Any, send: Any) -> None:
        seen.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    listener = opened_socket("127.0.0.1", 0)
    async with listening(told, listener, proxies=proxies), httpx.AsyncClient() as http:
        await http.get(address_of(listener), headers={"X-Forwarded-For": "9.9.9.9"})
    assert seen == [counted]


async def test_parts_of_a_stream_are_sent_at_once() -> None:
    sent_at_once: list[bool] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        sent_at_once.append(bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    listener = opened_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with await asyncio.start_server(accept, sock=listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert sent_at_once == [True]
