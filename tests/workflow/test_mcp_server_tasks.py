"""Runs that MCP clients see as tasks (an extension of MCP), and forms that the MCP server shows during a run."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError

from tests.support.eventually import eventually
from tests.support.mcp_clients import MODES, McpHarness, Person
from tests.support.people import hold_node, human_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs
from tests.support.tools import CallHarness
from tests.workflow.building import Gate

pytestmark = pytest.mark.server

_MODERN_PROTOCOL = "2026-07-28"


class _CreatedTask(types.Result):
    """The response of a tool call that created a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class _TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(types.Request[_TaskParams, str]):
    method: str
    params: _TaskParams
    name_param = "taskId"


class _Task(types.Result):
    """The response of `tasks/get`, `tasks/update` and `tasks/cancel`."""

    task_id: str = ""
    status: str = ""
    status_message: str | None = None
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _TaskExtension(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(created_task: _CreatedTask, context: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the tests poll the task")

        return [ResultClaim(result_type="task", model=_CreatedTask, resolve=resolve)]


class _TaskClient:
    """An MCP client that declares the extension for tasks."""

    def __init__(self, client: McpClient) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        return await self.client.session.call_tool(tool, arguments, allow_claimed=True)

    async def send(self, method: str, task_id: str, **params: Any) -> _Task:
        request = _TaskRequest(method=method, params=_TaskParams(task_id=task_id, **params))
        return await self.client.session.send_request(request, _Task)

    async def wait_for_status(self, task_id: str, status: str) -> _Task:
        response = _Task()

        async def has_status() -> bool:
            nonlocal response
            response = await self.send("tasks/get", task_id)
            return response.status == status

        await eventually(has_status)
        return response


@pytest.fixture
async def mcp(cached_runs: Runs, harness: CallHarness, tmp_path: Path) -> AsyncIterator[McpHarness]:
    yield McpHarness(cached_runs, harness, tmp_path)
    await cached_runs.check_runs()


@asynccontextmanager
async def _connect_task_client(mcp: McpHarness) -> AsyncIterator[_TaskClient]:
    """Connect a client that supports tasks."""
    person = Person(lambda _: None)
    async with McpClient(
        mcp.server, mode=_MODERN_PROTOCOL, extensions=[_TaskExtension()], elicitation_callback=person.elicit
    ) as client:
        yield _TaskClient(client)


async def test_task_of_a_long_run_has_the_id_of_the_run(mcp: McpHarness, gate: Gate) -> None:
    async with _connect_task_client(mcp) as task_client:
        created_task = await task_client.call("run_plan", plan=plan_of(hold_node("long", gate.name)), run_id=gate.name)
        assert isinstance(created_task, _CreatedTask)
        assert (created_task.task_id, created_task.status, created_task.ttl_ms) == (gate.name, "working", None)
        assert (await task_client.send("tasks/get", gate.name)).status == "working"
        gate.open()
        final_result = await task_client.wait_for_status(gate.name, "completed")
        assert final_result.result is not None
        assert final_result.result["structuredContent"]["output"] == {"long": gate.name}
        mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(gate.name))


async def test_calls_that_start_no_run_are_not_tasks(mcp: McpHarness) -> None:
    async with _connect_task_client(mcp) as task_client:
        invalid_result = await task_client.call("run_plan", plan=plan_of({"id": "a", "tool": "pluss"}))
        check_result = await task_client.call("check_plan", plan=plan_of(hold_node("long", "x")))
        assert isinstance(invalid_result, types.CallToolResult)
        assert invalid_result.structured_content["status"] == "invalid"
        assert isinstance(check_result, types.CallToolResult)


async def test_request_of_a_task_is_answered_by_an_update(mcp: McpHarness, unique_name: str) -> None:
    async with _connect_task_client(mcp) as task_client:
        plan = plan_of(human_node("check"), output="{{check.result.approved}}")
        assert isinstance(await task_client.call("run_plan", plan=plan, run_id=unique_name), _CreatedTask)
        result = await task_client.wait_for_status(unique_name, "input_required")
        assert result.input_requests is not None
        assert result.input_requests["check"]["method"] == "elicitation/create"
        assert result.input_requests["check"]["params"]["message"] == "What of check?"
        responses = {"check": {"action": "accept", "content": {"approved": True}}, "unknown": {"action": "decline"}}
        await task_client.send("tasks/update", unique_name, input_responses=responses)
        final_result = await task_client.wait_for_status(unique_name, "completed")
        assert final_result.result is not None
        assert final_result.result["structuredContent"]["output"] is True
        mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(unique_name))


async def test_invalid_answer_to_a_task_is_an_error(mcp: McpHarness, unique_name: str) -> None:
    async with _connect_task_client(mcp) as task_client:
        await task_client.call("run_plan", plan=plan_of(human_node("check")), run_id=unique_name)
        await task_client.wait_for_status(unique_name, "input_required")
        with pytest.raises(MCPError, match="The answer to 'check' was rejected: "):
            await task_client.send(
                "tasks/update", unique_name, input_responses={"check": {"action": "accept", "content": {}}}
            )
        await mcp.answer(unique_name, "check", {"approved": True})
        await task_client.wait_for_status(unique_name, "completed")
        mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(unique_name))


async def test_task_can_be_cancelled_twice(mcp: McpHarness, unique_name: str) -> None:
    async with _connect_task_client(mcp) as task_client:
        await task_client.call("run_plan", plan=plan_of(hold_node("long", unique_name)), run_id=unique_name)
        await task_client.send("tasks/cancel", unique_name)
        await task_client.wait_for_status(unique_name, "cancelled")
        await task_client.send("tasks/cancel", unique_name)
        mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(unique_name))


async def test_failed_run_is_a_completed_task_with_an_error(mcp: McpHarness, unique_name: str) -> None:
    async with _connect_task_client(mcp) as task_client:
        failing_node = tool_node("bad", "give_up", "check", arguments={})
        await task_client.call("run_plan", plan=plan_of(human_node("check"), failing_node), run_id=unique_name)
        await mcp.answer(unique_name, "check", {"approved": True})
        final_result = await task_client.wait_for_status(unique_name, "completed")
        assert final_result.result is not None
        assert final_result.result["isError"] is True
        mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(unique_name))


async def test_unknown_task_and_client_without_tasks_are_rejected(mcp: McpHarness, unique_name: str) -> None:
    async with _connect_task_client(mcp) as task_client:
        with pytest.raises(MCPError, match="there is no run"):
            await task_client.send("tasks/get", unique_name)
        for mode in ("legacy", _MODERN_PROTOCOL):
            async with mcp.client(mode) as call:
                with pytest.raises(MCPError, match=r"does not declare io\.modelcontextprotocol/tasks"):
                    await _TaskClient(call.client).send("tasks/get", unique_name)


# Forms.


def _plan_with_request(*extra_nodes: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [human_node("check"), *extra_nodes], "output": "{{check.result.approved}}"}


async def test_form_is_closed_when_another_client_answers(mcp: McpHarness, unique_name: str) -> None:
    form_opened, form_closed = asyncio.Event(), asyncio.Event()

    class SlowPerson(Person):
        async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
            form_opened.set()
            try:
                await asyncio.Event().wait()
            finally:
                form_closed.set()
            raise AssertionError

    async with mcp.client("legacy", SlowPerson(lambda _: None)) as call:
        call_task = asyncio.create_task(call("run_plan", plan=_plan_with_request(), run_id=unique_name))
        await asyncio.wait_for(form_opened.wait(), 60)
        await mcp.answer(unique_name, "check", {"approved": True})
        result = await call_task
        await asyncio.wait_for(form_closed.wait(), 60)
    assert (result["status"], result["output"]) == ("completed", True)


@pytest.mark.parametrize("mode", MODES)
async def test_request_of_a_sub_plan_is_shown_in_a_form(mcp: McpHarness, mode: str) -> None:
    person = Person(lambda _: {"approved": True})
    plan = {"plan": 1, "nodes": [{"id": "child", "plan": _plan_with_request()}], "output": "{{child.result}}"}
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan)
    assert (result["status"], result["output"], len(person.forms)) == ("completed", True, 1)


async def test_call_can_continue_on_another_server(
    mcp: McpHarness, cached_runs: Runs, harness: CallHarness, tmp_path: Path, unique_name: str
) -> None:
    arguments = {"plan": _plan_with_request(), "run_id": unique_name}
    async with mcp.client("2026-07-28", Person(lambda _: None)) as call:
        interim_result = await call.client.session.call_tool("run_plan", arguments, allow_input_required=True)
    assert isinstance(interim_result, types.InputRequiredResult)
    assert list(interim_result.input_requests or {}) == ["check"]
    second_server = McpHarness(cached_runs, harness, tmp_path)
    answer = types.ElicitResult(action="accept", content={"approved": True})
    async with second_server.client("2026-07-28", Person(lambda _: None)) as call:
        result = await call.client.session.call_tool(
            "run_plan", arguments, input_responses={"check": answer}, request_state=interim_result.request_state
        )
    assert result.structured_content["output"] is True
    cached_runs.include_in_checks(cached_runs.client.get_workflow_handle(unique_name))


async def test_invalid_request_state_is_rejected(mcp: McpHarness) -> None:
    async with mcp.client("2026-07-28", Person(lambda _: None)) as call:
        for state in ("no json", "[]", json.dumps({"run_id": "x"})):
            result = await call.client.session.call_tool(
                "run_plan", {"plan": _plan_with_request()}, request_state=state
            )
            assert result.is_error
            assert result.structured_content["message"].startswith(
                "`requestState` is not the state of the interim result"
            )


@pytest.mark.parametrize("mode", MODES)
async def test_other_nodes_run_while_a_form_is_open(mcp: McpHarness, mode: str, gate: Gate) -> None:
    """The form is shown before the other nodes have ended."""
    person = Person(lambda _: {"approved": True})
    plan = _plan_with_request(hold_node("long", gate.name))
    async with mcp.client(mode, person) as call:
        call_task = asyncio.create_task(call("run_plan", plan=plan))
        await eventually(lambda: len(person.forms) == 1)
        gate.open()
        assert (await call_task)["status"] == "completed"
