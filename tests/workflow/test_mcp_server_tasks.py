"""Runs as tasks of the protocol's extension, and forms of the MCP server while a run continues."""

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
from tests.support.mcp_clients import MODES, McpBench, Person
from tests.support.people import human
from tests.support.runs import Runs
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_MODERN = "2026-07-28"


class _Created(types.Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class _Params(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(types.Request[_Params, str]):
    method: str
    params: _Params
    name_param = "taskId"


class _Task(types.Result):
    """Whatever `tasks/…` answers."""

    task_id: str = ""
    status: str = ""
    status_message: str | None = None
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _Extension(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(created: _Created, context: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the tests poll by themselves")

        return [ResultClaim(result_type="task", model=_Created, resolve=resolve)]


class _Tasks:
    """A client that declares the extension."""

    def __init__(self, client: McpClient) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        return await self.client.session.call_tool(tool, arguments, allow_claimed=True)

    async def send(self, method: str, task: str, **more: Any) -> _Task:
        request = _TaskRequest(method=method, params=_Params(task_id=task, **more))
        return await self.client.session.send_request(request, _Task)

    async def comes_to(self, task: str, status: str) -> _Task:
        found = _Task()

        async def does() -> bool:
            nonlocal found
            found = await self.send("tasks/get", task)
            return found.status == status

        await eventually(does)
        return found


@pytest.fixture
async def mcp(cached_runs: Runs, bench: Bench, tmp_path: Path) -> AsyncIterator[McpBench]:
    yield McpBench(cached_runs, bench, tmp_path)
    await cached_runs.check_runs()


@asynccontextmanager
async def _declaring(mcp: McpBench) -> AsyncIterator[_Tasks]:
    """Connect a client that takes tasks."""
    person = Person(lambda _: None)
    async with McpClient(
        mcp.server, mode=_MODERN, extensions=[_Extension()], elicitation_callback=person.elicit
    ) as client:
        yield _Tasks(client)


def _plan(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"plan": 1, **fields, "nodes": list(nodes)}


def _hold(name: str) -> dict[str, Any]:
    return {"id": "long", "tool": "hold", "arguments": {"name": name}}


async def test_long_run_is_a_task_whose_id_is_that_of_the_run(mcp: McpBench, bench: Bench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        created = await tasks.call("run_plan", plan=_plan(_hold(unique)), run_id=unique)
        assert isinstance(created, _Created)
        assert (created.task_id, created.status, created.ttl_ms) == (unique, "working", None)
        assert (await tasks.send("tasks/get", unique)).status == "working"
        bench.open(unique)
        final_result = await tasks.comes_to(unique, "completed")
        assert final_result.result is not None
        assert final_result.result["structuredContent"]["output"] == {"long": unique}
        mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))


async def test_short_runs_and_refused_starts_are_not_tasks(mcp: McpBench) -> None:
    async with _declaring(mcp) as tasks:
        invalid_result = await tasks.call("run_plan", plan=_plan({"id": "a", "tool": "pluss"}))
        checked = await tasks.call("check_plan", plan=_plan(_hold("x")))
        assert isinstance(invalid_result, types.CallToolResult)
        assert invalid_result.structured_content["status"] == "invalid"
        assert isinstance(checked, types.CallToolResult)


async def test_task_asks_and_is_answered(mcp: McpBench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        plan = _plan(human("check"), output="{{check.result.approved}}")
        created = await tasks.call("run_plan", plan=plan, run_id=unique)
        assert isinstance(created, _Created)
        result = await tasks.comes_to(unique, "input_required")
        assert result.input_requests is not None
        assert result.input_requests["check"]["method"] == "elicitation/create"
        assert result.input_requests["check"]["params"]["message"] == "What of check?"
        filled = {"check": {"action": "accept", "content": {"approved": True}}, "nobody": {"action": "decline"}}
        await tasks.send("tasks/update", unique, input_responses=filled)
        final_result = await tasks.comes_to(unique, "completed")
        assert final_result.result is not None
        assert final_result.result["structuredContent"]["output"] is True
        mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))


async def test_answer_that_does_not_fit_is_an_error(mcp: McpBench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        await tasks.call("run_plan", plan=_plan(human("check")), run_id=unique)
        await tasks.comes_to(unique, "input_required")
        with pytest.raises(MCPError, match="The answer to 'check' was rejected: "):
            await tasks.send("tasks/update", unique, input_responses={"check": {"action": "accept", "content": {}}})
        await mcp.answer(unique, "check", {"approved": True})
        await tasks.comes_to(unique, "completed")
        mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))


async def test_task_is_cancelled_and_cancelled_again(mcp: McpBench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        await tasks.call("run_plan", plan=_plan(_hold(unique)), run_id=unique)
        await tasks.send("tasks/cancel", unique)
        await tasks.comes_to(unique, "cancelled")
        await tasks.send("tasks/cancel", unique)
        mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))


async def test_failed_run_is_a_completed_task_with_an_error(mcp: McpBench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        failing = {"id": "bad", "tool": "give_up", "arguments": {}, "depends_on": ["check"]}
        await tasks.call("run_plan", plan=_plan(human("check"), failing), run_id=unique)
        await mcp.answer(unique, "check", {"approved": True})
        final_result = await tasks.comes_to(unique, "completed")
        assert final_result.result is not None
        assert final_result.result["isError"] is True
        mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))


async def test_unknown_task_and_client_without_tasks_are_refused(mcp: McpBench, unique: str) -> None:
    async with _declaring(mcp) as tasks:
        with pytest.raises(MCPError, match="there is no run"):
            await tasks.send("tasks/get", unique)
        for mode in ("legacy", _MODERN):
            async with mcp.client(mode) as plain:
                with pytest.raises(MCPError, match=r"does not declare io\.modelcontextprotocol/tasks"):
                    await _Tasks(plain.client).send("tasks/get", unique)


# Forms.


def _asking_plan(*more: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [human("check"), *more], "output": "{{check.result.approved}}"}


async def test_form_is_withdrawn_when_another_client_answers(mcp: McpBench, unique: str) -> None:
    opened, closed = asyncio.Event(), asyncio.Event()

    class Slow(Person):
        async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
            opened.set()
            try:
                await asyncio.Event().wait()
            finally:
                closed.set()
            raise AssertionError

    async with mcp.client("legacy", Slow(lambda _: None)) as call:
        calling = asyncio.create_task(call("run_plan", plan=_asking_plan(), run_id=unique))
        await asyncio.wait_for(opened.wait(), 60)
        await mcp.answer(unique, "check", {"approved": True})
        result = await calling
        await asyncio.wait_for(closed.wait(), 60)
    assert (result["status"], result["output"]) == ("completed", True)


@pytest.mark.parametrize("mode", MODES)
async def test_question_of_a_sub_plan_is_asked_too(mcp: McpBench, mode: str) -> None:
    person = Person(lambda _: {"approved": True})
    plan = {"plan": 1, "nodes": [{"id": "below", "plan": _asking_plan()}], "output": "{{below.result}}"}
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan)
    assert (result["status"], result["output"], len(person.seen)) == ("completed", True, 1)


async def test_another_server_can_continue(
    mcp: McpBench, cached_runs: Runs, bench: Bench, tmp_path: Path, unique: str
) -> None:
    arguments = {"plan": _asking_plan(), "run_id": unique}
    async with mcp.client("2026-07-28", Person(lambda _: None)) as call:
        interim = await call.client.session.call_tool("run_plan", arguments, allow_input_required=True)
    assert isinstance(interim, types.InputRequiredResult)
    assert list(interim.input_requests or {}) == ["check"]
    another = McpBench(cached_runs, bench, tmp_path)
    filled = types.ElicitResult(action="accept", content={"approved": True})
    async with another.client("2026-07-28", Person(lambda _: None)) as call:
        result = await call.client.session.call_tool(
            "run_plan", arguments, input_responses={"check": filled}, request_state=interim.request_state
        )
    assert result.structured_content["output"] is True
    cached_runs.take(cached_runs.client.get_workflow_handle(unique))


async def test_state_that_no_interim_result_gave_is_refused(mcp: McpBench) -> None:
    async with mcp.client("2026-07-28", Person(lambda _: None)) as call:
        for state in ("no json", "[]", json.dumps({"run_id": "x"})):
            result = await call.client.session.call_tool("run_plan", {"plan": _asking_plan()}, request_state=state)
            assert result.is_error
            assert result.structured_content["message"].startswith(
                "`requestState` is not the state of the interim result"
            )


@pytest.mark.parametrize("mode", MODES)
async def test_other_steps_continue_while_a_person_thinks(mcp: McpBench, mode: str, bench: Bench, unique: str) -> None:
    """The form is shown at once, not when nothing else is left to do."""
    person = Person(lambda _: {"approved": True})
    plan = _asking_plan({"id": "long", "tool": "hold", "arguments": {"name": unique}})
    async with mcp.client(mode, person) as call:
        calling = asyncio.create_task(call("run_plan", plan=plan))
        await eventually(lambda: len(person.seen) == 1)
        bench.open(unique)
        assert (await calling)["status"] == "completed"
