"""Kills of a worker during a region batch, a page of a plan, or a payload: another worker continues immediately."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory

from dagwright.core.boundary.limits import INLINE_PLAN_NODES
from dagwright.settings import Settings
from dagwright.store import open_store
from tests.support.chaos import HELD_WORKER, FaultPoints, WorkerProcess, result_within, start_large_run, worker_process
from tests.support.chaos_tools import calls_of, make_database, value_of
from tests.support.held_worker import READING, WRITING
from tests.support.runs import Handle, assert_clean, assert_replays, events_of
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

_CONTINUES_WITHIN_S = 4.0
"""After the death of its worker an activity is with another one; a second is left to hand it out."""


@dataclass(frozen=True)
class Scene:
    """Client, workers and folder of a test.

    Args:
        worker: the one that is killed.
        other: the worker that continues; it is not started yet.
        folder: what test, tools and workers share.
    """

    client: Client
    worker: WorkerProcess
    other: WorkerProcess
    points: FaultPoints
    folder: Path

    async def start(self, plan: Any) -> Handle:
        return await start_large_run(self.client, plan, workflow_id="killed", folder=self.folder)

    async def kill_at(self, point: str) -> None:
        """Kill the worker at a fault point, with the other one at hand."""
        await self.points.wait_for_point(point)
        await self.other.start_and_serve()
        await self.worker.kill()
        self.points.release(point)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    folder = tmp_path / "shared"
    folder.mkdir()
    make_database(folder)
    async with (
        live_server(tmp_path / "server") as server,
        worker_process(server.address, folder, program=HELD_WORKER) as worker,
    ):
        other = WorkerProcess(server.address, folder)
        try:
            yield Scene(await server.start(), worker, other, FaultPoints(folder), folder)
        finally:
            await other.stop()


def _pure_graph(count: int, *, pause_ms: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a plan of pure nodes in one region, each using the two before it, and an ordinary node at its end."""
    nodes: list[dict[str, Any]] = []
    values: dict[str, str] = {}
    for number in range(count):
        name, before = f"n{number}", [f"n{earlier}" for earlier in range(max(0, number - 2), number)]
        values[name] = value_of(name, [values[earlier] for earlier in before])
        arguments = {"name": name, "values": [f"{{{{{earlier}.result}}}}" for earlier in before], "pause_ms": pause_ms}
        nodes.append({"id": name, "tool": "pure_compute", "arguments": arguments, "timeout": "60s"})
    last = f"n{count - 1}"
    end_node = {"id": "end", "tool": "echo", "arguments": {"last": f"{{{{{last}.result}}}}"}}
    return {"nodes": [*nodes, end_node], "output": "{{end.result.last}}"}, values


async def _answers(handle: Handle) -> list[dict[str, Any]]:
    """Return the results of the region batches of a run so far."""
    history = await handle.fetch_history()
    slices = {
        event.event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "run_region"
    }
    return [
        pydantic_core.from_json(event.activity_task_completed_event_attributes.result.payloads[0].data)
        for event in events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        if event.activity_task_completed_event_attributes.scheduled_event_id in slices
    ]


def _timeout_of(history: WorkflowHistory, kind: str) -> float:
    """Return how long the server waits for a lost attempt before it schedules the next one.

    It is read from the history, not from a clock, because the machine may be busy.
    """
    started_events = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    again = [event for event in started_events if event.activity_task_started_event_attributes.attempt > 1]
    scheduled = {event.event_id: event for event in history.events}
    actual = []
    for event in again:
        attributes = event.activity_task_started_event_attributes
        call = scheduled[attributes.scheduled_event_id].activity_task_scheduled_event_attributes
        assert call.activity_type.name == kind
        assert attributes.last_failure.timeout_failure_info.timeout_type, "it was not lost"
        waited = call.heartbeat_timeout.ToTimedelta() + call.retry_policy.initial_interval.ToTimedelta()
        actual.append(waited.total_seconds())
    return max(actual)


@pytest.mark.parametrize(
    ("count", "pause_ms", "at"), [(60, 15.0, 45), (INLINE_PLAN_NODES + 500, 1.0, 1_500)], ids=["small", "large"]
)
async def test_worker_killed_in_a_region_batch(scene: Scene, count: int, pause_ms: float, at: int) -> None:
    plan, values = _pure_graph(count, pause_ms=pause_ms)
    scene.points.hold(f"n{at}")
    handle = await scene.start(plan)
    await scene.points.wait_for_point(f"n{at}")
    answered = await _answers(handle)
    if count > INLINE_PLAN_NODES:
        result = answered[-1]["counts"]["completed"]
    else:
        result = sum(len(answer["ended"]) for answer in answered)
    assert 0 < result <= at, "the slice in flight must not be the first one"
    await scene.kill_at(f"n{at}")
    document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", values[f"n{count - 1}"])
    calls = calls_of(scene.folder)
    # Nodes run one after the other here, so the reported nodes are the first ones.
    assert {name: calls[name] for name in values} == {
        f"n{number}": 1 if number < result or number > at else 2 for number in range(count)
    }
    history = await handle.fetch_history()
    assert _timeout_of(history, "run_region") <= _CONTINUES_WITHIN_S
    assert_clean(history)
    await assert_replays(history)


async def test_worker_killed_while_a_plan_is_loaded_in_pages(scene: Scene) -> None:
    names = [f"n{number}" for number in range(INLINE_PLAN_NODES + 500)]
    skipped = [{"id": name, "tool": "echo", "when": "first.result.n == 2"} for name in names]
    first_node = {"id": "first", "tool": "echo", "arguments": {"n": 1}}
    scene.points.hold(READING)
    handle = await scene.start({"nodes": [first_node, *skipped], "output": "{{first.result}}"})
    await scene.kill_at(READING)
    document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", {"n": 1})
    assert document["nodes_ref"]["counts"] == {"completed": 1, "skipped": len(names)}
    history = await handle.fetch_history()
    assert _timeout_of(history, "load_plan") <= _CONTINUES_WITHIN_S
    assert_clean(history)
    await assert_replays(history)


async def test_worker_killed_while_a_result_is_written_into_the_store(scene: Scene) -> None:
    nodes = [
        {"id": "long", "tool": "long_text", "arguments": {"name": "abc"}},
        {"id": "next", "tool": "echo", "arguments": {"text": "{{long.result}}"}, "depends_on": ["long"]},
    ]
    scene.points.hold(WRITING)
    handle = await scene.start({"nodes": nodes})
    await scene.points.wait_for_point(WRITING)
    store = scene.folder / "state" / "payloads"
    assert len(list((store / "tmp").iterdir())) == 1
    assert list(store.glob("??/??/*")) == [], "what may not be on the disk has no name"
    await scene.kill_at(WRITING)
    document = await result_within(handle, 240)
    assert document["status"] == "completed"
    ref = document["nodes"]["long"]["result"]["ref"]
    content = await open_store(Settings(state_dir=scene.folder / "state").payload_store).get(ref)
    assert pydantic_core.from_json(content) == "abc" * 20_000
    assert document["nodes"]["long"]["attempts"] == 2
    history = await handle.fetch_history()
    assert _timeout_of(history, "long_text") <= _CONTINUES_WITHIN_S
    assert_clean(history)
    await assert_replays(history)
