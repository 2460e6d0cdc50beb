"""Keys of the gateway: visible runs, permissions, and rate limits of a key."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.response_items import ResponseRef
from dagwright.protocol.run_labels import ALL_OWNERS
from tests.e2e.conftest import CHECK, Serve, calculation, plan_of
from tests.support.eventually import eventually
from tests.support.gateway import CHAT, Gateway, chat_body

pytestmark = pytest.mark.server

ASKING = plan_of(CHECK)
SUM = plan_of(calculation("sum", "1 + 2"), output="{{sum.result}}")


class Keys:
    """Keys in a file of a test, and of its own owners: the server has the runs of all tests."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._test = uuid4().hex[:8]

    def owner(self, name: str) -> str:
        return name if name == ALL_OWNERS else f"{name}-{self._test}"

    def add(self, name: str, *scopes: KeyScope) -> str:
        return KeyFile(self.path).add(self.owner(name), scopes or list(KeyScope))[1]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def post(live: Gateway, key: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await live.http.post(path, json=body, headers={**bearer(key), **named})


async def get(live: Gateway, key: str, path: str) -> httpx.Response:
    return await live.http.get(path, headers=bearer(key))


async def test_key_sees_its_own_runs_sessions_and_inbox_alone(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, bob, boss = keys.add("ann"), keys.add("bob"), keys.add(ALL_OWNERS)
    async with serve(plans={"ask": ASKING}, extra_settings={"api_keys": keys.path}) as live:

        async def list_field(path: str, field: str) -> list[list[str]]:
            """Return a field of each item of a list as ann, bob and boss see it."""
            return [[item[field] for item in (await get(live, key, path)).json()["data"]] for key in (ann, bob, boss)]

        nobody, wrong = await live.http.get("/v1/runs"), await get(live, f"{ann}x", "/v1/runs")
        alone = await post(live, ann, "/v1/runs", {"plan": ASKING}, Idempotency_Key="same")
        his = (await post(live, bob, "/v1/runs", {"plan": SUM}, Idempotency_Key="same")).json()["run_id"]
        run = alone.json()["run_id"]
        session = f"s-{uuid4().hex[:8]}"
        asked = await post(live, ann, CHAT, chat_body("plan/ask", session_id=session))
        of_turn = asked.json()["dagwright"]["run_id"]

        async def is_asked() -> bool:
            return bool((await get(live, ann, f"/v1/runs/{run}/feedback")).json()["data"])

        await eventually(is_asked)
        parts = ("", "/events", "/answer", "/graph", "/inputs", "/feedback", "/explain", "/nodes/check")
        response = f"/v1/responses/{ResponseRef(run, 'plan/ask').id}"
        paths = [f"/v1/runs/{run}{part}" for part in parts]
        paths += [f"/v1/sessions/{session}", f"/v1/runs/{of_turn}", response]
        closed = {(await get(live, bob, path)).status_code for path in paths}
        acts = ("/cancel", "/pause", "/resume", "/feedback", "/fork", "/nodes/check/retry")
        bodies = {"/feedback": {"answer": "yes"}, "/fork": {"start": True}}
        refused = {(await post(live, bob, f"/v1/runs/{run}{act}", bodies.get(act, {}))).status_code for act in acts}
        sessions = await list_field("/v1/sessions", "session_id")
        lists, inboxes = await list_field("/v1/runs", "run_id"), await list_field("/v1/inbox", "run_id")
        fetched = (await get(live, ann, response)).status_code
        hers = (await get(live, ann, f"/v1/sessions/{session}")).json()
        answered = await post(live, boss, f"/v1/runs/{run}/feedback", {"answer": "yes"})
        by = await post(live, ann, f"/v1/runs/{of_turn}/feedback", {"answer": "yes", "by": "bob"})
        document = (await get(live, ann, f"/v1/runs/{of_turn}/nodes/check")).json()
    assert (nobody.status_code, nobody.json()["error"]["code"], wrong.status_code) == (401, "invalid_api_key", 401)
    assert run != his
    assert (asked.headers["x-session-id"], asked.json()["dagwright"]["session_id"]) == (session, session)
    assert (closed, refused, fetched) == ({404}, {404}, 200)
    assert (sessions[:2], f"{keys.owner('ann')}:{session}" in sessions[2]) == ([[session], []], True)
    assert (lists[:2], {run, of_turn, his} <= {*lists[2]}) == ([[of_turn, run], [his]], True)
    assert ({*inboxes[0]}, inboxes[1], {run, of_turn} <= {*inboxes[2]}) == ({run, of_turn}, [], True)
    assert (hers["session_id"], hers["run"]["session_id"]) == (session, session)
    assert (answered.status_code, by.status_code) == (200, 200)
    assert document["lineage"]["answers"][0]["by"] == keys.owner("ann")


async def test_runs_and_streams_are_limited_per_key(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, bob = keys.add("ann"), keys.add("bob")
    more = {"api_keys": keys.path, "api_runs": 2, "api_streams": 1}
    async with serve(extra_settings=more) as live, AsyncExitStack() as stack:
        body = {"plan": ASKING}
        run = (await post(live, ann, "/v1/runs", body, Idempotency_Key="1")).json()["run_id"]
        # Before the list of the server has them.
        actual = await asyncio.gather(*(post(live, ann, "/v1/runs", body) for _ in range(10)))
        many = await post(live, ann, "/v1/runs", body)
        repeated_response = await post(live, ann, "/v1/runs", body, Idempotency_Key="1")
        his = await post(live, bob, "/v1/runs", body)
        events = f"/v1/runs/{run}/events"
        stream = await stack.enter_async_context(live.http.stream("GET", events, headers=bearer(ann)))
        second_response = await get(live, ann, events)
        await stream.aclose()

        async def is_free() -> bool:
            async with live.http.stream("GET", events, headers=bearer(ann)) as third:
                return third.status_code == 200

        await eventually(is_free)
    assert sorted(each.status_code for each in actual) == [201, *[429] * 9]
    assert (many.status_code, many.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(many.headers["retry-after"]) >= 1
    assert (repeated_response.status_code, repeated_response.json()["run_id"], his.status_code) == (200, run, 201)
    assert (second_response.status_code, stream.status_code) == (429, 200)


async def test_concurrent_streams_are_limited_per_key(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann = keys.add("ann")
    more = {"api_keys": keys.path, "api_streams": 2}
    node = {"id": "wait", "tool": "wait", "arguments": {"duration": "10m"}}
    plans = {"wait": {"plan": 1, "nodes": [node]}}
    asked = chat_body("plan/wait", stream=True)
    async with serve(plans=plans, extra_settings=more) as live, AsyncExitStack() as stack:

        async def open_one() -> int:
            request = live.http.stream("POST", CHAT, json=asked, headers=bearer(ann))
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


async def test_file_tools_of_a_key_stay_in_the_folder_of_its_owner(serve: Serve, tmp_path: Path) -> None:
    keys, root = Keys(tmp_path), tmp_path / "files"
    ann, bob = keys.add("ann"), keys.add("bob")
    read = {"id": "r", "tool": "read_file", "arguments": {"path": "a.txt"}, "cache": {"ttl": "1h"}}
    reading = {"plan": 1, "nodes": [read]}
    # A sub-plan is a workflow of its own, which belongs to the same owner.
    below = {"id": "sub", "plan": {**reading, "output": "{{r.result}}"}, "depends_on": ["w"]}
    writing = {"id": "w", "tool": "write_file", "arguments": {"path": "a.txt", "content": "of ann"}}
    plan = {"plan": 1, "nodes": [writing, below], "output": "{{sub.result}}"}

    async def run_to_end(live: Gateway, key: str, plan: Any) -> Any:
        run = (await post(live, key, "/v1/runs", {"plan": plan})).json()["run_id"]

        async def has_ended() -> bool:
            return (await get(live, key, f"/v1/runs/{run}")).json()["status"] in ("completed", "failed")

        await eventually(has_ended)
        return (await get(live, key, f"/v1/runs/{run}")).json()

    async with serve(extra_settings={"api_keys": keys.path, "files_root": root}) as live:
        hers, his = await run_to_end(live, ann, plan), await run_to_end(live, bob, reading)
    async with serve(extra_settings={"api_keys": keys.path}) as live:
        without = await run_to_end(live, ann, reading)
    assert (hers["status"], hers["output"]) == ("completed", "of ann")
    assert (root / keys.owner("ann") / "a.txt").read_text() == "of ann"
    assert "There is no file 'a.txt'" in his["nodes"]["r"]["error"]["message"]
    assert "set DAGWRIGHT_FILES_ROOT on the worker" in without["nodes"]["r"]["error"]["message"]


def _assigned_approval(name: str, assignee: str) -> dict[str, Any]:
    return {"id": name, "human": {"type": "APPROVAL", "prompt": f"Is {name} right?", "assignee": assignee}}


async def test_assignee_answers_with_its_key_and_others_need_operate(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann, boss = keys.add("ann", KeyScope.RUN, KeyScope.ANSWER), keys.add("boss", KeyScope.ANSWER)
    eve, operator = keys.add("eve"), keys.add("ann", KeyScope.OPERATE, KeyScope.ANSWER)
    name = keys.owner("boss")
    plan = plan_of(_assigned_approval("first", name), _assigned_approval("second", name), CHECK)
    async with serve(extra_settings={"api_keys": keys.path}) as live:
        run = (await post(live, ann, "/v1/runs", {"plan": plan})).json()["run_id"]
        path = f"/v1/runs/{run}/feedback"

        async def list_requests(key: str, where: str) -> list[str]:
            listed = (await get(live, key, where)).json().get("data", [])
            return sorted(each["request_id"] for each in listed if each["run_id"] == run)

        async def has_asked() -> bool:
            return len(await list_requests(ann, path)) == 3

        await eventually(has_asked)

        async def response_to(key: str, request: str) -> tuple[int, str]:
            answer = await post(live, key, path, {"request_id": request, "answer": "yes"})
            return answer.status_code, answer.json().get("error", {}).get("message", "")

        seen = [await list_requests(key, where) for key in (boss, eve) for where in ("/v1/inbox", path)]
        rest = (await get(live, boss, f"/v1/runs/{run}")).status_code
        refused = [await response_to(ann, "first"), await response_to(eve, "first"), await response_to(boss, "check")]
        taken = [
            await response_to(boss, "first"),
            await response_to(operator, "second"),
            await response_to(ann, "check"),
        ]
        gone = await list_requests(boss, "/v1/inbox")
        result = (await get(live, ann, f"/v1/runs/{run}/nodes/first")).json()["lineage"]["answers"][0]
    assert seen == [["first", "second"], ["first", "second"], [], []]
    assert (rest, gone) == (404, [])
    assert [status for status, _ in refused] == [400, 404, 404]
    assert f"'first' waits for {name}: only a key of the owner" in refused[0][1]
    assert [status for status, _ in taken] == [200, 200, 200]
    assert (result["by"], result["requested_from"], result["escalations"]) == (name, name, [])


async def test_key_of_all_owners_sets_and_removes_limits_across_runs(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    boss = keys.add(ALL_OWNERS)
    subject = f"owner:{keys.owner('ann')}"
    path = f"/v1/call-limits/{subject}"
    async with serve(extra_settings={"api_keys": keys.path}) as live:

        async def send(method: str, path: str, body: Any = None) -> httpx.Response:
            return await live.http.request(method, path, json=body, headers=bearer(boss))

        async def list_limits() -> list[Any]:
            data = (await send("GET", "/v1/call-limits")).json()["data"]
            return [(item["limit"], item["is_declared"]) for item in data if item["subject"] == subject]

        put = await send("PUT", path, {"limit": "concurrency=5 20/s"})

        async def is_listed() -> bool:
            return await list_limits() == [("20/s concurrency=5", False)]

        await eventually(is_listed)
        refused = [
            (await send("PUT", path, {"limit": "20 a second"})).json()["error"],
            (await send("PUT", "/v1/call-limits/tool:http_reqest", {"limit": "20/s"})).json()["error"],
        ]
        removed, again = [await send("DELETE", path) for _ in range(2)]
    assert (put.status_code, put.json()["limit"], put.json()["subject"]) == (200, "20/s concurrency=5", subject)
    assert [error["code"] for error in refused] == ["refused"] * 2
    assert "did you mean 'http_request'?" in refused[1]["message"]
    assert removed.json() == {"subject": subject, "limit": "20/s concurrency=5", "declared": None}
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_found")
