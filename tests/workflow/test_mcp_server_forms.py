"""Forms of the MCP server while the world goes on: answers from elsewhere, questions of sub-plans, states of calls."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.support.eventually import eventually
from tests.support.mcp_clients import MODES, McpBench, Person
from tests.support.people import human
from tests.support.runs import Runs
from tests.support.tools import Bench

pytestmark = pytest.mark.server


@pytest.fixture
async def mcp(cached_runs: Runs, bench: Bench, tmp_path: Path) -> AsyncIterator[McpBench]:
    yield McpBench(cached_runs, bench, tmp_path)
    await cached_runs.check_ended()


def _asking_plan(*more: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [human("check"), *more], "output": "{{check.result.approved}}"}


async def test_form_is_taken_back_when_somebody_else_answers(mcp: McpBench, unique: str) -> None:
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
        calling = asyncio.create_task(call("run_plan", plan=_asking_plan(), id=unique))
        await asyncio.wait_for(opened.wait(), 60)
        await mcp.answer(unique, "check", {"approved": True})
        told = await calling
        await asyncio.wait_for(closed.wait(), 60)
    assert (told["status"], told["output"]) == ("completed", True)


@pytest.mark.parametrize("mode", MODES)
async def test_question_of_a_sub_plan_is_asked_too(mcp: McpBench, mode: str) -> None:
    person = Person(lambda _: {"approved": True})
    plan = {"plan": 1, "nodes": [{"id": "below", "plan": _asking_plan()}], "output": "{{below.result}}"}
    async with mcp.client(mode, person) as call:
        told = await call("run_plan", plan=plan)
    assert (told["status"], told["output"], len(person.seen)) == ("completed", True, 1)


async def test_interim_result_holds_all_that_another_server_needs_to_go_on(
    mcp: McpBench, cached_runs: Runs, bench: Bench, tmp_path: Path, unique: str
) -> None:
    arguments = {"plan": _asking_plan(), "id": unique}
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
        for state in ("no json", "[]", json.dumps({"workflow_id": "x"})):
            result = await call.client.session.call_tool("run_plan", {"plan": _asking_plan()}, request_state=state)
            assert result.is_error
            assert result.structured_content["message"].startswith("`requestState` is not what the interim result had")


@pytest.mark.parametrize("mode", MODES)
async def test_other_steps_go_on_while_a_person_thinks(mcp: McpBench, mode: str, bench: Bench, unique: str) -> None:
    """The form is shown at once, not when nothing else is left to do."""
    person = Person(lambda _: {"approved": True})
    plan = _asking_plan({"id": "long", "tool": "hold", "arguments": {"name": unique}})
    async with mcp.client(mode, person) as call:
        calling = asyncio.create_task(call("run_plan", plan=plan))
        await eventually(lambda: len(person.seen) == 1)
        bench.open(unique)
        assert (await calling)["status"] == "completed"
