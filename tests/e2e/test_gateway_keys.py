"""Keys of the gateway: whose runs a key sees, what it may do, and how much."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from dagwright.gateway.callers import ALL, Scope
from dagwright.gateway.keys import KeyFile
from dagwright.gateway.response_items import response_id
from tests.e2e.conftest import calculation
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

ASKING = {"plan": 1, "nodes": [{"id": "check", "human": {"type": "APPROVAL", "prompt": "Publish?"}}]}
SUM = {"plan": 1, "nodes": [calculation("sum", "1 + 2")], "output": "{{sum.result}}"}


class Keys:
    """Keys in a file of a test, and of its own owners: the server has the runs of all tests."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._test = uuid4().hex[:8]

    def owner(self, name: str) -> str:
        return name if name == ALL else f"{name}-{self._test}"

    def add(self, name: str, *scopes: Scope) -> str:
        return KeyFile(self.path).add(self.owner(name), scopes or list(Scope))[1]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def post(live: Gateway, key: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await live.http.post(path, json=body, headers={**bearer(key), **named})


async def get(live: Gateway, key: str, path: str) -> httpx.Response:
    return await live.http.get(path, headers=bearer(key))


async def test_key_sees_its_own_runs_sessions_and_inbox_alone(server: LiveServer, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, bob, boss = keys.add("ann"), keys.add("bob"), keys.add(ALL)
    async with gateway(server, folder=tmp_path, plans={"ask": ASKING}, more={"api_keys": keys.path}) as live:
        nobody = await live.http.get("/v1/runs")
        wrong = await get(live, f"{ann}x", "/v1/runs")
        alone = await post(live, ann, "/v1/runs", {"plan": ASKING}, Idempotency_Key="same")
        his = await post(live, bob, "/v1/runs", {"plan": SUM}, Idempotency_Key="same")
        run = alone.json()["run_id"]
        session = f"s-{uuid4().hex[:8]}"
        turn = {"model": "plan/ask", "messages": [{"role": "user", "content": "{}"}], "session_id": session}
        asked = await post(live, ann, "/v1/chat/completions", turn)
        of_turn = asked.json()["dagwright"]["run_id"]

        async def is_asked() -> bool:
            return bool((await get(live, ann, f"/v1/runs/{run}/feedback")).json()["data"])

        await eventually(is_asked)
        paths = [
            f"/v1/runs/{run}{rest}"
            for rest in ("", "/events", "/answer", "/graph", "/inputs", "/feedback", "/why", "/nodes/check")
        ]
        named = [
            [each["session_id"] for each in (await get(live, key, "/v1/orchestration")).json()["data"]]
            for key in (ann, bob, boss)
        ]
        response = f"/v1/responses/{response_id(run, 'plan/ask')}"
        paths += [f"/v1/orchestration/{session}", f"/v1/runs/{of_turn}", response]
        closed = [(await get(live, bob, path)).status_code for path in paths]
        acts = ("/cancel", "/pause", "/resume", "/feedback", "/fork", "/nodes/check/retry")
        bodies = {"/feedback": {"answer": "yes"}, "/fork": {"start": True}}
        refused = [(await post(live, bob, f"/v1/runs/{run}{act}", bodies.get(act, {}))).status_code for act in acts]
        lists = {
            name: [each["run_id"] for each in (await get(live, key, "/v1/runs")).json()["data"]]
            for name, key in {"ann": ann, "bob": bob, "boss": boss}.items()
        }
        inboxes = {
            name: {each["run_id"] for each in (await get(live, key, "/v1/inbox")).json()["data"]}
            for name, key in {"ann": ann, "bob": bob, "boss": boss}.items()
        }
        fetched = (await get(live, ann, response)).status_code
        hers = (await get(live, ann, f"/v1/orchestration/{session}")).json()
        answered = await post(live, boss, f"/v1/runs/{run}/feedback", {"answer": "yes"})
        by = await post(live, ann, f"/v1/runs/{of_turn}/feedback", {"answer": "yes", "by": "bob"})
        told = (await get(live, ann, f"/v1/runs/{of_turn}/nodes/check")).json()
    assert (nobody.status_code, nobody.json()["error"]["code"], wrong.status_code) == (401, "invalid_api_key", 401)
    assert alone.json()["run_id"] != his.json()["run_id"]
    assert (asked.headers["x-session-id"], asked.json()["dagwright"]["session_id"]) == (session, session)
    assert (set(closed), fetched) == ({404}, 200)
    assert set(refused) == {404}
    assert lists["ann"] == [of_turn, run]
    assert named[:2] == [[session], []]
    assert f"{keys.owner('ann')}:{session}" in named[2]
    assert lists["bob"] == [his.json()["run_id"]]
    assert {run, of_turn, *lists["bob"]} <= set(lists["boss"])
    assert inboxes["ann"] == {run, of_turn}
    assert not inboxes["bob"]
    assert {run, of_turn} <= inboxes["boss"]
    assert (hers["session_id"], hers["run"]["session_id"]) == (session, session)
    assert (answered.status_code, by.status_code) == (200, 200)
    assert told["lineage"]["answers"][0]["by"] == keys.owner("ann")


async def test_key_does_what_its_scopes_let_it(server: LiveServer, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    looks, runs = keys.add("ann", Scope.ANSWER), keys.add("ann", Scope.RUN)
    async with gateway(server, folder=tmp_path, more={"api_keys": keys.path}) as live:
        run = (await post(live, runs, "/v1/runs", {"plan": ASKING})).json()["run_id"]
        ask = {"model": "profile/plan", "messages": [{"role": "user", "content": "1 + 2?"}]}
        auto = {"routing_mode": "auto"}
        found = [
            (await get(live, looks, f"/v1/runs/{run}")).status_code,
            (await get(live, looks, f"/v1/runs/{run}/answer")).status_code,
            (await post(live, looks, "/v1/runs", {"plan": SUM})).status_code,
            (await post(live, looks, "/v1/chat/completions", ask)).status_code,
            (await post(live, looks, "/v1/chat/completions", {**ask, "model": "small"})).status_code,
            (await post(live, looks, "/v1/chat/completions", {**ask, "model": "small", **auto})).status_code,
            (await post(live, runs, f"/v1/runs/{run}/feedback", {"answer": "yes"})).status_code,
            (await post(live, runs, f"/v1/runs/{run}/cancel", {})).status_code,
        ]
        KeyFile(keys.path).remove(runs.split("-")[1])
        gone = await get(live, runs, f"/v1/runs/{run}")
        assert not live.models.calls
    assert found == [200, 200, 403, 403, 403, 403, 403, 403]
    assert gone.status_code == 401


async def test_key_that_does_too_much_is_told_when_to_come_again(server: LiveServer, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, bob = keys.add("ann"), keys.add("bob")
    more = {"api_keys": keys.path, "api_runs": 2, "api_streams": 1, "api_body_bytes": 2_000}
    async with gateway(server, folder=tmp_path, more=more) as live, AsyncExitStack() as stack:
        body = {"plan": ASKING}
        first = await post(live, ann, "/v1/runs", body, Idempotency_Key="1")
        run = first.json()["run_id"]
        # Before the list of the server has them.
        found = await asyncio.gather(*(post(live, ann, "/v1/runs", body) for _ in range(10)))
        many = await post(live, ann, "/v1/runs", body)
        again = await post(live, ann, "/v1/runs", body, Idempotency_Key="1")
        his = await post(live, bob, "/v1/runs", body)
        stream = await stack.enter_async_context(live.http.stream("GET", f"/v1/runs/{run}/events", headers=bearer(ann)))
        second = await get(live, ann, f"/v1/runs/{run}/events")
        await stream.aclose()

        async def is_free() -> bool:
            async with live.http.stream("GET", f"/v1/runs/{run}/events", headers=bearer(ann)) as third:
                return third.status_code == 200

        await eventually(is_free)
        large = await post(live, bob, "/v1/runs", {"plan": {**ASKING, "title": "x" * 3_000}})

        async def pieces() -> Any:
            for _ in range(4):
                yield b'{"plan":' + b" " * 1_000

        in_pieces = await live.http.post("/v1/runs", content=pieces(), headers=bearer(bob))
    assert sorted(each.status_code for each in found) == [200, *[429] * 9]
    assert (many.status_code, many.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(many.headers["retry-after"]) >= 1
    assert (again.status_code, again.json()["run_id"], his.status_code) == (200, run, 200)
    assert (second.status_code, stream.status_code) == (429, 200)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    assert (in_pieces.status_code, in_pieces.json()["error"]["code"]) == (413, "request_too_large")


async def test_of_streams_that_are_asked_for_together_no_more_open_than_a_key_may_have(
    server: LiveServer, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    ann = keys.add("ann")
    more = {"api_keys": keys.path, "api_streams": 2}
    node = {"id": "wait", "tool": "wait", "arguments": {"duration": "10m"}}
    plans = {"wait": {"plan": 1, "nodes": [node]}}
    asked: dict[str, Any] = {"model": "plan/wait", "messages": [{"role": "user", "content": "{}"}], "stream": True}
    async with gateway(server, folder=tmp_path, plans=plans, more=more) as live, AsyncExitStack() as stack:

        async def open_one() -> int:
            request = live.http.stream("POST", "/v1/chat/completions", json=asked, headers=bearer(ann))
            return (await stack.enter_async_context(request)).status_code

        statuses = await asyncio.gather(*(open_one() for _ in range(8)))

        async def are_cancelled() -> bool:
            found = (await get(live, ann, "/v1/runs?status=running")).json()["data"]
            await asyncio.gather(*(post(live, ann, f"/v1/runs/{each['run_id']}/cancel") for each in found))
            ended = (await get(live, ann, "/v1/runs?status=cancelled")).json()["data"]
            assert len(ended) <= 2
            return len(ended) == 2

        await eventually(are_cancelled)
    assert sorted(statuses) == [200] * 2 + [429] * 6


async def test_key_that_asks_too_often_is_told_when_to_come_again(server: LiveServer, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, bob = keys.add("ann"), keys.add("bob")
    more = {"api_keys": keys.path, "api_requests": 5}
    async with gateway(server, folder=tmp_path, has_worker=False, more=more) as live:
        often = [await get(live, ann, "/v1/responses/none") for _ in range(8)]
        his = await get(live, bob, "/v1/responses/none")
    assert [each.status_code for each in often[:5]] == [404] * 5
    late = next(each for each in often if each.status_code == 429)
    assert (late.json()["error"]["code"], his.status_code) == ("rate_limit_exceeded", 404)
    assert int(late.headers["retry-after"]) >= 1


async def test_pages_of_others_are_let_in_only_if_that_is_set(server: LiveServer, tmp_path: Path) -> None:
    asked = {"Origin": "https://a.example.com", "Access-Control-Request-Method": "POST"}
    async with gateway(server, folder=tmp_path, has_worker=False) as live:
        off = await live.http.options("/v1/runs", headers=asked)
    more = {"api_origins": "https://a.example.com, https://b.example.com"}
    async with gateway(server, folder=tmp_path, has_worker=False, more=more) as live:
        on = await live.http.options("/v1/runs", headers=asked)
        other = await live.http.options("/v1/runs", headers={**asked, "Origin": "https://c.example.com"})
    assert "access-control-allow-origin" not in off.headers
    assert on.headers["access-control-allow-origin"] == "https://a.example.com"
    assert "access-control-allow-origin" not in other.headers
