"""Checks of a JSON request in their order: scope, size, JSON, fields."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from threading import get_ident, main_thread
from typing import Any

import httpx
import pytest

from dagwright.core.model.answers import ANSWER_BYTES
from dagwright.interfaces.http import json_route
from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.json_route import MAX_FIELDS, value_count_bound
from dagwright.interfaces.http.key_limits import BODY_LIMITS, DEFAULT_BODY_LIMIT, BodyLimit, KeyLimits
from tests.unit.interfaces.http.conftest import (
    JSON,
    OfflineGateway,
    message_of,
    status_and_code_of,
    status_and_param_of,
    status_code_and_param_of,
)

LIMITS = KeyLimits(requests_per_minute=1, streams=1, runs=1, body_bytes=32 * 1024 * 1024, plan_bytes=8 * 1024 * 1024)
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MODEL_LIMIT, PLAN_LIMIT, MESSAGE_LIMIT, FEEDBACK_LIMIT = (limit for _, limit in BODY_LIMITS)
LIMIT_BY_PATH = {
    **dict.fromkeys((CHAT, RESPONSES), MODEL_LIMIT),
    **dict.fromkeys(("/v1/plans/check", "/v1/runs", "/v1/runs/run-1/fork"), PLAN_LIMIT),
    **{f"/v1/runs/run-1/{name}": MESSAGE_LIMIT for name in ("policy", "nodes")},
    **{f"/v1/runs/run-1/nodes/{name}": MESSAGE_LIMIT for name in ("sum/retry", "part/sum/result")},
    **dict.fromkeys(("/v1/runs/run-1/feedback", "/v1/sessions/main/feedback"), FEEDBACK_LIMIT),
    **{f"/v1/runs/run-1/{name}": DEFAULT_BODY_LIMIT for name in ("cancel", "pause", "resume", "limits")},
    "/v1/runs/run-1/nodes/sum/cancel": DEFAULT_BODY_LIMIT,
    **dict.fromkeys(("/v1/responses/resp_1/cancel", "/v1/sessions/main/cancel"), DEFAULT_BODY_LIMIT),
}


@pytest.fixture
def strict_http(offline_http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> httpx.AsyncClient:
    """Client of a gateway that must reject each request before it parses the body."""
    monkeypatch.setattr(json_route, "json_from_bytes", lambda _: pytest.fail("parsed"))
    return offline_http


def test_each_path_has_its_limit_and_settings_lower_the_limits() -> None:
    assert {path: LIMITS.body_limit("POST", path) for path in LIMIT_BY_PATH} == LIMIT_BY_PATH
    assert LIMITS.body_limit("GET", "/v1/runs") == LIMITS.body_limit("PUT", "/v1/runs/") == DEFAULT_BODY_LIMIT
    # JSON escapes of text outside of ASCII take up to three times the bytes of the text.
    assert min(MESSAGE_LIMIT.max_bytes, FEEDBACK_LIMIT.max_bytes) >= 3 * ANSWER_BYTES
    lower_limits = KeyLimits(1, 1, 1, body_bytes=2_000, plan_bytes=1_000)
    sizes = [lower_limits.body_limit("POST", path).max_bytes for path in (CHAT, "/v1/runs", "/v1/x")]
    assert sizes == [2_000, 1_000, 2_000]


@pytest.mark.parametrize(("path", "limit"), LIMIT_BY_PATH.items(), ids=LIMIT_BY_PATH)
async def test_body_over_its_limits_is_rejected_before_it_is_parsed(
    strict_http: httpx.AsyncClient, path: str, limit: BodyLimit
) -> None:
    size = limit.max_bytes + 1

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(0, size, 65_536):
            yield b" " * 65_536

    many_values = b'{"a":[' + b"1," * limit.max_values + b"1]}"
    bytes_text, values_text = f"{limit.max_bytes:,} bytes", f"{limit.max_values:,} JSON values"
    contents: Any = ((b" " * size, bytes_text), (chunks(), bytes_text), (many_values, values_text))
    for content, text in contents:
        response = await strict_http.post(path, content=content, headers=JSON)
        assert status_and_code_of(response) == (413, "request_too_large")
        assert text in message_of(response)


@pytest.mark.parametrize(
    "value", [1, [], {}, "a", [[], {"a": 1}], {"a": ",[{", "b": [1, 2]}, ['\\",,,', "\\\\", {'k,"[': ","}]]
)
def test_bound_of_the_value_count_ignores_the_content_of_strings(value: Any) -> None:
    def count(part: Any) -> int:
        inner_values = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(count, inner_values))

    body = json.dumps(value).encode()
    assert count(value) <= value_count_bound(body, max_values=count(value)) <= 2 * count(value)


def test_commas_in_a_text_are_not_counted_as_values() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": 'a,"b"\n' * 100_000}]}).encode()
    assert value_count_bound(body, max_values=1_000) < 10
    assert value_count_bound(json.dumps(["a"] * 10_000).encode(), max_values=1_000) > 1_000


@pytest.mark.parametrize(
    ("path", "scopes"),
    [
        (CHAT, {KeyScope.RUN, KeyScope.ANSWER}),
        (RESPONSES, {KeyScope.RUN, KeyScope.ANSWER}),
        ("/v1/runs", {KeyScope.RUN}),
        ("/v1/runs/run-1/feedback", {KeyScope.ANSWER}),
        ("/v1/runs/run-1/nodes/sum/result", {KeyScope.OPERATE}),
    ],
)
async def test_scope_is_checked_before_the_body_is_parsed(
    offline_gateway: OfflineGateway, strict_http: httpx.AsyncClient, path: str, scopes: set[KeyScope]
) -> None:
    _, key = KeyFile(offline_gateway[2].settings.api_keys).add("ann", set(KeyScope) - scopes)
    response = await strict_http.post(path, content=b"{}", headers={**JSON, "Authorization": f"Bearer {key}"})
    assert status_and_code_of(response) == (403, "insufficient_scope")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"answer": "\\ud800"}', (400, "invalid_json")),
        (b'{"answer": NaN}', (400, "invalid_json")),
        (b'{"answer": 1e999}', (400, "invalid_json")),
        (b'{"a', (400, "invalid_json")),
        (b"\xff", (400, "invalid_json")),
        (b'{"answer": ' + b"[" * 100 + b"]" * 100 + b"}", (400, "too_large")),
        (b'{"answer": ' + b"[" * 99 + b"]" * 99 + b"}", (503, "server_unavailable")),
        (b'\xef\xbb\xbf{"answer": 1}', (503, "server_unavailable")),
    ],
)
async def test_json_that_a_history_cannot_store_is_rejected(
    http: httpx.AsyncClient, content: bytes, error: tuple[int, str]
) -> None:
    assert status_and_code_of(await http.post("/v1/runs/run-1/feedback", content=content, headers=JSON)) == error


async def test_body_with_too_many_fields_is_rejected(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/runs", json={f"field{number}": 1 for number in range(MAX_FIELDS + 1)})
    expected = (400, "the body has 201 fields; at most 200 are accepted")
    assert (response.status_code, message_of(response)) == expected


@pytest.mark.waits
async def test_large_bodies_are_parsed_one_at_a_time(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    active_parser_count, max_active_parser_count, threads = 0, 0, set[int]()

    def parse(body: bytes) -> Any:
        nonlocal active_parser_count, max_active_parser_count
        threads.add(get_ident())
        active_parser_count += 1
        max_active_parser_count = max(max_active_parser_count, active_parser_count)
        time.sleep(0.01)
        active_parser_count -= 1
        return json.loads(body)

    monkeypatch.setattr(json_route, "json_from_bytes", parse)
    plan = {"plan": {"plan": 1, "nodes": [], "inputs": dict.fromkeys(map(str, range(20_001)))}}
    responses = await asyncio.gather(*(http.post("/v1/plans/check", json=plan) for _ in range(7)))
    # One body is parsed, four wait, and two are rejected.
    assert sorted(response.status_code >= 429 for response in responses) == [False] * 5 + [True] * 2
    assert (max_active_parser_count, main_thread().ident in threads) == (1, False)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("cancel", {}, "reason"),
        ("pause", {}, "reason"),
        ("limits", {"max_parallel": 1}, "reason"),
        ("nodes/sum/cancel", {}, "reason"),
        ("nodes/sum/result", {"result": 1}, "reason"),
        ("nodes", {"nodes": [{}]}, "reason"),
        ("feedback", {"answer": 1}, "note"),
    ],
)
async def test_length_of_a_reason_or_note_is_limited(
    offline_gateway: OfflineGateway, path: str, body: dict[str, Any], param: str
) -> None:
    http, client, _ = offline_gateway
    response = await http.post(f"/v1/runs/run-1/{path}", json={**body, param: "x" * 4_001})
    assert (status_and_param_of(response), client.calls) == ((400, param), [])
    assert message_of(response) == f"{param}: String should have at most 4000 characters"
    accepted_response = await http.post(f"/v1/runs/run-1/{path}", json={**body, param: "x" * 4_000})
    assert (accepted_response.status_code, client.calls != []) == (503, True)


RUNS = "/v1/runs"
LONG_NAME = "x" * 5_000


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (RESPONSES, {"input": [1]}, "input.0", "input.0: must be an object"),
        (RESPONSES, {"input": 1}, "input", "input: must be a string or a list"),
        (RESPONSES, {}, "input", "input: Field required"),
        (RUNS, {"plan": 1}, "plan", "plan: must be an object, a list or a string"),
        (RUNS, {"input": {}}, "input", "unknown field 'input' (did you mean 'inputs'?)"),
        (RUNS, {LONG_NAME: 1}, "x" * 80 + "…", None),
        ("/v1/runs/run-1/pause", {"zzz": 1}, "zzz", "unknown field 'zzz'; allowed are reason, by"),
    ],
)
async def test_invalid_field_is_named(
    offline_http: httpx.AsyncClient, path: str, body: Any, param: str, message: str | None
) -> None:
    response = await offline_http.post(path, json=body)
    assert status_code_and_param_of(response) == (400, "invalid_value", param)
    assert message in (None, message_of(response))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (RUNS, {LONG_NAME: 1}),
        (RUNS, {"inputs": {LONG_NAME: 1}}),
        (RUNS, {"inputs": {"number": 1}, "policy": {LONG_NAME: 1}}),
        (RUNS, {"inputs": {"number": 1}, "deadline": LONG_NAME}),
        (f"/v1/{LONG_NAME}", {}),
    ],
)
async def test_response_does_not_repeat_a_long_name(offline_http: httpx.AsyncClient, path: str, fields: Any) -> None:
    response = await offline_http.post(path, json={"template": "double", **fields})
    assert (response.status_code in (400, 404), "x" * 120 in response.text) == (True, False)
