"""The application without Temporal: requests that are rejected before a call to Temporal, and outages of Temporal."""

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

from dagwright.client.errors import CommandRejected
from dagwright.client.starts import StartedRun, StartRequest
from dagwright.history.executions import RunClosed
from dagwright.interfaces.http import app, examples
from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.interfaces.http.upstream_timeout import UpstreamTimeoutMiddleware
from dagwright.process.health import Readiness
from dagwright.process.listening import address_of, open_socket, serving_app
from tests.unit.interfaces.http.conftest import (
    JSON,
    OfflineGateway,
    client_of,
    message_of,
    status_and_code_of,
    status_and_param_of,
)


def chat_body(model: str, **fields: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi."}], **fields}).encode()


PLAN: dict[str, Any] = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/runs", {"plan": PLAN}),
        ("GET", "/v1/runs/run-1/events?after=1-5", None),
        ("GET", "/v1/inbox", None),
        ("POST", "/v1/sessions/main/cancel", None),
    ],
)
async def test_unreachable_temporal_is_reported_as_unavailable(
    offline_gateway: OfflineGateway, method: str, path: str, body: Any
) -> None:
    http, client, _ = offline_gateway
    response = await http.request(method, path, json=body)
    assert status_and_code_of(response) == (503, "server_unavailable"), response.text
    assert int(response.headers["retry-after"]) >= 1
    assert client.calls


async def test_slow_request_fails_if_temporal_does_not_respond(
    offline_gateway: OfflineGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, context = offline_gateway

    async def wait_forever(**_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(context.runs, "page_of_runs", wait_forever)
    monkeypatch.setattr(app, "UpstreamTimeoutMiddleware", partial(UpstreamTimeoutMiddleware, check_interval_s=0.01))
    async with client_of(context) as http:
        assert status_and_code_of(await http.get("/v1/runs")) == (503, "server_unavailable")
    assert client.calls == ["check_health"]


async def test_empty_idempotency_key_counts_as_no_key(
    offline_gateway: OfflineGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, _, context = offline_gateway
    run_ids: list[str] = []

    async def start(request: StartRequest) -> StartedRun:
        run_ids.append(str(request.run_id))
        return StartedRun(run_ids[-1], "first", is_new=True)

    monkeypatch.setattr(context.runs, "start", start)
    for key in ("", "", "key-1", "key-1"):
        await http.post("/v1/runs", json={"plan": PLAN}, headers={"Idempotency-Key": key})
    assert (len({*run_ids}), run_ids[2:]) == (3, [run_id_of_key("key-1")] * 2)


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("/v1/runs", b"[]", "invalid_json"),
        ("/v1/runs", b"{}", "invalid_value"),
        ("/v1/runs", b'{"template": "a", "plan": {}}', "invalid_value"),
        ("/v1/runs", b'{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": "\\ud800"}}', "invalid_json"),
        ("/v1/runs", b'{"plan": {}, "deadline": 1}', "invalid_value"),
        ("/v1/runs", b'{"template": "double", "deadline": "soon"}', "invalid_value"),
        ("/v1/runs/run-1/nodes", b'{"nodes": []}', "invalid_value"),
        ("/v1/runs/run-1/nodes/sum/result", b"{}", "invalid_value"),
        ("/v1/runs/run-1/feedback", b'{"answer": 1, "reqest": "check"}', "invalid_value"),
        ("/v1/runs/%00/cancel", b"{}", "invalid_run_id"),
        ("/v1/chat/completions", chat_body("plan/double", session_id="\0"), "invalid_session_id"),
        ("/v1/chat/completions", chat_body("small", max_rounds=3), "invalid_value"),
        ("/v1/chat/completions", chat_body("plan/double", worker_timeout="2m"), "invalid_value"),
        ("/v1/chat/completions", chat_body("plan/double", session_id="a/b"), "invalid_session_id"),
        ("/v1/chat/completions", chat_body("plan/double", n=2), "unsupported_parameter"),
        ("/v1/responses", b'{"model": "small", "input": "Hi.", "max_rounds": 3}', "invalid_value"),
    ],
)
async def test_invalid_request_is_rejected_without_a_call_to_temporal(
    offline_http: httpx.AsyncClient, path: str, content: bytes, code: str
) -> None:
    response = await offline_http.post(path, content=content, headers=JSON)
    assert status_and_code_of(response) == (400, code), response.text


@pytest.mark.parametrize("cursor", ["run-2/1-3", "/1-3", "run-2/1-9e"])
async def test_cursor_of_another_run_is_rejected(offline_http: httpx.AsyncClient, cursor: str) -> None:
    path = "/v1/runs/run-1/events"
    for request_options in ({"headers": {"Last-Event-ID": cursor}}, {"params": {"after": cursor}}):
        response = await offline_http.get(path, **request_options)  # type: ignore[arg-type] # headers or parameters
        assert status_and_param_of(response) == (400, "after"), response.text


async def test_invalid_query_parameters_and_form_data_are_rejected(offline_http: httpx.AsyncClient) -> None:
    for path in ("/v1/runs", "/v1/inbox", "/v1/sessions"):
        response = await offline_http.get(path, params={"after": "100.0.bm8gdG9rZW4=.4f5a0b3c2d1e"})
        assert status_and_code_of(response) == (400, "invalid_value")
        assert message_of(response) == "`after` must be the `cursor` of a page; omit it for the first page"
    response = await offline_http.get("/v1/runs?status=runing")
    assert status_and_param_of(response) == (400, "status")
    assert message_of(response).startswith("status: 'runing' is not one of running, waiting, "), response.text
    assert message_of(response).endswith("; did you mean 'running'?")
    assert status_and_code_of(await offline_http.post("/v1/runs", data={"plan": "x"})) == (400, "invalid_json")
    for tags in ("a=\x1f", "a\0=b", "a=" + "x" * 300):
        response = await offline_http.get("/v1/runs", params={"tags": tags})
        assert status_and_param_of(response) == (400, "tags"), tags


async def test_plan_is_checked_without_a_server(offline_http: httpx.AsyncClient) -> None:
    document = (await offline_http.post("/v1/plans/check", json={"plan": PLAN})).json()
    assert (document["status"], document["node_count"], document["errors"]) == ("valid", 1, [])
    plan_text = "plan: 1\nnodes: [{id: a, tool: calculater}]"
    document = (await offline_http.post("/v1/plans/check", json={"plan": plan_text})).json()
    (error,) = document["errors"]
    assert (document["status"], error["code"], error["line"]) == ("invalid", "unknown_tool", 2)


async def test_response_for_a_published_plan_equals_the_documented_example(
    offline_http: httpx.AsyncClient,
) -> None:
    assert (await offline_http.get("/v1/plans/double")).json() == examples.PUBLISHED_PLAN
    response_for_unknown_plan = await offline_http.get("/v1/plans/dubble")
    assert status_and_code_of(response_for_unknown_plan) == (404, "not_found")
    assert "'double'" in message_of(response_for_unknown_plan)
    assert 1_700_000_000 < (await offline_http.get("/v1/models/plan/double")).json()["created"] < time.time()


async def test_problems_of_a_plan_have_pointers_and_lines(http: httpx.AsyncClient) -> None:
    document = (await http.post("/v1/runs", json={"plan": {"plan": 1, "nodes": [{"id": "a", "tool": "?"}]}})).json()
    (problem,) = document["error"]["errors"]
    assert (document["error"]["code"], document["error"]["param"]) == ("unknown_tool", None)
    assert (problem["code"], problem["pointer"]) == ("unknown_tool", "/nodes/0/tool")
    text = "plan: 1\nnodes:\n  - id: a\n    tool: '?'\n"
    document_of_text = (await http.post("/v1/runs", json={"plan": text})).json()
    (problem,) = document_of_text["error"]["errors"]
    assert (problem["pointer"], problem["line"]) == ("/nodes/0/tool", 4)


@pytest.mark.parametrize(
    ("param", "message", "fields"),
    [("inputs", "Go.", {"inputs": {"number": "many"}}), ("messages", '{"number": "many"}', {})],
)
async def test_error_of_invalid_inputs_names_their_field(
    offline_http: httpx.AsyncClient, param: str, message: str, fields: Any
) -> None:
    body = {"model": "plan/double", "messages": [{"role": "user", "content": message}], **fields}
    response = await offline_http.post("/v1/chat/completions", json=body)
    assert status_and_param_of(response) == (400, param)


async def test_plan_with_conditions_is_accepted_although_another_thread_prepares_it(
    offline_gateway: OfflineGateway,
) -> None:
    http, client, _ = offline_gateway
    map_fields = {"tool": "calculator", "arguments": {"expression": "{{item}} * 2"}, "for_each": "{{PLACEHOLDER_some}}"}
    nodes = [*PLAN["nodes"], {"id": "each", "when": "sum.result > 2 && inputs.go", **map_fields}]
    plan = {"plan": 1, "inputs": {"go": {"type": "boolean"}, "some": {"type": "array"}}, "nodes": nodes}
    check_result = (await http.post("/v1/plans/check", json={"plan": plan})).json()
    assert (check_result["status"], check_result["errors"]) == ("valid", [])
    response = await http.post("/v1/runs", json={"plan": plan, "inputs": {"go": True, "some": [1]}})
    assert (response.status_code, client.calls != []) == (503, True)


@pytest.mark.parametrize("depth", [120, 9_000])
@pytest.mark.parametrize(
    ("method", "path", "body_start", "body_end"),
    [
        ("GET", "/v1/runs", "", ""),
        ("POST", "/v1/runs/run-1/resume", "", ""),
        ("POST", "/v1/plans/check", '{"plan": {"plan": 1, "nodes": [{"id": "a", "arguments": {"x": ', "}}]}}"),
        ("POST", "/v1/runs", '{"plan": {"plan": 1, "nodes": []}, "inputs": {"a": ', "}}"),
        ("POST", "/v1/chat/completions", '{"messages": [{"role": "user", "content": [{"a": ', "}]}]}"),
    ],
)
async def test_too_deeply_nested_body_is_rejected(
    offline_http: httpx.AsyncClient, method: str, path: str, body_start: str, body_end: str, depth: int
) -> None:
    content = f"{body_start}{'[' * depth}{']' * depth}{body_end}"
    response = await offline_http.request(method, path, content=content, headers=JSON)
    assert status_and_code_of(response) in ((400, "too_large"), (400, "invalid_json")), response.text
    assert "deep" in message_of(response)


async def test_requests_of_pages_from_other_origins_are_rejected(offline_gateway: OfflineGateway) -> None:
    http, client, context = offline_gateway
    cancel_path = "/v1/runs/run-1/cancel"
    response = await http.get("/v1/runs", headers={"Host": "evil.example.com"})
    assert status_and_code_of(response) == (403, "foreign_host")
    for origin in ("https://x.example.com", "null"):
        response = await http.post(cancel_path, headers={"Origin": origin})
        assert status_and_code_of(response) == (403, "foreign_origin"), origin
    async with client_of(context, host="127.0.0.1", url="http://127.0.0.1:8484") as local_http:
        response = await local_http.post(cancel_path, headers={"Origin": "http://127.0.0.1:3000"})
        assert (status_and_code_of(response), client.calls) == ((403, "foreign_origin"), [])
        assert (await local_http.post(cancel_path, headers={"Origin": "http://127.0.0.1:8484"})).status_code == 503
    client.calls.clear()
    # The console is a page of the gateway itself.
    same_origin_response = await http.post(cancel_path, headers={"Origin": "http://localhost"})
    assert (same_origin_response.status_code, client.calls != []) == (503, True)


async def test_allowed_origin_can_read_an_internal_error(
    offline_gateway: OfflineGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = "https://a.example.com"
    settings = offline_gateway[2].settings.model_copy(update={"api_origins": origin})

    def raise_defect(_: object) -> None:
        raise AssertionError("no")

    monkeypatch.setattr(Readiness, "problems", raise_defect)
    async with client_of(replace(offline_gateway[2], settings=settings)) as http:
        response = await http.get("/readyz", headers={"Origin": origin})
        response_to_other_origin = await http.get("/readyz", headers={"Origin": "https://b.example.com"})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (500, origin)
    assert {"X-Run-Id", "Location"} <= {*response.headers["access-control-expose-headers"].split(", ")}
    assert "access-control-allow-origin" not in response_to_other_origin.headers


@pytest.mark.parametrize(
    ("status", "is_stopped", "message"),
    [
        ("running", True, "the run is being stopped already"),
        ("cancelled", True, "the run is cancelled already"),
        ("completed", False, None),
    ],
)
async def test_second_cancellation_reports_the_state_of_the_run(
    offline_gateway: OfflineGateway, monkeypatch: pytest.MonkeyPatch, status: str, is_stopped: bool, message: str | None
) -> None:
    http, _, context = offline_gateway

    async def reject_cancellation(*_: Any, **__: Any) -> str:
        if status == "running":
            raise CommandRejected("the run is being stopped already")
        raise RunClosed("the run 'run-1' has ended")

    async def read() -> Any:
        scheduler = SimpleNamespace(is_stopped=is_stopped)
        return SimpleNamespace(is_closed=status != "running", status=status, scheduler=scheduler)

    monkeypatch.setattr(context.steering, "cancel", reject_cancellation)
    monkeypatch.setattr(context.runs, "reader", lambda _: SimpleNamespace(read=read))
    response = await http.post("/v1/runs/run-1/cancel")
    if message is None:
        assert (response.status_code, message_of(response)) == (409, "the run 'run-1' has ended")
    else:
        document = {"run_id": "run-1", "ok": True, "message": message, "status": status}
        assert (response.status_code, response.json()) == (200, document)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("limits", {"deadline": "soon"}, "deadline"),
        ("limits", {"max_parallel": 0}, "max_parallel"),
        ("limits", {"budget": {"token": 1}}, "budget"),
        ("policy", {"policy": {"rules": 1}}, "policy"),
    ],
)
async def test_invalid_limits_and_policies_are_rejected_before_they_are_sent(
    offline_http: httpx.AsyncClient, path: str, body: dict[str, Any], param: str
) -> None:
    response = await offline_http.post(f"/v1/runs/run-1/{path}", json=body)
    assert status_and_code_of(response) == (400, "invalid_value"), response.text
    assert status_and_param_of(response) == (400, param)


async def test_draining_gateway_is_not_ready(offline_gateway: OfflineGateway, offline_http: httpx.AsyncClient) -> None:
    offline_gateway[2].stop_event.set()
    for path in ("/readyz", "/v1/runs"):
        assert status_and_code_of(await offline_http.get(path)) == (503, "draining")
    assert (await offline_http.get("/livez")).status_code == 200


async def test_large_policy_is_rejected(offline_http: httpx.AsyncClient) -> None:
    rule = {"tool": "x", "then": "ask", "arguments": {"description": "x" * 300_000}}
    for path, body in (("/v1/runs", {"template": "double"}), ("/v1/runs/run-1/policy", {})):
        response = await offline_http.post(path, json={**body, "policy": {"rules": [rule]}})
        assert (response.status_code, "at most 262,144" in message_of(response)) == (400, True)


@pytest.mark.parametrize(
    ("proxies", "expected"), [(None, "127.0.0.1"), ("10.0.0.1", "127.0.0.1"), ("127.0.0.0/8", "9.9.9.9")]
)
async def test_client_address_is_taken_from_trusted_proxies_only(proxies: str | None, expected: str) -> None:
    client_addresses: list[str] = []

    async def respond(scope: Any, _: Any, send: Any) -> None:
        client_addresses.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    listener = open_socket("127.0.0.1", 0)
    async with serving_app(respond, listener, proxies=proxies), httpx.AsyncClient() as http:
        await http.get(address_of(listener), headers={"X-Forwarded-For": "9.9.9.9"})
    assert client_addresses == [expected]


async def test_parts_of_a_stream_are_sent_without_delay() -> None:
    no_delay_flags: list[bool] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted_socket = writer.get_extra_info("socket")
        no_delay_flags.append(bool(accepted_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    listener = open_socket("127.0.0.1", 0)
    async with await asyncio.start_server(accept, sock=listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert no_delay_flags == [True]
