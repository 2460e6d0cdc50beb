"""Kills of a worker that runs a region batch, loads a page of a plan or stores a result: another worker continues."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory

from dagwright.core.boundary.limits import MAX_INLINE_PLAN_NODES
from dagwright.settings import Settings
from dagwright.store import open_store
from tests.support.chaos import HELD_WORKER, FaultPoints, WorkerProcess, result_within, start_large_run, worker_process
from tests.support.chaos_tools import calls_of, value_of
from tests.support.held_worker import AFTER_WRITE, BEFORE_READ
from tests.support.people import tool_node
from tests.support.runs import Handle, check_history, events_of
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_MAX_RETRY_WAIT_S = 4.0
"""Maximum time from the death of a worker until its activity is retried: the heartbeat timeout and the retry delay."""


@dataclass(frozen=True)
class Scene:
    """Client, workers and folder of a test.

    Args:
        worker: the worker that the test kills.
        next_worker: the worker that continues; `kill_at` starts it.
        folder: folder shared by the test, the tools and the workers.
    """

    client: Client
    worker: WorkerProcess
    next_worker: WorkerProcess
    points: FaultPoints
    folder: Path

    async def start(self, plan: Any) -> Handle:
        return await start_large_run(self.client, plan, run_id="killed", folder=self.folder)

    async def kill_at(self, point: str) -> None:
        """Kill the worker at a fault point, after the start of the next worker."""
        await self.points.wait_for_point(point)
        await self.next_worker.start_and_wait_until_ready()
        await self.worker.kill()
        self.points.release(point)


@pytest.fixture
async def scene(private_server: LiveServer, folder: Path, points: FaultPoints) -> AsyncIterator[Scene]:
    async with worker_process(private_server.address, folder, program=HELD_WORKER) as worker:
        next_worker = WorkerProcess(private_server.address, folder)
        try:
            yield Scene(await private_server.start(), worker, next_worker, points, folder)
        finally:
            await next_worker.stop()


def _pure_graph(count: int, *, pause_ms: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a plan and the values of its pure nodes.

    Each pure node uses the values of the two pure nodes before it. The last node is an echo node.
    """
    nodes: list[dict[str, Any]] = []
    values: dict[str, str] = {}
    for number in range(count):
        name, predecessors = f"n{number}", [f"n{index}" for index in range(max(0, number - 2), number)]
        values[name] = value_of(name, [values[predecessor] for predecessor in predecessors])
        arguments = {
            "name": name,
            "values": [f"{{{{{predecessor}.result}}}}" for predecessor in predecessors],
            "pause_ms": pause_ms,
        }
        nodes.append(tool_node(name, "pure_compute", arguments=arguments, timeout="60s"))
    last_id = f"n{count - 1}"
    end_node = {"id": "end", "tool": "echo", "arguments": {"last": f"{{{{{last_id}.result}}}}"}}
    return {"nodes": [*nodes, end_node], "output": "{{end.result.last}}"}, values


async def _batch_results(handle: Handle) -> list[dict[str, Any]]:
    """Return the results of the region batches of a run so far."""
    history = await handle.fetch_history()
    batch_event_ids = {
        event.event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "run_region"
    }
    return [
        pydantic_core.from_json(event.activity_task_completed_event_attributes.result.payloads[0].data)
        for event in events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        if event.activity_task_completed_event_attributes.scheduled_event_id in batch_event_ids
    ]


def _retry_wait_s(history: WorkflowHistory, activity_type: str) -> float:
    """Return how long the server waits for a lost attempt before it schedules the next attempt.

    The time is computed from the options in the history and not measured, because the machine may be busy.
    """
    started_events = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    retries = [event for event in started_events if event.activity_task_started_event_attributes.attempt > 1]
    events_by_id = {event.event_id: event for event in history.events}
    waits_s = []
    for event in retries:
        attributes = event.activity_task_started_event_attributes
        call = events_by_id[attributes.scheduled_event_id].activity_task_scheduled_event_attributes
        assert call.activity_type.name == activity_type
        assert attributes.last_failure.timeout_failure_info.timeout_type, "the attempt did not time out"
        wait = call.heartbeat_timeout.ToTimedelta() + call.retry_policy.initial_interval.ToTimedelta()
        waits_s.append(wait.total_seconds())
    return max(waits_s)


@pytest.mark.parametrize(
    ("count", "pause_ms", "killed_number"),
    [(60, 15.0, 45), (MAX_INLINE_PLAN_NODES + 500, 1.0, 1_500)],
    ids=["small", "large"],
)
async def test_unreported_nodes_run_again_after_a_kill_in_a_region_batch(
    scene: Scene, count: int, pause_ms: float, killed_number: int
) -> None:
    plan, values = _pure_graph(count, pause_ms=pause_ms)
    scene.points.hold(f"n{killed_number}")
    handle = await scene.start(plan)
    await scene.points.wait_for_point(f"n{killed_number}")
    batch_results = await _batch_results(handle)
    if count > MAX_INLINE_PLAN_NODES:
        reported_count = batch_results[-1]["counts"]["completed"]
    else:
        reported_count = sum(len(result["node_ends"]) for result in batch_results)
    assert 0 < reported_count <= killed_number, "the batch in flight must not be the first batch"
    await scene.kill_at(f"n{killed_number}")
    document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", values[f"n{count - 1}"])
    calls = calls_of(scene.folder)
    # The nodes run one after the other, so the reported nodes are the first in the plan.
    expected = {f"n{number}": 1 if number < reported_count or number > killed_number else 2 for number in range(count)}
    assert {name: calls[name] for name in values} == expected
    history = await handle.fetch_history()
    assert _retry_wait_s(history, "run_region") <= _MAX_RETRY_WAIT_S
    await check_history(history)


async def test_plan_page_is_loaded_again_after_a_kill(scene: Scene) -> None:
    names = [f"n{number}" for number in range(MAX_INLINE_PLAN_NODES + 500)]
    skipped_nodes = [tool_node(name, "echo", when="first.result.n == 2") for name in names]
    first_node = {"id": "first", "tool": "echo", "arguments": {"n": 1}}
    scene.points.hold(BEFORE_READ)
    handle = await scene.start({"nodes": [first_node, *skipped_nodes], "output": "{{first.result}}"})
    await scene.kill_at(BEFORE_READ)
    document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", {"n": 1})
    assert document["nodes_ref"]["counts"] == {"completed": 1, "skipped": len(names)}
    history = await handle.fetch_history()
    assert _retry_wait_s(history, "load_plan") <= _MAX_RETRY_WAIT_S
    await check_history(history)


async def test_result_is_stored_again_after_a_kill_during_the_write(scene: Scene) -> None:
    nodes = [
        {"id": "long", "tool": "long_text", "arguments": {"name": "abc"}},
        tool_node("next", "echo", "long", arguments={"text": "{{long.result}}"}),
    ]
    scene.points.hold(AFTER_WRITE)
    handle = await scene.start({"nodes": nodes})
    await scene.points.wait_for_point(AFTER_WRITE)
    store = scene.folder / "state" / "payloads"
    assert len(list((store / "tmp").iterdir())) == 1
    assert list(store.glob("??/??/*")) == [], "an incomplete payload has no final name"
    await scene.kill_at(AFTER_WRITE)
    document = await result_within(handle, 240)
    assert document["status"] == "completed"
    ref = document["nodes"]["long"]["result"]["ref"]
    content = await open_store(Settings(state_dir=scene.folder / "state").payload_store).get(ref)
    assert pydantic_core.from_json(content) == "abc" * 20_000
    assert document["nodes"]["long"]["attempts"] == 2
    history = await handle.fetch_history()
    assert _retry_wait_s(history, "long_text") <= _MAX_RETRY_WAIT_S
    await check_history(history)
