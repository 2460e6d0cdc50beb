"""Keys of the gateway: which runs a key may read and control, and which limits apply to it."""

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
from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of, wait_node
from tests.support.eventually import eventually
from tests.support.gateway import CHAT, Gateway, chat_body

pytestmark = pytest.mark.server

APPROVAL_PLAN = plan_of(APPROVAL_NODE)
SUM_PLAN = plan_of(calculation("sum", "1 + 2"), output="{{sum.result}}")


class Keys:
    """Key file of a test. Each owner name ends with an ID of the test, because all tests share one Temporal server."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._test_id = uuid4().hex[:8]

    def owner(self, name: str) -> str:
        return name if name == ALL_OWNERS else f"{name}-{self._test_id}"

    def add(self, name: str, *scopes: KeyScope) -> str:
        return KeyFile(self.path).add(self.owner(name), scopes or list(KeyScope))[1]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def post(gateway: Gateway, key: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.http.post(path, json=body, headers={**bearer(key), **request_headers})


async def get(gateway: Gateway, key: str, path: str) -> httpx.Response:
    return await gateway.http.get(path, headers=bearer(key))


async def test_key_reads_only_runs_sessions_and_inbox_of_its_owner(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann_key, bob_key, all_owners_key = keys.add("ann"), keys.add("bob"), keys.add(ALL_OWNERS)
    async with serve(plans={"ask": APPROVAL_PLAN}, extra_settings={"api_keys": keys.path}) as gateway:

        async def list_field_for_each_key(path: str, field: str) -> list[list[str]]:
            """Return a field of the listed items for the keys of Ann, of Bob and of all owners."""
            return [
                [item[field] for item in (await get(gateway, key, path)).json()["data"]]
                for key in (ann_key, bob_key, all_owners_key)
            ]

        response_without_key = await gateway.http.get("/v1/runs")
        response_with_unknown_key = await get(gateway, f"{ann_key}x", "/v1/runs")
        run_response = await post(gateway, ann_key, "/v1/runs", {"plan": APPROVAL_PLAN}, Idempotency_Key="same")
        bob_response = await post(gateway, bob_key, "/v1/runs", {"plan": SUM_PLAN}, Idempotency_Key="same")
        run_id, bob_run_id = run_response.json()["run_id"], bob_response.json()["run_id"]
        session_id = f"s-{uuid4().hex[:8]}"
        turn_response = await post(gateway, ann_key, CHAT, chat_body("plan/ask", session_id=session_id))
        turn_run_id = turn_response.json()["dagwright"]["run_id"]

        async def has_requests() -> bool:
            return bool((await get(gateway, ann_key, f"/v1/runs/{run_id}/feedback")).json()["data"])

        await eventually(has_requests)
        path_ends = ("", "/events", "/answer", "/graph", "/inputs", "/feedback", "/explain", "/nodes/check")
        response_path = f"/v1/responses/{ResponseRef(run_id, 'plan/ask').id}"
        paths = [f"/v1/runs/{run_id}{part}" for part in path_ends]
        paths += [f"/v1/sessions/{session_id}", f"/v1/runs/{turn_run_id}", response_path]
        read_statuses = {(await get(gateway, bob_key, path)).status_code for path in paths}
        commands = ("/cancel", "/pause", "/resume", "/feedback", "/fork", "/nodes/check/retry")
        bodies = {"/feedback": {"answer": "yes"}, "/fork": {"start": True}}
        command_statuses = {
            (await post(gateway, bob_key, f"/v1/runs/{run_id}{command}", bodies.get(command, {}))).status_code
            for command in commands
        }
        ann_sessions, bob_sessions, all_sessions = await list_field_for_each_key("/v1/sessions", "session_id")
        ann_runs, bob_runs, all_runs = await list_field_for_each_key("/v1/runs", "run_id")
        ann_inbox, bob_inbox, common_inbox = await list_field_for_each_key("/v1/inbox", "run_id")
        response_status = (await get(gateway, ann_key, response_path)).status_code
        session_document = (await get(gateway, ann_key, f"/v1/sessions/{session_id}")).json()
        all_owners_response = await post(gateway, all_owners_key, f"/v1/runs/{run_id}/feedback", {"answer": "yes"})
        ann_response = await post(gateway, ann_key, f"/v1/runs/{turn_run_id}/feedback", {"answer": "yes", "by": "bob"})
        document = (await get(gateway, ann_key, f"/v1/runs/{turn_run_id}/nodes/check")).json()
    assert response_without_key.status_code == 401
    assert response_without_key.json()["error"]["code"] == "invalid_api_key"
    assert response_with_unknown_key.status_code == 401
    assert run_id != bob_run_id
    assert turn_response.headers["x-session-id"] == session_id
    assert turn_response.json()["dagwright"]["session_id"] == session_id
    assert (read_statuses, command_statuses, response_status) == ({404}, {404}, 200)
    assert (ann_sessions, bob_sessions) == ([session_id], [])
    assert f"{keys.owner('ann')}:{session_id}" in all_sessions
    assert (ann_runs, bob_runs) == ([turn_run_id, run_id], [bob_run_id])
    assert {run_id, turn_run_id, bob_run_id} <= {*all_runs}
    assert ({*ann_inbox}, bob_inbox) == ({run_id, turn_run_id}, [])
    assert {run_id, turn_run_id} <= {*common_inbox}
    assert (session_document["session_id"], session_document["run"]["session_id"]) == (session_id, session_id)
    assert (all_owners_response.status_code, ann_response.status_code) == (200, 200)
    assert document["lineage"]["answers"][0]["by"] == keys.owner("ann")


async def test_runs_and_streams_are_limited_per_key(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann_key, bob_key = keys.add("ann"), keys.add("bob")
    gateway_settings = {"api_keys": keys.path, "api_runs": 2, "api_streams": 1}
    async with serve(extra_settings=gateway_settings) as gateway, AsyncExitStack() as stack:
        body = {"plan": APPROVAL_PLAN}
        run_id = (await post(gateway, ann_key, "/v1/runs", body, Idempotency_Key="1")).json()["run_id"]
        # The server lists a run some time after its start, so the gateway must count concurrent starts itself.
        concurrent_responses = await asyncio.gather(*(post(gateway, ann_key, "/v1/runs", body) for _ in range(10)))
        later_response = await post(gateway, ann_key, "/v1/runs", body)
        repeated_response = await post(gateway, ann_key, "/v1/runs", body, Idempotency_Key="1")
        bob_response = await post(gateway, bob_key, "/v1/runs", body)
        events = f"/v1/runs/{run_id}/events"
        stream = await stack.enter_async_context(gateway.http.stream("GET", events, headers=bearer(ann_key)))
        second_response = await get(gateway, ann_key, events)
        await stream.aclose()

        async def is_stream_free() -> bool:
            async with gateway.http.stream("GET", events, headers=bearer(ann_key)) as third_stream:
                return third_stream.status_code == 200

        await eventually(is_stream_free)
    assert sorted(each.status_code for each in concurrent_responses) == [201, *[429] * 9]
    assert (later_response.status_code, later_response.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(later_response.headers["retry-after"]) >= 1
    assert repeated_response.status_code == 200
    assert repeated_response.json()["run_id"] == run_id
    assert bob_response.status_code == 201
    assert (second_response.status_code, stream.status_code) == (429, 200)


async def test_concurrent_streams_are_limited_per_key(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    ann_key = keys.add("ann")
    gateway_settings = {"api_keys": keys.path, "api_streams": 2}
    plans = {"wait": plan_of(wait_node("wait", "10m"))}
    body = chat_body("plan/wait", stream=True)
    async with serve(plans=plans, extra_settings=gateway_settings) as gateway, AsyncExitStack() as stack:

        async def open_stream() -> int:
            request = gateway.http.stream("POST", CHAT, json=body, headers=bearer(ann_key))
            return (await stack.enter_async_context(request)).status_code

        statuses = await asyncio.gather(*(open_stream() for _ in range(8)))

        async def cancel_streamed_runs() -> bool:
            running_runs = (await get(gateway, ann_key, "/v1/runs?status=running")).json()["data"]
            await asyncio.gather(
                *(post(gateway, ann_key, f"/v1/runs/{each['run_id']}/cancel") for each in running_runs)
            )
            cancelled_runs = (await get(gateway, ann_key, "/v1/runs?status=cancelled")).json()["data"]
            assert len(cancelled_runs) <= 2
            return len(cancelled_runs) == 2

        await eventually(cancel_streamed_runs)
    assert sorted(statuses) == [200] * 2 + [429] * 6


async def test_file_tools_of_a_key_stay_in_the_folder_of_its_owner(serve: Serve, tmp_path: Path) -> None:
    keys, root = Keys(tmp_path), tmp_path / "files"
    ann_key, bob_key = keys.add("ann"), keys.add("bob")
    read_node = {"id": "r", "tool": "read_file", "arguments": {"path": "a.txt"}, "cache": {"ttl": "1h"}}
    read_plan = {"plan": 1, "nodes": [read_node]}
    # A sub-plan runs in a child workflow of the same owner.
    sub_plan_node = {"id": "sub", "plan": {**read_plan, "output": "{{r.result}}"}, "depends_on": ["w"]}
    write_node = {"id": "w", "tool": "write_file", "arguments": {"path": "a.txt", "content": "of ann"}}
    plan = {"plan": 1, "nodes": [write_node, sub_plan_node], "output": "{{sub.result}}"}

    async def run_until_end(gateway: Gateway, key: str, plan: Any) -> Any:
        run_id = (await post(gateway, key, "/v1/runs", {"plan": plan})).json()["run_id"]

        async def has_ended() -> bool:
            return (await get(gateway, key, f"/v1/runs/{run_id}")).json()["status"] in ("completed", "failed")

        await eventually(has_ended)
        return (await get(gateway, key, f"/v1/runs/{run_id}")).json()

    async with serve(extra_settings={"api_keys": keys.path, "files_root": root}) as gateway:
        ann_run, bob_run = await run_until_end(gateway, ann_key, plan), await run_until_end(gateway, bob_key, read_plan)
    async with serve(extra_settings={"api_keys": keys.path}) as gateway:
        run_without_root = await run_until_end(gateway, ann_key, read_plan)
    assert (ann_run["status"], ann_run["output"]) == ("completed", "of ann")
    assert (root / keys.owner("ann") / "a.txt").read_text() == "of ann"
    assert "There is no file 'a.txt'" in bob_run["nodes"]["r"]["error"]["message"]
    assert "set DAGWRIGHT_FILES_ROOT on the worker" in run_without_root["nodes"]["r"]["error"]["message"]


def _assigned_approval(name: str, assignee: str) -> dict[str, Any]:
    return {"id": name, "human": {"type": "APPROVAL", "prompt": f"Is {name} right?", "assignee": assignee}}


async def test_only_the_assignee_or_the_run_owner_with_scope_operate_may_answer_an_assigned_request(
    serve: Serve, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    ann_key, boss_key = keys.add("ann", KeyScope.RUN, KeyScope.ANSWER), keys.add("boss", KeyScope.ANSWER)
    eve_key, ann_operate_key = keys.add("eve"), keys.add("ann", KeyScope.OPERATE, KeyScope.ANSWER)
    assignee = keys.owner("boss")
    plan = plan_of(_assigned_approval("first", assignee), _assigned_approval("second", assignee), APPROVAL_NODE)
    async with serve(extra_settings={"api_keys": keys.path}) as gateway:
        run_id = (await post(gateway, ann_key, "/v1/runs", {"plan": plan})).json()["run_id"]
        path = f"/v1/runs/{run_id}/feedback"

        async def list_requests(key: str, url: str) -> list[str]:
            requests = (await get(gateway, key, url)).json().get("data", [])
            return sorted(each["request_id"] for each in requests if each["run_id"] == run_id)

        async def has_requests() -> bool:
            return len(await list_requests(ann_key, path)) == 3

        await eventually(has_requests)

        async def send_answer(key: str, request_id: str) -> tuple[int, str]:
            response = await post(gateway, key, path, {"request_id": request_id, "answer": "yes"})
            return response.status_code, response.json().get("error", {}).get("message", "")

        visible_requests = [await list_requests(key, url) for key in (boss_key, eve_key) for url in ("/v1/inbox", path)]
        run_status = (await get(gateway, boss_key, f"/v1/runs/{run_id}")).status_code
        rejected_requests = ((ann_key, "first"), (eve_key, "first"), (boss_key, "check"))
        rejected_answers = [await send_answer(key, request_id) for key, request_id in rejected_requests]
        accepted_requests = ((boss_key, "first"), (ann_operate_key, "second"), (ann_key, "check"))
        accepted_answers = [await send_answer(key, request_id) for key, request_id in accepted_requests]
        remaining_requests = await list_requests(boss_key, "/v1/inbox")
        answer_record = (await get(gateway, ann_key, f"/v1/runs/{run_id}/nodes/first")).json()["lineage"]["answers"][0]
    assert visible_requests == [["first", "second"], ["first", "second"], [], []]
    assert (run_status, remaining_requests) == (404, [])
    assert [status for status, _ in rejected_answers] == [400, 404, 404]
    assert f"'first' waits for {assignee}: only a key of the owner" in rejected_answers[0][1]
    assert [status for status, _ in accepted_answers] == [200, 200, 200]
    assert answer_record["by"] == assignee
    assert answer_record["requested_from"] == assignee
    assert answer_record["escalations"] == []


async def test_key_of_all_owners_sets_and_removes_limits_across_runs(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    all_owners_key = keys.add(ALL_OWNERS)
    subject = f"owner:{keys.owner('ann')}"
    path = f"/v1/call-limits/{subject}"
    async with serve(extra_settings={"api_keys": keys.path}) as gateway:

        async def send(method: str, path: str, body: Any = None) -> httpx.Response:
            return await gateway.http.request(method, path, json=body, headers=bearer(all_owners_key))

        async def list_limits() -> list[Any]:
            data = (await send("GET", "/v1/call-limits")).json()["data"]
            return [(item["limit"], item["is_declared"]) for item in data if item["subject"] == subject]

        put_response = await send("PUT", path, {"limit": "concurrency=5 20/s"})

        async def is_listed() -> bool:
            return await list_limits() == [("20/s concurrency=5", False)]

        await eventually(is_listed)
        errors = [
            (await send("PUT", path, {"limit": "20 a second"})).json()["error"],
            (await send("PUT", "/v1/call-limits/tool:http_reqest", {"limit": "20/s"})).json()["error"],
        ]
        delete_response, second_delete_response = [await send("DELETE", path) for _ in range(2)]
    assert put_response.status_code == 200
    assert put_response.json()["limit"] == "20/s concurrency=5"
    assert put_response.json()["subject"] == subject
    assert [error["code"] for error in errors] == ["invalid_value", "command_rejected"]
    assert "did you mean 'http_request'?" in errors[1]["message"]
    assert delete_response.json() == {"subject": subject, "limit": "20/s concurrency=5", "declared_limit": None}
    assert (second_delete_response.status_code, second_delete_response.json()["error"]["code"]) == (404, "not_found")
