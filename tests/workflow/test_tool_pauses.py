"""A tool that fails in all runs is paused: its calls wait before their effect, other calls continue."""

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
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.server import tool_pauses
from dagwright.server.tool_pauses import (
    ResumeResult,
    find_tool_pause,
    list_paused_tools,
    pause_call,
    pause_tool,
    resume_tool,
)
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, bare, completed_node, document_of, serving_runs

pytestmark = pytest.mark.server

_HELD = PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED


class Service:
    """Tools of one test: `send` changes the world, `get` reads, `beside` is another service."""

    def __init__(self) -> None:
        name = uuid4().hex[:8]
        self.send, self.get, self.beside = f"send_{name}", f"get_{name}", f"beside_{name}"
        self.calls: list[str] = []
        self.going = asyncio.Event()
        self.going.set()
        self.is_down = False

    def registry(self) -> ToolRegistry:
        @tool(name=self.send, effects="write")
        async def send(name: str) -> str:
            return await self._record_call(name)

        @tool(name=self.get, effects="read", max_attempts=2)
        async def get(name: str) -> str:
            return await self._record_call(name)

        @tool(name=self.beside, effects="read")
        async def beside(name: str) -> str:
            return name

        return ToolRegistry.of(send, get, beside)

    async def _record_call(self, name: str) -> str:
        self.calls.append(name)
        if self.is_down:
            raise ConnectionError("down")
        await self.going.wait()
        return name


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def served_runs(
    client: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs of a worker that asks before every call."""
    monkeypatch.setattr(tool_pauses, "PAUSE_PROPAGATION_S", 0.0)
    monkeypatch.setattr(paused_calls, "PAUSE_CACHE_S", 0.0)
    async with serving_runs(client, service.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_runs()
    for each in (service.send, service.get):
        await resume_tool(client, each, by=None)


def _node(node_id: str, tool_name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": node_id}, "depends_on": [*depends_on], **fields}


async def _pending(handle: Handle) -> list[PendingActivityInfo]:
    return list((await handle.describe()).raw_description.pending_activities)


async def _holds(handle: Handle, count: int) -> None:
    """Wait until the server holds so many calls of a run back, and no other is open."""

    async def does() -> bool:
        return [call.state for call in await _pending(handle)] == [_HELD] * count

    await eventually(does)


async def _view(runs: Runs, handle: Handle) -> RunView:
    return await RunReader(runs.client, handle.id).read()


async def _message(runs: Runs, tool_name: str) -> str:
    actual = await find_tool_pause(runs.client, tool_name)
    assert actual is not None
    return actual.message


async def test_calls_of_a_paused_tool_wait_and_the_rest_continues(served_runs: Runs, service: Service) -> None:
    assert await pause_tool(served_runs.client, service.send, by="ann", reason="they migrate") is None
    words = await _message(served_runs, service.send)
    assert words.startswith("tool paused by ann at 20")
    assert words.endswith("Z: they migrate")
    nodes = [
        _node("one", service.send),
        _node("each", service.send, for_each=[1, 2]),
        _node("beside", service.beside),
        _node("after", service.beside, "one"),
    ]
    handle = await served_runs.start({"nodes": nodes})
    await _holds(handle, 3)
    view = await _view(served_runs, handle)
    assert (view.status, view.reason) == ("waiting", words)
    document = view.document()
    assert {name: (node["status"], node["reason"]) for name, node in document["nodes"].items()} == {
        **{"one": ("waiting", words), "each": ("waiting", words), "each[0]": ("waiting", words)},
        **{"each[1]": ("waiting", words), "beside": ("completed", None), "after": ("pending", None)},
    }
    release = f"`dagwright tool resume {service.send}` resumes them"
    assert document["notes"] == [
        {"code": "tool_paused", "node_id": None, "message": f"{service.send}: {words}; 3 calls wait; {release}"}
    ]
    assert service.calls == []

    released = await resume_tool(served_runs.client, service.send, by="bob", ramp_s=0.1)
    assert (released.pause is not None, released.calls, released.runs) == (True, 3, 1)
    document = await document_of(handle)
    # A `write` has one attempt, and the one that found its tool paused has not counted.
    assert bare(document)["nodes"] == {
        **{
            "one": completed_node("one"),
            "each": completed_node(["each", "each"]),
            "each[0]": completed_node("each"),
            "each[1]": completed_node("each"),
        },
        **{"beside": completed_node("beside"), "after": completed_node("after")},
    }
    assert sorted(service.calls) == ["each", "each", "one"]
    assert await find_tool_pause(served_runs.client, service.send) is None


async def test_running_call_ends_and_the_next_does_not_start(served_runs: Runs, service: Service) -> None:
    service.going.clear()
    handle = await served_runs.start({"nodes": [_node("first", service.send), _node("second", service.send, "first")]})
    await eventually(lambda: service.calls == ["first"])
    await pause_tool(served_runs.client, service.send, by=None, reason=None)
    service.going.set()
    await _holds(handle, 1)
    nodes = (await _view(served_runs, handle)).document()["nodes"]
    assert {name: node["status"] for name, node in nodes.items()} == {"first": "completed", "second": "waiting"}
    assert service.calls == ["first"]
    await resume_tool(served_runs.client, service.send, by=None, ramp_s=0.1)
    assert bare(await document_of(handle))["nodes"] == {
        "first": completed_node("first"),
        "second": completed_node("second"),
    }


async def test_failing_call_is_held_and_keeps_its_attempts_after_the_release(
    served_runs: Runs, service: Service
) -> None:
    service.is_down = True
    handle = await served_runs.start({"nodes": [_node("a", service.get)]})
    await eventually(lambda: service.calls == ["a"])
    await pause_tool(served_runs.client, service.get, by=None, reason=None)
    await _holds(handle, 1)
    assert service.calls == ["a"]
    await resume_tool(served_runs.client, service.get, by=None, ramp_s=0.1)
    await eventually(lambda: len(service.calls) > 1)
    service.is_down = False
    document = await document_of(handle)
    assert (document["status"], service.calls) == ("completed", ["a"] * 3)


async def test_release_is_gradual(served_runs: Runs, service: Service) -> None:
    await pause_tool(served_runs.client, service.get, by=None, reason=None)
    handle = await served_runs.start({"nodes": [_node("a", service.get, for_each=[*range(8)])]})
    await _holds(handle, 8)
    released = await resume_tool(served_runs.client, service.get, by=None, ramp_s=600)
    assert (released.calls, released.ramp_s) == (8, 600)
    waits = [call.next_attempt_schedule_time.seconds for call in await _pending(handle)]
    assert max(waits) - min(waits) > 30
    await handle.signal(wire.CANCEL)
    assert (await document_of(handle))["status"] == "cancelled"


async def test_sub_plan_waits_with_its_tool_and_the_parent_run_reports_it(served_runs: Runs, service: Service) -> None:
    await pause_tool(served_runs.client, service.send, by="ann", reason=None)
    words = await _message(served_runs, service.send)
    below = {"nodes": [_node("deep", service.send)]}
    handle = await served_runs.start({"nodes": [{"id": "sub", "plan": below}]})

    async def is_waiting() -> bool:
        return (await _view(served_runs, handle)).status == "waiting"

    await eventually(is_waiting)
    document = (await _view(served_runs, handle)).document()
    assert (document["nodes"]["sub"]["status"], document["nodes"]["sub"]["reason"]) == ("waiting", words)
    assert [(note["code"], note["node_id"]) for note in document["notes"]] == [("tool_paused", "sub")]
    await resume_tool(served_runs.client, service.send, by=None, ramp_s=0.1)
    assert (await document_of(handle))["status"] == "completed"


async def test_pausing_a_tool_twice_names_the_actor_and_resuming_twice_does_nothing(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_pauses, "PAUSE_PROPAGATION_S", 0.0)
    assert await pause_tool(client, service.send, by="ann", reason=None) is None
    first = await pause_tool(client, service.send, by="bob", reason=None)
    assert (first and first.by) == "ann"
    assert await find_tool_pause(client, service.get) is None

    async def is_listed() -> bool:
        return first in await list_paused_tools(client)

    await eventually(is_listed)
    released = await resume_tool(client, service.send, by="bob")
    assert released == ResumeResult(first, calls=0, runs=0, ramp_s=tool_pauses.MIN_RAMP_S)
    assert await resume_tool(client, service.send, by="bob") == ResumeResult(None, 0, 0, tool_pauses.MIN_RAMP_S)
    assert await pause_tool(client, service.send, by="eve", reason=None) is None
    await resume_tool(client, service.send, by=None)


async def test_manually_paused_call_stays_paused(served_runs: Runs, service: Service) -> None:
    service.is_down = True
    handle = await served_runs.start({"nodes": [_node("a", service.get)]})
    await eventually(lambda: service.calls == ["a"])
    run = WorkflowExecution(workflow_id=handle.id)
    await pause_call(served_runs.client, run, "a", reason="I look at it")
    await _holds(handle, 1)
    node = (await _view(served_runs, handle)).document()["nodes"]["a"]
    assert (node["status"], node["reason"]) == ("waiting", f"paused by {served_runs.client.identity}: I look at it")
    assert (await resume_tool(served_runs.client, service.get, by=None)).calls == 0
    await _holds(handle, 1)
    await handle.signal(wire.CANCEL)
    await document_of(handle)
