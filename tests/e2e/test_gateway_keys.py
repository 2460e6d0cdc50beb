"""Keys of the gateway: whose runs a key sees, what it may do, and how much."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.keys import KeyFile
from dagwright.interfaces.http.response_items import ResponseRef
from dagwright.protocol.run_attributes import ALL_OWNERS
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
        return name if name == ALL_OWNERS else f"{name}-{self._test}"

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
    ann, bob, boss = keys.add("ann"), keys.add("bob"), keys.add(ALL_OWNERS)
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
        response = f"/v1/responses/{ResponseRef(run, 'plan/ask').id}"
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
    assert sorted(each.status_code for each in found) == [201, *[429] * 9]
    assert (many.status_code, many.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(many.headers["retry-after"]) >= 1
    assert (again.status_code, again.json()["run_id"], his.status_code) == (200, run, 201)
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


async def test_file_tools_of_a_key_stay_in_the_folder_of_its_owner(server: LiveServer, tmp_path: Path) -> None:
    keys, root = Keys(tmp_path), tmp_path / "files"
    ann, bob = keys.add("ann"), keys.add("bob")
    reading = {
        "plan": 1,
        "nodes": [{"id": "r", "tool": "read_file", "arguments": {"path": "a.txt"}, "cache": {"ttl": "1h"}}],
    }
    # A sub-plan is a workflow of its own, which belongs to the same owner.
    below = {"id": "sub", "plan": {**reading, "output": "{{r.result}}"}, "depends_on": ["w"]}
    writing = {"id": "w", "tool": "write_file", "arguments": {"path": "a.txt", "content": "of ann"}}
    plan = {"plan": 1, "nodes": [writing, below], "output": "{{sub.result}}"}

    async def ended(live: Gateway, key: str, plan: Any) -> Any:
        run = (await post(live, key, "/v1/runs", {"plan": plan})).json()["run_id"]

        async def has_ended() -> bool:
            return (await get(live, key, f"/v1/runs/{run}")).json()["status"] in ("completed", "failed")

        await eventually(has_ended)
        return (await get(live, key, f"/v1/runs/{run}")).json()

    async with gateway(server, folder=tmp_path, more={"api_keys": keys.path, "files_root": root}) as live:
        hers, his = await ended(live, ann, plan), await ended(live, bob, reading)
    async with gateway(server, folder=tmp_path, more={"api_keys": keys.path}) as live:
        without = await ended(live, ann, reading)
    assert (hers["status"], hers["output"]) == ("completed", "of ann")
    assert (root / keys.owner("ann") / "a.txt").read_text() == "of ann"
    assert "There is no file 'a.txt'" in his["nodes"]["r"]["error"]["message"]
    assert "set DAGWRIGHT_FILES_ROOT on the worker" in without["nodes"]["r"]["error"]["message"]


def _assigned(name: str, assignee: str) -> dict[str, Any]:
    return {"id": name, "human": {"type": "APPROVAL", "prompt": f"Is {name} right?", "assignee": assignee}}


async def test_assignee_answers_with_a_key_of_its_own_and_others_only_with_operate(
    server: LiveServer, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    ann, boss = keys.add("ann", Scope.RUN, Scope.ANSWER), keys.add("boss", Scope.ANSWER)
    eve, operator = keys.add("eve"), keys.add("ann", Scope.OPERATE, Scope.ANSWER)
    name = keys.owner("boss")
    plan = {
        "plan": 1,
        "nodes": [_assigned("first", name), _assigned("second", name), *ASKING["nodes"]],  # type: ignore[misc]
    }
    async with gateway(server, folder=tmp_path, more={"api_keys": keys.path}) as live:
        run = (await post(live, ann, "/v1/runs", {"plan": plan})).json()["run_id"]
        path = f"/v1/runs/{run}/feedback"

        async def asked(key: str, where: str) -> list[str]:
            listed = (await get(live, key, where)).json().get("data", [])
            return sorted(each["id"] for each in listed if each["run_id"] == run)

        async def has_asked() -> bool:
            return len(await asked(ann, path)) == 3

        await eventually(has_asked)

        async def said(key: str, request: str) -> tuple[int, str]:
            answer = await post(live, key, path, {"request": request, "answer": "yes"})
            return answer.status_code, answer.json().get("error", {}).get("message", "")

        seen = [await asked(key, where) for key in (boss, eve) for where in ("/v1/inbox", path)]
        rest = (await get(live, boss, f"/v1/runs/{run}")).status_code
        refused = [await said(ann, "first"), await said(eve, "first"), await said(boss, "check")]
        taken = [await said(boss, "first"), await said(operator, "second"), await said(ann, "check")]
        gone = await asked(boss, "/v1/inbox")
        told = (await get(live, ann, f"/v1/runs/{run}/nodes/first")).json()["lineage"]["answers"][0]
    assert seen == [["first", "second"], ["first", "second"], [], []]
    assert (rest, gone) == (404, [])
    assert [status for status, _ in refused] == [400, 404, 404]
    assert f"'first' waits for {name}: only a key of the owner" in refused[0][1]
    assert [status for status, _ in taken] == [200, 200, 200]
    assert (told["by"], told["requested_from"], told["escalations"]) == (name, name, [])
