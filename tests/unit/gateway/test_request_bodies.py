"""How the JSON of a request is read: scopes first, then sizes, and JSON last."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from threading import get_ident, main_thread
from typing import Any

import pytest

from dagwright.core.model.answers import ANSWER_BYTES
from dagwright.interfaces.http import request_bodies
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.keys import KeyFile
from dagwright.interfaces.http.limits import BODY_LIMITS, OTHER_BODIES, BodyLimit, Limits
from dagwright.interfaces.http.request_bodies import MOST_FIELDS, values_of
from tests.unit.gateway.conftest import Apart

LIMITS = Limits(requests_a_minute=1, streams=1, runs=1, body_bytes=32 * 1024 * 1024, plan_bytes=8 * 1024 * 1024)
JSON = {"Content-Type": "application/json"}
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PATHS = [
    CHAT,
    RESPONSES,
    "/v1/responses/resp_1/cancel",
    "/v1/plans/check",
    "/v1/runs",
    "/v1/runs/run-1/fork",
    "/v1/runs/run-1/cancel",
    "/v1/runs/run-1/pause",
    "/v1/runs/run-1/resume",
    "/v1/runs/run-1/limits",
    "/v1/runs/run-1/policy",
    "/v1/runs/run-1/feedback",
    "/v1/runs/run-1/nodes",
    "/v1/runs/run-1/nodes/sum/cancel",
    "/v1/runs/run-1/nodes/sum/retry",
    "/v1/runs/run-1/nodes/part/sum/result",
    "/v1/orchestration/main/feedback",
    "/v1/orchestration/main/cancel",
]


def limit_of(path: str) -> BodyLimit:
    return LIMITS.body_limit("POST", path)


def test_newline_in_a_node_id_does_not_change_the_limit() -> None:
    assert limit_of("/v1/runs/run-1/nodes/a\nb/result") == limit_of("/v1/runs/run-1/nodes/ab/result")


def test_each_path_has_its_limit_and_settings_lower_it() -> None:
    models, plans, messages, feedback = (limit for _, limit in BODY_LIMITS)
    found = [limit_of(path) for path in PATHS]
    small = [OTHER_BODIES] * 2
    assert found == [
        *[models] * 2,
        OTHER_BODIES,
        *[plans] * 3,
        *[OTHER_BODIES] * 4,
        messages,
        feedback,
        messages,
        OTHER_BODIES,
        messages,
        messages,
        feedback,
        OTHER_BODIES,
    ]
    assert [LIMITS.body_limit("GET", "/v1/runs"), LIMITS.body_limit("PUT", "/v1/runs/")] == small
    # Texts outside of ASCII have three bytes of JSON for each of theirs.
    assert min(messages.max_bytes, feedback.max_bytes) >= 3 * ANSWER_BYTES
    lower = Limits(1, 1, 1, body_bytes=2_000, plan_bytes=1_000)
    assert [lower.body_limit("POST", path).max_bytes for path in (CHAT, "/v1/runs", "/v1/x")] == [2_000, 1_000, 2_000]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("path", PATHS)
async def test_body_over_its_limit_is_refused_before_it_is_parsed(
    away: Apart, monkeypatch: pytest.MonkeyPatch, path: str, *, is_told: bool
) -> None:
    http, client, _ = away
    monkeypatch.setattr(request_bodies, "json_from_bytes", lambda _: pytest.fail("parsed"))
    size = limit_of(path).max_bytes + 1

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(0, size, 65_536):
            yield b" " * 65_536

    answer = await http.post(path, content=b" " * size if is_told else pieces(), headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "request_too_large")
    assert f"{size - 1:,} bytes" in error["message"]
    assert not client.asked


@pytest.mark.parametrize("path", PATHS)
async def test_body_with_too_many_values_is_refused_before_it_is_parsed(
    away: Apart, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    http, client, _ = away
    monkeypatch.setattr(request_bodies, "json_from_bytes", lambda _: pytest.fail("parsed"))
    limit = limit_of(path)
    answer = await http.post(path, content=b'{"a":[' + b"1," * limit.max_values + b"1]}", headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert f"{limit.max_values:,} JSON values" in answer.json()["error"]["message"]
    assert not client.asked


@pytest.mark.parametrize(
    "value", [1, [], {}, "a", [[], {"a": 1}], {"a": ",[{", "b": [1, 2]}, ['\\",,,', "\\\\", {'k,"[': ","}]]
)
def test_values_are_counted_and_texts_hold_none(value: Any) -> None:
    def count(part: Any) -> int:
        inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(count, inside))

    body = json.dumps(value).encode()
    assert count(value) <= values_of(body, most=count(value)) <= 2 * count(value)


def test_text_of_many_commas_is_one_value() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": 'a,"b"\n' * 100_000}]}).encode()
    assert values_of(body, most=1_000) < 10
    assert values_of(json.dumps(["a"] * 10_000).encode(), most=1_000) > 1_000


@pytest.mark.parametrize(
    ("path", "scopes"),
    [
        (CHAT, {Scope.RUN, Scope.ANSWER}),
        (RESPONSES, {Scope.RUN, Scope.ANSWER}),
        ("/v1/runs", {Scope.RUN}),
        ("/v1/runs/run-1/feedback", {Scope.ANSWER}),
        ("/v1/runs/run-1/policy", {Scope.OPERATE}),
        ("/v1/runs/run-1/nodes/sum/result", {Scope.OPERATE}),
        ("/v1/orchestration/main/cancel", {Scope.OPERATE}),
    ],
)
async def test_key_without_the_scope_is_refused_before_its_body_is_parsed(
    away: Apart, monkeypatch: pytest.MonkeyPatch, path: str, scopes: set[Scope]
) -> None:
    http, client, desk = away
    _, key = KeyFile(desk.settings.api_keys).add("ann", set(Scope) - scopes)
    monkeypatch.setattr(request_bodies, "json_from_bytes", lambda _: pytest.fail("parsed"))
    refused = await http.post(path, content=b"{}", headers={**JSON, "Authorization": f"Bearer {key}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
    assert not client.asked


@pytest.mark.parametrize(
    "content", [b'{"answer": "\\ud800"}', b'{"answer": NaN}', b'{"answer": 1e999}', b'{"a', b"\xff"]
)
async def test_json_that_no_history_could_hold_is_refused(away: Apart, content: bytes) -> None:
    http, client, _ = away
    refused = await http.post("/v1/runs/run-1/feedback", content=content, headers=JSON)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")
    assert not client.asked


@pytest.mark.parametrize(("depth", "code"), [(99, None), (100, "too_large"), (100_000, "too_large")])
async def test_body_nests_as_deep_as_a_plan_may_and_no_deeper(away: Apart, depth: int, code: str | None) -> None:
    http, _, _ = away
    content = b'{"answer": ' + b"[" * depth + b"]" * depth + b"}"
    answer = await http.post("/v1/runs/run-1/feedback", content=content, headers=JSON)
    assert answer.json()["error"]["code"] == (code or "unavailable")


async def test_byte_order_mark_is_skipped(away: Apart) -> None:
    http, _, _ = away
    plan = b'{"plan": {"plan": 1, "nodes": []}}'
    answers = [await http.post("/v1/plans/check", content=mark + plan, headers=JSON) for mark in (b"", b"\xef\xbb\xbf")]
    assert [each.status_code for each in answers] == [200, 200]


async def test_unknown_fields_are_reported_up_to_a_limit(away: Apart) -> None:
    http, _, _ = away
    body = {f"field{number}": 1 for number in range(MOST_FIELDS + 1)}
    refused = await http.post("/v1/runs", json=body)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "the body has 201 fields; at most 200 are accepted",
    )


@pytest.mark.waits
async def test_large_bodies_of_a_key_are_parsed_one_at_a_time_in_a_thread(
    away: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, _, _ = away
    parsing, most, threads = 0, 0, set[int]()

    def parse(body: bytes) -> Any:
        nonlocal parsing, most
        threads.add(get_ident())
        parsing += 1
        most = max(most, parsing)
        time.sleep(0.01)
        parsing -= 1
        return json.loads(body)

    monkeypatch.setattr(request_bodies, "json_from_bytes", parse)
    plan = {"plan": {"plan": 1, "nodes": [], "inputs": dict.fromkeys(map(str, range(20_001)))}}
    answers = await asyncio.gather(*(http.post("/v1/plans/check", json=plan) for _ in range(7)))
    # One is parsed and four wait.
    assert sorted(each.status_code for each in answers)[-2:] == [429, 429]
    assert sorted(each.status_code for each in answers)[-3] < 429
    assert most == 1
    assert main_thread().ident not in threads


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/runs/run-1/cancel", {}, "reason"),
        ("/v1/runs/run-1/pause", {}, "reason"),
        ("/v1/runs/run-1/limits", {"max_parallel": 1}, "reason"),
        ("/v1/runs/run-1/nodes/sum/cancel", {}, "reason"),
        ("/v1/runs/run-1/nodes/sum/result", {"result": 1}, "reason"),
        ("/v1/runs/run-1/nodes", {"nodes": [{}]}, "reason"),
        ("/v1/runs/run-1/feedback", {"answer": 1}, "note"),
    ],
)
async def test_reason_has_a_limit(away: Apart, path: str, body: dict[str, Any], param: str) -> None:
    http, client, _ = away
    refused = await http.post(path, json={**body, param: "x" * 4_001})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param)
    assert error["message"] == f"{param}: String should have at most 4000 characters"
    assert not client.asked
    taken = await http.post(path, json={**body, param: "x" * 4_000})
    assert (taken.status_code, client.asked != []) == (503, True)
