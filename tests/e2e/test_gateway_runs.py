"""Runs and sessions through the gateway: documents, events after a reconnect, answers and cancellation."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of, wait_node
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, blocks_of, named_events_of

pytestmark = pytest.mark.server

APPROVAL_PLAN = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),
    {**APPROVAL_NODE, "depends_on": ["double"]},
    calculation("after", "{{double.result}} + 1", depends_on=["check"]),
    title="Publish a number",
    inputs={"number": {"type": "integer"}},
    output="{{after.result}}",
)
END_STATES = {"completed", "failed", "skipped", "blocked", "cancelled"}


async def read_events(gateway: Gateway, path: str, **headers: str) -> list[Any]:
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await gateway.http.get(path, headers=request_headers)
    assert response.status_code == 200, response.text
    return named_events_of(response.text)


def node_states(stream_events: list[Any]) -> list[tuple[str, str]]:
    return [
        (each.content["node_id"], each.content["status"]) for each in stream_events if each.name.startswith("node.")
    ]


def last_id(stream_events: list[Any]) -> str:
    """Return the last event ID. If several events happen at once, only the last of them has an ID."""
    return str(next(each.id for each in reversed(stream_events) if each.id))


async def test_run_requests_an_answer_and_all_documents_report_the_result(serve: Serve) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(APPROVAL_PLAN, inputs={"number": 21})
        (request,) = await gateway.wait_for_requests(run_id)
        rejected_response = await gateway.post(f"/v1/runs/{run_id}/feedback", {"answer": {"approved": "perhaps"}})
        inbox = [item["run_id"] for item in (await gateway.http.get("/v1/inbox")).json()["data"]]
        answer = {"request_id": "check", "answer": "yes", "by": "ann"}
        accepted_response = await gateway.post(f"/v1/runs/{run_id}/feedback", answer)
        stream_events = await read_events(gateway, f"/v1/runs/{run_id}/events")
        document = (await gateway.http.get(f"/v1/runs/{run_id}")).json()
        graph = (await gateway.http.get(f"/v1/runs/{run_id}/graph")).json()
        inputs = (await gateway.http.get(f"/v1/runs/{run_id}/inputs")).json()
        node = (await gateway.http.get(f"/v1/runs/{run_id}/nodes/double")).json()
        unknown_node_response = await gateway.http.get(f"/v1/runs/{run_id}/nodes/dubble")
        explanation = (await gateway.http.get(f"/v1/runs/{run_id}/explain", params={"node_id": "after"})).json()
        runs = (await gateway.http.get("/v1/runs", params={"title": run_id, "status": "completed"})).json()["data"]
    assert (request["request_id"], request["answer_schema"]["required"]) == ("check", ["approved"])
    assert (rejected_response.status_code, rejected_response.json()["error"]["code"]) == (400, "answer_rejected")
    assert run_id in inbox
    assert (accepted_response.status_code, accepted_response.json()["ok"]) == (200, True)
    assert {name for name, status in node_states(stream_events) if status in END_STATES} == {"double", "check", "after"}
    end_event = stream_events[-1].content
    assert (stream_events[-1].name, end_event["status"], end_event["output"]) == ("run.completed", "completed", 43)
    assert (document["output"], document["session_id"]) == (43, None)
    assert ["double", "check"] in graph["edges"]
    assert (inputs["inputs"], inputs["input_schema"]["required"]) == ({"number": 21}, ["number"])
    assert (node["result"], unknown_node_response.status_code) == (42, 404)
    assert "did you mean 'double'?" in unknown_node_response.json()["error"]["message"]
    assert explanation["node_id"] == "after"
    assert [each["run_id"] for each in runs] == [run_id]


async def test_events_continue_at_another_gateway_without_duplicates(serve: Serve) -> None:
    queue = f"gateway-{uuid4().hex[:8]}"
    async with serve(queue=queue) as first_gateway, serve(queue=queue, has_worker=False) as second_gateway:
        run_id = await first_gateway.start(APPROVAL_PLAN, inputs={"number": 21})
        await first_gateway.wait_for_requests(run_id)
        first_events: list[Any] = []
        async with first_gateway.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
            async for block in blocks_of(response):
                first_events += named_events_of(block)
                if ("check", "waiting") in node_states(first_events) and first_events[-1].id:
                    break
        await second_gateway.post(f"/v1/runs/{run_id}/feedback", {"answer": "yes"})
        path = f"/v1/runs/{run_id}/events"
        later_events = await read_events(second_gateway, path, Last_Event_ID=last_id(first_events))
        query_events = await read_events(second_gateway, f"{path}?after={last_id(first_events)}")
        end_headers = {"Last-Event-ID": later_events[-1].id}
        response_after_end = await second_gateway.http.get(path, headers=end_headers)
        unknown_cursor_response = await second_gateway.http.get(f"{path}?after=yesterday")
    all_states = node_states(first_events) + node_states(later_events)
    assert len(all_states) == len(set(all_states))
    assert {name for name, status in all_states if status in END_STATES} == {"double", "check", "after"}
    assert ("double", "completed") in node_states(first_events)
    # Only end states are compared, because the second reader gets no state that a node has left in the meantime.
    query_states, header_states = (
        [state for state in node_states(stream_events) if state[1] in END_STATES]
        for stream_events in (query_events, later_events)
    )
    assert query_states == header_states
    assert later_events[-1].name == "run.completed"
    assert (response_after_end.status_code, unknown_cursor_response.status_code) == (204, 400)


async def test_session_reports_its_turn(serve: Serve) -> None:
    session_id = f"s-{uuid4().hex[:8]}"
    async with serve(plans={"ask": APPROVAL_PLAN}) as gateway:
        turn = (await gateway.chat("plan/ask", '{"number": 2}', session_id=session_id)).json()
        session_document = (await gateway.http.get(f"/v1/sessions/{session_id}")).json()
        requests = (await gateway.http.get(f"/v1/sessions/{session_id}/feedback")).json()["data"]
        await gateway.post(f"/v1/sessions/{session_id}/feedback", {"answer": {"approved": True}})
        session_events = await read_events(gateway, f"/v1/sessions/{session_id}/events")
        orchestration_document = (await gateway.http.get(f"/v1/orchestration/{session_id}")).json()
        orchestration_events = await read_events(gateway, f"/v1/orchestration/{session_id}/events")
        graph = (await gateway.http.get(f"/v1/sessions/{session_id}/graph")).json()
        unknown_session_response = await gateway.http.get("/v1/sessions/missing")
        sessions = (await gateway.http.get("/v1/sessions")).json()["data"]
        headers = {"Last-Event-ID": session_events[-1].id}
        response = await gateway.http.get(f"/v1/sessions/{session_id}/events", headers=headers)
    run_id = turn["dagwright"]["run_id"]
    assert session_document["session_id"] == session_id
    assert session_document["run"]["run_id"] == run_id
    assert session_document["run"]["session_id"] == session_id
    assert [request["request_id"] for request in requests] == ["check"]
    assert [(each["turn_count"], each["last_run_id"]) for each in sessions if each["session_id"] == session_id] == [
        (1, run_id)
    ]
    assert (session_events[-1].name, session_events[-1].content["output"]) == ("run.completed", 5)
    assert session_events[-1].id.startswith(f"{run_id}/")
    assert graph["run_id"] == run_id
    assert (orchestration_document["session_id"], {each.name for each in orchestration_events}) == (
        session_id,
        {"node_completed"},
    )
    assert orchestration_events[-1].content["type"] == "node_completed"
    assert (unknown_session_response.status_code, response.status_code) == (404, 204)


async def wait_for_runs_with_tags(gateway: Gateway, tags: list[str]) -> list[Any]:
    """Wait until the server lists a run with the tags, and return all runs with the tags."""
    actual: list[Any] = []

    async def are_listed() -> bool:
        actual[:] = (await gateway.http.get("/v1/runs", params={"tags": tags})).json()["data"]
        return bool(actual)

    await eventually(are_listed)
    return actual


async def test_failed_run_has_the_same_error_in_all_documents(serve: Serve) -> None:
    key = uuid4().hex
    async with serve() as gateway:
        plan = plan_of(calculation("broken", "1 / 0"), output="{{broken.result}}")
        run_id = await gateway.start(plan, tags={"order": key})
        last_event = (await read_events(gateway, f"/v1/runs/{run_id}/events"))[-1]
        document = (await gateway.http.get(f"/v1/runs/{run_id}")).json()
        explanation = (await gateway.http.get(f"/v1/runs/{run_id}/explain")).json()
        (listed_run,) = await wait_for_runs_with_tags(gateway, [f"order={key}"])
    error = {"code": "node_failed", "message": "'broken' failed: '1 / 0' divides by zero", "node_id": "broken"}
    assert (last_event.name, last_event.content["error"]) == ("run.failed", error)
    assert (document["error"], listed_run["error"], explanation["error"]) == (error, error, error)


async def test_plan_is_checked_and_started_once_per_idempotency_key(serve: Serve) -> None:
    async with serve(plans={"ask": APPROVAL_PLAN}) as gateway:
        valid_check = (await gateway.post("/v1/plans/check", {"plan": APPROVAL_PLAN})).json()
        invalid_plan = plan_of({"id": "a", "tool": "?"})
        invalid_check = (await gateway.post("/v1/plans/check", {"plan": invalid_plan})).json()
        key = uuid4().hex
        body = {"template": "ask", "inputs": {"number": 3}, "tags": {"order": key, "team": "blue"}}
        new_response = await gateway.post("/v1/runs", body, Idempotency_Key=key)
        repeated_response = await gateway.post("/v1/runs", body, Idempotency_Key=key)
        first_run, repeated_run = new_response.json(), repeated_response.json()
        document = (await gateway.http.get(new_response.headers["location"])).json()
        listed_runs = await wait_for_runs_with_tags(gateway, [f"order={key}", "team=blue"])
        unmatched_response = await gateway.http.get("/v1/runs", params={"tags": [f"order={key}", "team=red"]})
        invalid_filter_response = await gateway.http.get("/v1/runs", params={"tags": "order"})
        await gateway.post(f"/v1/runs/{first_run['run_id']}/cancel", {})
        await read_events(gateway, f"/v1/runs/{first_run['run_id']}/events")
        ended_run = (await gateway.post("/v1/runs", body, Idempotency_Key=key)).json()
        different_response = await gateway.post("/v1/runs", {**body, "inputs": {"number": 4}}, Idempotency_Key=key)
        ambiguous_response = await gateway.post("/v1/runs", {**body, "plan": APPROVAL_PLAN})
        unknown_template_response = await gateway.post("/v1/runs", {"template": "asc"})
    assert valid_check["status"] == "valid"
    assert valid_check["node_count"] == 3
    assert valid_check["input_schema"]["required"] == ["number"]
    assert (invalid_check["status"], invalid_check["errors"][0]["code"]) == ("invalid", "unknown_tool")
    assert (first_run["created"], repeated_run["created"], first_run["run_id"]) == (True, False, repeated_run["run_id"])
    assert new_response.status_code == 201
    assert repeated_response.status_code == 200
    assert "location" not in repeated_response.headers
    assert (document["run_id"], document["tags"]) == (first_run["run_id"], {"order": key, "team": "blue"})
    assert [(each["run_id"], each["tags"]) for each in listed_runs] == [(first_run["run_id"], document["tags"])]
    assert (unmatched_response.json()["data"], unmatched_response.json()["has_more"]) == ([], False)
    assert (invalid_filter_response.status_code, invalid_filter_response.json()["error"]["param"]) == (400, "tags")
    assert (ended_run["run_id"], ended_run["created"], ended_run["status"]) == (first_run["run_id"], False, "cancelled")
    assert different_response.status_code == 409
    assert ambiguous_response.status_code == 400
    assert unknown_template_response.status_code == 404


async def test_client_that_waits_for_a_turn_gets_the_actor_and_reason_of_its_cancellation(serve: Serve) -> None:
    session_id = f"s-{uuid4().hex[:8]}"
    plans = {"long": plan_of(wait_node("wait", "10m"), output="done {{wait.result}}")}
    async with serve(plans=plans) as gateway:
        chat_task = asyncio.create_task(gateway.chat("plan/long", session_id=session_id))
        cancel_body = {"reason": "enough", "by": "ann"}

        async def cancel_turn() -> bool:
            return (await gateway.post(f"/v1/sessions/{session_id}/cancel", cancel_body)).is_success

        await eventually(cancel_turn)
        response = await chat_task
    error, run = response.json()["error"], response.json()["dagwright"]
    assert (response.status_code, error["code"], run["status"]) == (422, "run_cancelled", "cancelled")
    assert "was cancelled by ann: enough;" in error["message"]
    assert (response.headers["x-run-id"], response.headers["x-session-id"]) == (run["run_id"], session_id)


async def test_orchestration_stream_has_no_event_for_a_deadline(serve: Serve) -> None:
    session_id = f"s-{uuid4().hex[:8]}"
    path = f"/v1/orchestration/{session_id}/events"
    async with serve(plans={"ask": APPROVAL_PLAN}) as gateway:
        await gateway.chat("plan/ask", '{"number": 2}', session_id=session_id, deadline="4s")
        stream_events = await read_events(gateway, path)
        headers = {"Last-Event-ID": last_id(stream_events)}
        response = await gateway.http.get(path, headers=headers)
        second_turn = (await gateway.chat("plan/ask", '{"number": 3}', session_id=session_id, deadline="4s")).json()
        next_response = await gateway.http.get(path, headers=headers)
    last_event = stream_events[-1].content
    assert (last_event["type"], last_event["node_id"]) == ("human_feedback_requested", "check")
    assert (response.status_code, response.text) == (204, "")
    assert (next_response.status_code, next_response.headers["X-Run-Id"]) == (200, second_turn["dagwright"]["run_id"])
