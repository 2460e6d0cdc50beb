"""Paused tools: calls of a paused tool wait, calls of other tools continue."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client

from dagwright.activities import paused_calls
from dagwright.core.boundary import wire
from dagwright.server import tool_pauses
from dagwright.server.tool_pauses import (
    ResumeResult,
    find_tool_pause,
    list_tool_pauses,
    pause_call,
    pause_tool,
    resume_tool,
)
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.eventually import eventually
from tests.support.run_views import view_of, wait_for_status
from tests.support.runs import Handle, Runs, bare_document, checked_runs, completed_node, document_of

pytestmark = pytest.mark.server

_PAUSED_STATE = PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED


class Service:
    """A service and the names of three tools: a write and a read call the service, and `echo` does not.

    The names are unique, because a pause applies to a tool in the whole namespace.
    """

    def __init__(self) -> None:
        name = uuid4().hex[:8]
        self.send_tool, self.get_tool, self.echo_tool = f"send_{name}", f"get_{name}", f"echo_{name}"
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_down = False

    def registry(self) -> ToolRegistry:
        @tool(name=self.send_tool, effects="write")
        async def send(name: str) -> str:
            return await self._record_call(name)

        @tool(name=self.get_tool, effects="read", max_attempts=2)
        async def get(name: str) -> str:
            return await self._record_call(name)

        @tool(name=self.echo_tool, effects="read")
        async def echo(name: str) -> str:
            return name

        return ToolRegistry.of(send, get, echo)

    async def _record_call(self, name: str) -> str:
        self.calls.append(name)
        if self.is_down:
            raise ConnectionError("down")
        await self.gate.wait()
        return name


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def served_runs(
    client: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs of a worker that looks for a pause before every call."""
    monkeypatch.setattr(tool_pauses, "PAUSE_PROPAGATION_S", 0.0)
    monkeypatch.setattr(paused_calls, "PAUSE_CACHE_S", 0.0)
    async with checked_runs(client, service.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
    for tool_name in (service.send_tool, service.get_tool):
        await resume_tool(client, tool_name, by=None)


def _node(node_id: str, tool_name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": node_id}, "depends_on": [*depends_on], **fields}


async def _read_pending_activities(handle: Handle) -> list[PendingActivityInfo]:
    return list((await handle.describe()).raw_description.pending_activities)


async def _wait_for_paused_calls(handle: Handle, count: int) -> None:
    """Wait until a run has exactly `count` open calls, and the server has paused all of them."""

    async def are_paused() -> bool:
        return [call.state for call in await _read_pending_activities(handle)] == [_PAUSED_STATE] * count

    await eventually(are_paused)


async def _read_pause_message(runs: Runs, tool_name: str) -> str:
    pause = await find_tool_pause(runs.client, tool_name)
    assert pause is not None
    return pause.message


async def test_calls_of_a_paused_tool_wait_and_other_calls_continue(served_runs: Runs, service: Service) -> None:
    assert await pause_tool(served_runs.client, service.send_tool, by="ann", reason="they migrate") is None
    message = await _read_pause_message(served_runs, service.send_tool)
    # A time such as `2026-01-05T09:31:00Z` is between the two texts.
    assert message.startswith("tool paused by ann at 20")
    assert message.endswith("Z: they migrate")
    nodes = [
        _node("call", service.send_tool),
        _node("each", service.send_tool, for_each=[1, 2]),
        _node("echo", service.echo_tool),
        _node("after", service.echo_tool, "call"),
    ]
    handle = await served_runs.start({"nodes": nodes})
    await _wait_for_paused_calls(handle, 3)
    view = await view_of(served_runs, handle)
    assert (view.status, view.reason) == ("waiting", message)
    document = view.document()
    assert {node_id: (node["status"], node["reason"]) for node_id, node in document["nodes"].items()} == {
        **{"call": ("waiting", message), "each": ("waiting", message), "each[0]": ("waiting", message)},
        **{"each[1]": ("waiting", message), "echo": ("completed", None), "after": ("pending", None)},
    }
    suggestion = f"`dagwright tool resume {service.send_tool}` resumes them"
    assert document["notes"] == [
        {
            "code": "tool_paused",
            "node_id": None,
            "message": f"{service.send_tool}: {message}; 3 calls wait; {suggestion}",
        }
    ]
    assert service.calls == []

    resume_result = await resume_tool(served_runs.client, service.send_tool, by="bob", ramp_s=0.1)
    assert (resume_result.pause is not None, resume_result.call_count, resume_result.run_count) == (True, 3, 1)
    document = await document_of(handle)
    # A `write` has only one attempt, but an attempt that finds its tool paused is not counted.
    assert bare_document(document)["nodes"] == {
        **{
            "call": completed_node("call"),
            "each": completed_node(["each", "each"]),
            "each[0]": completed_node("each"),
            "each[1]": completed_node("each"),
        },
        **{"echo": completed_node("echo"), "after": completed_node("after")},
    }
    assert sorted(service.calls) == ["call", "each", "each"]
    assert await find_tool_pause(served_runs.client, service.send_tool) is None


async def test_running_call_of_a_paused_tool_completes_and_the_next_call_waits(
    served_runs: Runs, service: Service
) -> None:
    service.gate.clear()
    handle = await served_runs.start(
        {"nodes": [_node("first", service.send_tool), _node("second", service.send_tool, "first")]}
    )
    await eventually(lambda: service.calls == ["first"])
    await pause_tool(served_runs.client, service.send_tool, by=None, reason=None)
    service.gate.set()
    await _wait_for_paused_calls(handle, 1)
    nodes = (await view_of(served_runs, handle)).document()["nodes"]
    assert {node_id: node["status"] for node_id, node in nodes.items()} == {"first": "completed", "second": "waiting"}
    assert service.calls == ["first"]
    await resume_tool(served_runs.client, service.send_tool, by=None, ramp_s=0.1)
    expected = {"first": completed_node("first"), "second": completed_node("second")}
    assert bare_document(await document_of(handle))["nodes"] == expected


async def test_failed_call_of_a_paused_tool_waits_and_has_all_attempts_again_after_the_resume(
    served_runs: Runs, service: Service
) -> None:
    service.is_down = True
    handle = await served_runs.start({"nodes": [_node("a", service.get_tool)]})
    await eventually(lambda: service.calls == ["a"])
    await pause_tool(served_runs.client, service.get_tool, by=None, reason=None)
    await _wait_for_paused_calls(handle, 1)
    assert service.calls == ["a"]
    await resume_tool(served_runs.client, service.get_tool, by=None, ramp_s=0.1)
    await eventually(lambda: len(service.calls) > 1)
    service.is_down = False
    assert ((await document_of(handle))["status"], service.calls) == ("completed", ["a"] * 3)


async def test_calls_of_a_resumed_tool_start_gradually(served_runs: Runs, service: Service) -> None:
    await pause_tool(served_runs.client, service.get_tool, by=None, reason=None)
    handle = await served_runs.start({"nodes": [_node("a", service.get_tool, for_each=[*range(8)])]})
    await _wait_for_paused_calls(handle, 8)
    resume_result = await resume_tool(served_runs.client, service.get_tool, by=None, ramp_s=600)
    assert (resume_result.call_count, resume_result.ramp_s) == (8, 600)
    start_times = [call.next_attempt_schedule_time.seconds for call in await _read_pending_activities(handle)]
    assert max(start_times) - min(start_times) > 30
    await handle.signal(wire.CANCEL)
    assert (await document_of(handle))["status"] == "cancelled"


async def test_sub_plan_and_parent_run_wait_for_a_paused_tool(served_runs: Runs, service: Service) -> None:
    await pause_tool(served_runs.client, service.send_tool, by="ann", reason=None)
    message = await _read_pause_message(served_runs, service.send_tool)
    handle = await served_runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [_node("deep", service.send_tool)]}}]})
    document = (await wait_for_status(served_runs.client, handle.id, "waiting")).document()
    assert (document["nodes"]["sub"]["status"], document["nodes"]["sub"]["reason"]) == ("waiting", message)
    assert [(note["code"], note["node_id"]) for note in document["notes"]] == [("tool_paused", "sub")]
    await resume_tool(served_runs.client, service.send_tool, by=None, ramp_s=0.1)
    assert (await document_of(handle))["status"] == "completed"


async def test_second_pause_returns_the_first_pause_and_second_resume_has_no_effect(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_pauses, "PAUSE_PROPAGATION_S", 0.0)
    assert await pause_tool(client, service.send_tool, by="ann", reason=None) is None
    first_pause = await pause_tool(client, service.send_tool, by="bob", reason=None)
    assert (first_pause and first_pause.by) == "ann"
    assert await find_tool_pause(client, service.get_tool) is None

    async def is_listed() -> bool:
        return first_pause in await list_tool_pauses(client)

    await eventually(is_listed)
    resume_result = await resume_tool(client, service.send_tool, by="bob")
    assert resume_result == ResumeResult(first_pause, call_count=0, run_count=0, ramp_s=tool_pauses.MIN_RAMP_S)
    assert await resume_tool(client, service.send_tool, by="bob") == ResumeResult(None, 0, 0, tool_pauses.MIN_RAMP_S)
    assert await pause_tool(client, service.send_tool, by="eve", reason=None) is None
    await resume_tool(client, service.send_tool, by=None)


async def test_resume_of_a_tool_does_not_resume_a_manually_paused_call(served_runs: Runs, service: Service) -> None:
    service.is_down = True
    handle = await served_runs.start({"nodes": [_node("a", service.get_tool)]})
    await eventually(lambda: service.calls == ["a"])
    await pause_call(served_runs.client, WorkflowExecution(workflow_id=handle.id), "a", reason="I look at it")
    await _wait_for_paused_calls(handle, 1)
    node = (await view_of(served_runs, handle)).document()["nodes"]["a"]
    assert (node["status"], node["reason"]) == ("waiting", f"paused by {served_runs.client.identity}: I look at it")
    assert (await resume_tool(served_runs.client, service.get_tool, by=None)).call_count == 0
    await _wait_for_paused_calls(handle, 1)
    await handle.signal(wire.CANCEL)
    await document_of(handle)
