"""Runs and sessions through the gateway: reading, events that continue after a drop, answers, commands and forks."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.conftest import CHECK, Serve, calculation, plan_of
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, blocks_of, named_events_of

pytestmark = pytest.mark.server

ASKING = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),
    {**CHECK, "depends_on": ["double"]},
    calculation("after", "{{double.result}} + 1", depends_on=["check"]),
    title="Publish a number",
    inputs={"number": {"type": "integer"}},
    output="{{after.result}}",
)
ENDED = {"completed", "failed", "skipped", "blocked", "cancelled"}


async def events(live: Gateway, path: str, **headers: str) -> list[Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await live.http.get(path, headers=named)
    assert answer.status_code == 200, answer.text
    return named_events_of(answer.text)


def states(found: list[Any]) -> list[tuple[str, str]]:
    return [(each.content["node_id"], each.content["status"]) for each in found if each.name.startswith("node.")]


def last_id(found: list[Any]) -> str:
    """Return the cursor of a client: the last event of each moment has one."""
    return str(next(each.id for each in reversed(found) if each.id))


async def test_run_is_started_asked_answered_and_reported(serve: Serve) -> None:
    async with serve() as live:
        run = await live.start(ASKING, inputs={"number": 21})
        (asked,) = await live.wait_for_requests(run)
        response = await live.post(f"/v1/runs/{run}/feedback", {"answer": {"approved": "perhaps"}})
        inbox = [item["run_id"] for item in (await live.http.get("/v1/inbox")).json()["data"]]
        result = await live.post(f"/v1/runs/{run}/feedback", {"request_id": "check", "answer": "yes", "by": "ann"})
        actual = await events(live, f"/v1/runs/{run}/events")
        document = (await live.http.get(f"/v1/runs/{run}")).json()
        graph = (await live.http.get(f"/v1/runs/{run}/graph")).json()
        inputs = (await live.http.get(f"/v1/runs/{run}/inputs")).json()
        node = (await live.http.get(f"/v1/runs/{run}/nodes/double")).json()
        none = await live.http.get(f"/v1/runs/{run}/nodes/dubble")
        why = (await live.http.get(f"/v1/runs/{run}/explain", params={"node": "after"})).json()
        listed = (await live.http.get("/v1/runs", params={"title": run, "status": "completed"})).json()["data"]
    assert (asked["request_id"], asked["answer_schema"]["required"]) == ("check", ["approved"])
    assert (response.status_code, response.json()["error"]["code"]) == (400, "answer_refused")
    assert run in inbox
    assert (result.status_code, result.json()["ok"]) == (200, True)
    assert {name for name, status in states(actual) if status in ENDED} == {"double", "check", "after"}
    expected = ("run.completed", "completed", 43)
    assert (actual[-1].name, actual[-1].content["status"], actual[-1].content["output"]) == expected
    assert (document["output"], document["session_id"]) == (43, None)
    assert ["double", "check"] in graph["edges"]
    assert (inputs["inputs"], inputs["schema"]["required"]) == ({"number": 21}, ["number"])
    assert (node["result"], none.status_code) == (42, 404)
    assert "did you mean 'double'?" in none.json()["error"]["message"]
    assert why["node_id"] == "after"
    assert [each["run_id"] for each in listed] == [run]


async def test_events_continue_at_the_other_gateway_each_once(serve: Serve) -> None:
    queue = f"gateway-{uuid4().hex[:8]}"
    async with serve(queue=queue) as one, serve(queue=queue, has_worker=False) as other:
        run = await one.start(ASKING, inputs={"number": 21})
        await one.wait_for_requests(run)
        first: list[Any] = []
        async with one.http.stream("GET", f"/v1/runs/{run}/events") as response:
            async for block in blocks_of(response):
                first += named_events_of(block)
                if ("check", "waiting") in states(first) and first[-1].id:
                    break
        await other.post(f"/v1/runs/{run}/feedback", {"answer": "yes"})
        rest = await events(other, f"/v1/runs/{run}/events", Last_Event_ID=last_id(first))
        by_address = await events(other, f"/v1/runs/{run}/events?after={last_id(first)}")
        ended = await other.http.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": rest[-1].id})
        unknown = await other.http.get(f"/v1/runs/{run}/events?after=yesterday")
    result = states(first) + states(rest)
    assert len(result) == len(set(result))
    assert {name for name, status in result if status in ENDED} == {"double", "check", "after"}
    assert ("double", "completed") in states(first)
    # A state that is over by the second reading is not sent then.
    second_stream, first_stream = (
        [state for state in states(some) if state[1] in ENDED] for some in (by_address, rest)
    )
    assert second_stream == first_stream
    assert rest[-1].name == "run.completed"
    assert (ended.status_code, unknown.status_code) == (204, 400)


async def test_session_reports_its_turn(serve: Serve) -> None:
    session = f"s-{uuid4().hex[:8]}"
    async with serve(plans={"ask": ASKING}) as live:
        asked = (await live.chat("plan/ask", '{"number": 2}', session_id=session)).json()
        now = (await live.http.get(f"/v1/sessions/{session}")).json()
        requests = (await live.http.get(f"/v1/sessions/{session}/feedback")).json()["data"]
        await live.post(f"/v1/sessions/{session}/feedback", {"answer": {"approved": True}})
        actual = await events(live, f"/v1/sessions/{session}/events")
        alias = (await live.http.get(f"/v1/orchestration/{session}")).json()
        five = await events(live, f"/v1/orchestration/{session}/events")
        graph = (await live.http.get(f"/v1/sessions/{session}/graph")).json()
        none = await live.http.get("/v1/sessions/nobody")
        listed = (await live.http.get("/v1/sessions")).json()["data"]
        response = await live.http.get(f"/v1/sessions/{session}/events", headers={"Last-Event-ID": actual[-1].id})
    run = asked["dagwright"]["run_id"]
    assert (now["session_id"], now["run"]["run_id"], now["run"]["session_id"]) == (session, run, session)
    assert [request["request_id"] for request in requests] == ["check"]
    assert [(each["turns"], each["last_run_id"]) for each in listed if each["session_id"] == session] == [(1, run)]
    assert (actual[-1].name, actual[-1].content["output"]) == ("run.completed", 5)
    assert actual[-1].id.startswith(f"{run}/")
    assert graph["run_id"] == run
    assert (alias["session_id"], {each.name for each in five}) == (session, {"node_completed"})
    assert five[-1].content["type"] == "node_completed"
    assert (none.status_code, response.status_code) == (404, 204)


async def found_by(live: Gateway, metadata: list[str]) -> list[Any]:
    """Return the lines of the runs with some metadata, once the list of the server has one."""

    actual: list[Any] = []

    async def are_listed() -> bool:
        actual[:] = (await live.http.get("/v1/runs", params={"metadata": metadata})).json()["data"]
        return bool(actual)

    await eventually(are_listed)
    return actual


async def test_failed_run_reports_why_everywhere(serve: Serve) -> None:
    key = uuid4().hex
    async with serve() as live:
        plan = {"plan": 1, "nodes": [calculation("broken", "1 / 0")], "output": "{{broken.result}}"}
        run = await live.start(plan, metadata={"order": key})
        last = (await events(live, f"/v1/runs/{run}/events"))[-1]
        document = (await live.http.get(f"/v1/runs/{run}")).json()
        why = (await live.http.get(f"/v1/runs/{run}/explain")).json()
        (line,) = await found_by(live, [f"order={key}"])
    error = {"code": "node_failed", "message": "'broken' failed: '1 / 0' divides by zero", "node_id": "broken"}
    assert (last.name, last.content["error"]) == ("run.failed", error)
    assert (document["error"], line["error"], why["error"]) == (error, error, error)


async def test_plans_are_checked_and_started_once(serve: Serve) -> None:
    async with serve(plans={"ask": ASKING}) as live:
        good = (await live.post("/v1/plans/check", {"plan": ASKING})).json()
        bad = (await live.post("/v1/plans/check", {"plan": {"plan": 1, "nodes": [{"id": "a", "tool": "?"}]}})).json()
        key = uuid4().hex
        body = {"template": "ask", "inputs": {"number": 3}, "metadata": {"order": key, "team": "blue"}}
        new = await live.post("/v1/runs", body, Idempotency_Key=key)
        known = await live.post("/v1/runs", body, Idempotency_Key=key)
        first, again = new.json(), known.json()
        document = (await live.http.get(new.headers["location"])).json()
        actual = await found_by(live, [f"order={key}", "team=blue"])
        none = await live.http.get("/v1/runs", params={"metadata": [f"order={key}", "team=red"]})
        unclear = await live.http.get("/v1/runs", params={"metadata": "order"})
        await live.post(f"/v1/runs/{first['run_id']}/cancel", {})
        await events(live, f"/v1/runs/{first['run_id']}/events")
        ended = (await live.post("/v1/runs", body, Idempotency_Key=key)).json()
        other = await live.post("/v1/runs", {**body, "inputs": {"number": 4}}, Idempotency_Key=key)
        both = await live.post("/v1/runs", {**body, "plan": ASKING})
        unknown = await live.post("/v1/runs", {"template": "asc"})
    assert (good["status"], good["node_count"], good["inputs"]["required"]) == ("valid", 3, ["number"])
    assert (bad["status"], bad["errors"][0]["code"]) == ("invalid", "unknown_tool")
    assert (first["created"], again["created"], first["run_id"]) == (True, False, again["run_id"])
    assert (new.status_code, known.status_code, "location" in known.headers) == (201, 200, False)
    assert (document["run_id"], document["metadata"]) == (first["run_id"], {"order": key, "team": "blue"})
    assert [(each["run_id"], each["metadata"]) for each in actual] == [(first["run_id"], document["metadata"])]
    assert (none.json()["data"], none.json()["has_more"]) == ([], False)
    assert (unclear.status_code, unclear.json()["error"]["param"]) == (400, "metadata")
    assert (ended["run_id"], ended["created"], ended["status"]) == (first["run_id"], False, "cancelled")
    assert (other.status_code, both.status_code, unknown.status_code) == (409, 400, 404)


async def test_client_that_waits_for_a_turn_gets_the_actor_and_reason_of_its_cancellation(serve: Serve) -> None:
    session = f"s-{uuid4().hex[:8]}"
    node = {"id": "wait", "tool": "wait", "arguments": {"duration": "10m"}}
    plans = {"long": {"plan": 1, "nodes": [node], "output": "done {{wait.result}}"}}
    async with serve(plans=plans) as live:
        asking = asyncio.create_task(live.chat("plan/long", session_id=session))
        reason = {"reason": "enough", "by": "ann"}

        async def is_cancelled() -> bool:
            return (await live.post(f"/v1/sessions/{session}/cancel", reason)).is_success

        await eventually(is_cancelled)
        result = await asking
    error, about = result.json()["error"], result.json()["dagwright"]
    assert (result.status_code, error["code"], about["status"]) == (422, "run_cancelled", "cancelled")
    assert "was cancelled by ann: enough;" in error["message"]
    assert (result.headers["x-run-id"], result.headers["x-session-id"]) == (about["run_id"], session)


async def test_orchestration_stream_is_complete_at_a_deadline_that_is_no_event(serve: Serve) -> None:
    session = f"s-{uuid4().hex[:8]}"
    path = f"/v1/orchestration/{session}/events"
    async with serve(plans={"ask": ASKING}) as live:
        await live.chat("plan/ask", '{"number": 2}', session_id=session, deadline="4s")
        received = await events(live, path)
        last = {"Last-Event-ID": last_id(received)}
        response = await live.http.get(path, headers=last)
        second = (await live.chat("plan/ask", '{"number": 3}', session_id=session, deadline="4s")).json()
        following = await live.http.get(path, headers=last)
    waiting = received[-1].content
    assert (waiting["type"], waiting["node_id"]) == ("human_feedback_requested", "check")
    assert (response.status_code, response.text) == (204, "")
    assert (following.status_code, following.headers["X-Run-Id"]) == (200, second["dagwright"]["run_id"])
