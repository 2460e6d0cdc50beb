"""Runs and sessions through the gateway: looking, events that go on after a drop, answers, steering and forks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.e2e.conftest import calculation
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway, named_events_of
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

ASKING = {
    "plan": 1,
    "title": "Publish a number",
    "inputs": {"number": {"type": "integer"}},
    "nodes": [
        calculation("double", "{{PLACEHOLDER_number}} * 2"),
        {"id": "check", "depends_on": ["double"], "human": {"type": "APPROVAL", "prompt": "Publish?"}},
        calculation("after", "{{double.result}} + 1", depends_on=["check"]),
    ],
    "output": "{{after.result}}",
}
ENDED = {"completed", "failed", "skipped", "blocked", "cancelled"}


async def asks(live: Gateway, run: str) -> dict[str, Any]:
    """Waits until a run asks something, and returns what."""

    found: list[dict[str, Any]] = []

    async def asked() -> bool:
        found[:] = (await live.http.get(f"/v1/runs/{run}/feedback")).json()["data"]
        return bool(found)

    await eventually(asked)
    return found[0]


async def events(live: Gateway, path: str, **headers: str) -> list[Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await live.http.get(path, headers=named)
    assert answer.status_code == 200, answer.text
    return named_events_of(answer.text)


def states(found: list[Any]) -> list[tuple[str, str]]:
    return [(n["node_id"], n["status"]) for each in found if each.name == "nodes" for n in each.content["nodes"]]


async def test_run_is_started_asked_answered_and_told(server: LiveServer, tmp_path: Path) -> None:
    async with gateway(server, folder=tmp_path) as live:
        run = await live.start(ASKING, inputs={"number": 21})
        asked = await asks(live, run)
        wrong = await live.post(f"/v1/runs/{run}/feedback", {"answer": {"approved": "perhaps"}})
        inbox = [each["run_id"] for each in (await live.http.get("/v1/inbox")).json()["data"]]
        told = await live.post(f"/v1/runs/{run}/feedback", {"request": "check", "answer": "yes", "by": "ann"})
        found = await events(live, f"/v1/runs/{run}/events")
        document = (await live.http.get(f"/v1/runs/{run}")).json()
        graph = (await live.http.get(f"/v1/runs/{run}/graph")).json()
        inputs = (await live.http.get(f"/v1/runs/{run}/inputs")).json()
        node = (await live.http.get(f"/v1/runs/{run}/nodes/double")).json()
        none = await live.http.get(f"/v1/runs/{run}/nodes/dubble")
        why = (await live.http.get(f"/v1/runs/{run}/why", params={"node": "after"})).json()
        listed = (await live.http.get("/v1/runs", params={"title": run, "status": "completed"})).json()["data"]
    assert (asked["id"], asked["answer_schema"]["required"]) == ("check", ["approved"])
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "answer_refused")
    assert run in inbox
    assert (told.status_code, told.json()["ok"]) == (200, True)
    assert {name for name, status in states(found) if status in ENDED} == {"double", "check", "after"}
    assert (found[-1].name, found[-1].content["status"], found[-1].content["output"]) == ("end", "completed", 43)
    assert (document["output"], document["session_id"]) == (43, None)
    assert ["double", "check"] in graph["edges"]
    assert (inputs["inputs"], inputs["schema"]["required"]) == ({"number": 21}, ["number"])
    assert (node["result"], none.status_code) == (42, 404)
    assert "did you mean 'double'?" in none.json()["error"]["message"]
    assert why["node"] == "after"
    assert [each["run_id"] for each in listed] == [run]


async def test_events_go_on_at_the_other_gateway_each_once(server: LiveServer, tmp_path: Path) -> None:
    queue = f"gateway-{uuid4().hex[:8]}"
    async with (
        gateway(server, folder=tmp_path, queue=queue) as one,
        gateway(server, folder=tmp_path, queue=queue, has_worker=False) as other,
    ):
        run = await one.start(ASKING, inputs={"number": 21})
        await asks(one, run)
        first: list[Any] = []
        async with one.http.stream("GET", f"/v1/runs/{run}/events") as response:
            async for block in _blocks(response):
                first += named_events_of(block)
                if ("check", "waiting") in states(first):
                    break
        await other.post(f"/v1/runs/{run}/feedback", {"answer": "yes"})
        rest = await events(other, f"/v1/runs/{run}/events", Last_Event_ID=first[-1].id)
        by_address = await events(other, f"/v1/runs/{run}/events?after={first[-1].id}")
        ended = await other.http.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": rest[-1].id})
        unknown = await other.http.get(f"/v1/runs/{run}/events?after=yesterday")
    told = states(first) + states(rest)
    assert len(told) == len(set(told))
    assert {name for name, status in told if status in ENDED} == {"double", "check", "after"}
    assert ("double", "completed") in states(first)
    # A state that has passed by the second reading is not told then.
    assert [each for each in states(by_address) if each[1] in ENDED] == [
        each for each in states(rest) if each[1] in ENDED
    ]
    assert rest[-1].name == "end"
    assert (ended.status_code, unknown.status_code) == (204, 400)


async def _blocks(response: httpx.Response) -> AsyncIterator[str]:
    text = ""
    async for piece in response.aiter_text():
        text += piece
        while "\n\n" in text:
            block, text = text.split("\n\n", 1)
            yield f"{block}\n\n"


async def test_session_tells_its_turn(server: LiveServer, tmp_path: Path) -> None:
    session = f"s-{uuid4().hex[:8]}"
    async with gateway(server, folder=tmp_path, plans={"ask": ASKING}) as live:
        body = {
            "model": "plan/ask",
            "messages": [{"role": "user", "content": '{"number": 2}'}],
            "session_id": session,
        }
        asked = (await live.post("/v1/chat/completions", body)).json()
        now = (await live.http.get(f"/v1/orchestration/{session}")).json()
        requests = (await live.http.get(f"/v1/orchestration/{session}/feedback")).json()["data"]
        await live.post(f"/v1/orchestration/{session}/feedback", {"answer": {"approved": True}})
        found = await events(live, f"/v1/orchestration/{session}/events")
        graph = (await live.http.get(f"/v1/orchestration/{session}/graph")).json()
        none = await live.http.get("/v1/orchestration/nobody")
        listed = (await live.http.get("/v1/orchestration")).json()["data"]
        end = await live.http.get(f"/v1/orchestration/{session}/events", headers={"Last-Event-ID": found[-1].id})
    run = asked["dagwright"]["run_id"]
    assert (now["session_id"], now["run"]["run_id"], now["run"]["session_id"]) == (session, run, session)
    assert [each["id"] for each in requests] == ["check"]
    assert [(each["turns"], each["last_run"]) for each in listed if each["session_id"] == session] == [(1, run)]
    assert (found[-1].name, found[-1].content["output"]) == ("end", 5)
    assert found[-1].id.startswith(f"{run}/")
    assert graph["run_id"] == run
    assert (none.status_code, end.status_code) == (404, 204)


async def test_run_is_steered(server: LiveServer, tmp_path: Path) -> None:
    async with gateway(server, folder=tmp_path) as live:
        run = await live.start(ASKING, inputs={"number": 1})
        await asks(live, run)
        paused = await live.post(f"/v1/runs/{run}/pause", {"by": "ann"})
        resumed = await live.http.post(f"/v1/runs/{run}/resume")
        more = [calculation("more", "{{double.result}} * 10")]
        appended = await live.post(f"/v1/runs/{run}/nodes", {"nodes": more})
        wrong = await live.post(f"/v1/runs/{run}/nodes", {"nodes": [{"id": "other", "tool": "no such tool"}]})
        given = await live.post(f"/v1/runs/{run}/nodes/check/result", {"result": {"approved": True}})
        stopped = await live.post(f"/v1/runs/{run}/nodes/check/cancel", {"branch": True})
        found = await events(live, f"/v1/runs/{run}/events")
        retried = await live.http.post(f"/v1/runs/{run}/nodes/double/retry")
        shown = (await live.post(f"/v1/runs/{run}/fork", {"inputs": {"number": 4}})).json()
        forked = (await live.post(f"/v1/runs/{run}/fork", {"inputs": {"number": 4}, "start": True})).json()
        cancelled = await live.post(f"/v1/runs/{forked['fork']}/cancel", {"reason": "enough"})
        end = (await events(live, f"/v1/runs/{forked['fork']}/events"))[-1]
    assert [each.status_code for each in (paused, resumed, appended)] == [200, 200, 200]
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unknown_tool")
    assert {given.status_code, stopped.status_code} <= {200, 400, 409}
    assert ("more", "completed") in states(found)
    assert retried.status_code in (409, 400)
    assert (shown["is_started"], shown["fork"]) == (False, forked["fork"])
    assert "double" in [each["node"] for each in forked["difference"]["runs"]]
    assert cancelled.status_code == 200
    assert end.content["status"] == "cancelled"


async def test_limits_and_policy_are_told_and_changed(server: LiveServer, tmp_path: Path) -> None:
    policy = {"rules": [{"effects": ["write"], "then": "ask"}], "otherwise": "run"}
    async with gateway(server, folder=tmp_path) as live:
        run = await live.start(ASKING, inputs={"number": 1})
        await asks(live, run)
        before = (await live.http.get(f"/v1/runs/{run}/limits")).json()
        raised = await live.post(f"/v1/runs/{run}/limits", {"max_parallel": 8, "deadline": "4h", "by": "ann"})
        limits = (await live.http.get(f"/v1/runs/{run}/limits")).json()
        lifted = await live.post(f"/v1/runs/{run}/limits", {"deadline": None})
        wrong = [
            await live.post(f"/v1/runs/{run}/limits", body)
            for body in ({}, {"max_parallel": 0}, {"deadline": "soon"}, {"budget": {"tokens": 5}})
        ]
        changed = await live.post(f"/v1/runs/{run}/policy", {"policy": policy, "by": "ann"})
        refused = await live.post(f"/v1/runs/{run}/policy", {"policy": {"rules": 1}})
        told = (await live.http.get(f"/v1/runs/{run}/policy")).json()
        after = (await live.http.get(f"/v1/runs/{run}")).json()
        await live.post(f"/v1/runs/{run}/cancel", {})
        await events(live, f"/v1/runs/{run}/events")
        ended = await live.post(f"/v1/runs/{run}/limits", {"max_parallel": 9})
    assert before == {"run_id": run, "max_parallel": 500, "deadline": None}
    assert raised.json() == {"run_id": run, "ok": True, "message": "the run has max_parallel 8 and deadline 4h now"}
    assert (limits["max_parallel"], limits["deadline"] is None) == (8, False)
    assert lifted.json()["message"] == "the run has no deadline now"
    assert [(each.status_code, each.json()["error"]["code"]) for each in wrong] == [(400, "refused")] * 4
    assert (changed.json()["message"], told) == ("the policy is changed", {"run_id": run, "policy": policy})
    assert (refused.status_code, ended.status_code) == (400, 409)
    assert any("set by ann" in note["message"] for note in after["notes"])


async def found_by(live: Gateway, metadata: list[str]) -> list[Any]:
    """Returns the lines of the runs with some metadata, once the list of the server has one."""

    found: list[Any] = []

    async def are_listed() -> bool:
        found[:] = (await live.http.get("/v1/runs", params={"metadata": metadata})).json()["data"]
        return bool(found)

    await eventually(are_listed)
    return found


async def test_failed_run_says_why_wherever_it_is_told(server: LiveServer, tmp_path: Path) -> None:
    key = uuid4().hex
    async with gateway(server, folder=tmp_path) as live:
        plan = {"plan": 1, "nodes": [calculation("broken", "1 / 0")], "output": "{{broken.result}}"}
        run = await live.start(plan, metadata={"order": key})
        last = (await events(live, f"/v1/runs/{run}/events"))[-1]
        document = (await live.http.get(f"/v1/runs/{run}")).json()
        why = (await live.http.get(f"/v1/runs/{run}/why")).json()
        (line,) = await found_by(live, [f"order={key}"])
    error = {"code": "node_failed", "message": "'broken' failed: '1 / 0' divides by zero", "node": "broken"}
    assert (last.name, last.content["error"]) == ("end", error)
    assert (document["error"], line["error"], why["error"]) == (error, error, error)


async def test_plans_are_checked_and_started_once(server: LiveServer, tmp_path: Path) -> None:
    async with gateway(server, folder=tmp_path, plans={"ask": ASKING}) as live:
        good = (await live.post("/v1/plans/check", {"plan": ASKING})).json()
        bad = (await live.post("/v1/plans/check", {"plan": {"plan": 1, "nodes": [{"id": "a", "tool": "?"}]}})).json()
        key = uuid4().hex
        body = {"template": "ask", "inputs": {"number": 3}, "metadata": {"order": key, "team": "blue"}}
        new = await live.post("/v1/runs", body, Idempotency_Key=key)
        known = await live.post("/v1/runs", body, Idempotency_Key=key)
        first, again = new.json(), known.json()
        document = (await live.http.get(new.headers["location"])).json()
        found = await found_by(live, [f"order={key}", "team=blue"])
        none = await live.http.get("/v1/runs", params={"metadata": [f"order={key}", "team=red"]})
        unclear = await live.http.get("/v1/runs", params={"metadata": "order"})
        await live.post(f"/v1/runs/{first['run_id']}/cancel", {})
        await events(live, f"/v1/runs/{first['run_id']}/events")
        ended = (await live.post("/v1/runs", body, Idempotency_Key=key)).json()
        other = await live.post("/v1/runs", {**body, "inputs": {"number": 4}}, Idempotency_Key=key)
        both = await live.post("/v1/runs", {**body, "plan": ASKING})
        unknown = await live.post("/v1/runs", {"template": "asc"})
    assert (good["status"], good["nodes"], good["inputs"]["required"]) == ("valid", 3, ["number"])
    assert (bad["status"], bad["errors"][0]["code"]) == ("invalid", "unknown_tool")
    assert (first["is_new"], again["is_new"], first["run_id"]) == (True, False, again["run_id"])
    assert (new.status_code, known.status_code, "location" in known.headers) == (201, 200, False)
    assert (document["run_id"], document["metadata"]) == (first["run_id"], {"order": key, "team": "blue"})
    assert [(each["run_id"], each["metadata"]) for each in found] == [(first["run_id"], document["metadata"])]
    assert (none.json()["data"], none.json()["has_more"]) == ([], False)
    assert (unclear.status_code, unclear.json()["error"]["param"]) == (400, "metadata")
    assert (ended["run_id"], ended["is_new"], ended["status"]) == (first["run_id"], False, "cancelled")
    assert (other.status_code, both.status_code, unknown.status_code) == (409, 400, 404)


@pytest.mark.parametrize(
    ("body", "words"), [(None, "was cancelled;"), ({"reason": "enough", "by": "ann"}, "was cancelled by ann: enough;")]
)
async def test_who_waits_for_a_turn_is_told_who_cancelled_it(
    server: LiveServer, tmp_path: Path, body: Any, words: str
) -> None:
    session = f"s-{uuid4().hex[:8]}"
    node = {"id": "wait", "tool": "wait", "arguments": {"duration": "10m"}}
    plans = {"long": {"plan": 1, "nodes": [node], "output": "done {{wait.result}}"}}
    asked = {"model": "plan/long", "messages": [{"role": "user", "content": "{}"}], "session_id": session}
    async with gateway(server, folder=tmp_path, plans=plans) as live:
        asking = asyncio.create_task(live.post("/v1/chat/completions", asked))

        async def is_cancelled() -> bool:
            return (await live.http.post(f"/v1/orchestration/{session}/cancel", json=body)).status_code == 200

        await eventually(is_cancelled)
        told = await asking
    error, about = told.json()["error"], told.json()["dagwright"]
    assert (told.status_code, error["code"], about["status"]) == (422, "run_cancelled", "cancelled")
    assert words in error["message"]
    assert (told.headers["x-run-id"], told.headers["x-session-id"]) == (about["run_id"], session)


async def test_pages_of_runs_tell_each_once(server: LiveServer, tmp_path: Path) -> None:
    name = f"paged {uuid4().hex[:8]}"
    plan = {"plan": 1, "title": name, "nodes": [calculation("one", "1")]}
    found: list[str] = []
    pages = 0
    async with gateway(server, folder=tmp_path) as live:
        runs = [await live.start(plan) for _ in range(5)]
        for run in runs:
            await events(live, f"/v1/runs/{run}/events")
        asked = {"title": name, "limit": "2"}
        while True:
            page = (await live.http.get("/v1/runs", params=asked)).json()
            found += [each["run_id"] for each in page["data"]]
            pages += 1
            if page["next"] is None:
                break
            asked["cursor"] = page["next"]
        texts = ("yesterday", "5.0.AAAA", "2.0..1")
        wrong = [await live.http.get("/v1/runs", params={"cursor": text}) for text in texts]
    assert sorted(found) == sorted(runs)
    assert pages == 3
    assert [(each.status_code, each.json()["error"]["type"]) for each in wrong] == [(400, "invalid_request_error")] * 3
