"""Guards of workers: a stopping worker, long chains of pure nodes, heartbeats, and concurrent workflow tasks."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.protocol.run_input import run_input_from_json
from dagwright.settings import WORKFLOW_SLOTS, Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import serving as worker
from dagwright.workflows import run_plan
from tests.support.eventually import eventually
from tests.support.foreign import foreign_worker
from tests.support.foreign import with_tools as with_foreign_tools
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, document_of, events_of, histories_of, scheduled_calls, serving_runs, with_tools
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server


@asynccontextmanager
async def _serve(client: Client, registry: ToolRegistry, *, queue: str, folder: Path) -> AsyncIterator[Runs]:
    """Serve plans on a queue. A second call with the same queue continues the open runs."""
    toolset = with_tools(load_toolset(Settings(state_dir=folder)), registry, queue=f"{queue}-tools")
    async with AsyncExitStack() as stack:
        for queue_worker in worker.create_workers(client, toolset, task_queue=queue):
            await stack.enter_async_context(queue_worker)
        yield Runs(client, task_queue=queue, tools=toolset.declarations(), store=toolset.store)


@pytest.fixture
def queue() -> str:
    return f"guards-{uuid4().hex}"


async def test_long_chain_of_pure_nodes_does_not_delay_other_nodes(runs: Runs) -> None:
    """Guard F1: local activities would extend the workflow task and delay every other node."""
    chain = [
        {"id": f"c{n}", "tool": "nap", "arguments": {"ms": 100}, "depends_on": [f"c{n - 1}"] if n else []}
        for n in range(30)
    ]
    first_node, second_node = call_node("first", "echo"), tool_node("second", "echo", "first")
    handle = await runs.start({"nodes": [*chain, first_node, second_node]})
    document = await document_of(handle)
    end_times = {node_id: datetime.fromisoformat(node["ended_at"]) for node_id, node in document["nodes"].items()}
    assert document["status"] == "completed"
    assert end_times["second"] < end_times["c29"] - timedelta(seconds=1)
    assert events_of(await handle.fetch_history(), EventType.EVENT_TYPE_MARKER_RECORDED) == []


async def test_heartbeat_timeouts_are_short_for_reads_and_long_for_effects(cached_runs: Runs, client: Client) -> None:
    """Guard F15: a timeout shorter than an outage of the server repeats effects, and a long timeout delays recovery."""
    nodes = [
        call_node("read", "echo"),
        call_node("idempotent", "return_key", name=f"beats {uuid4().hex}"),
        call_node("write", "write", name=f"beats {uuid4().hex}"),
        call_node("foreign", "foreign.text", size=1),
        tool_node("custom", "echo", heartbeat="7s"),
    ]
    async with foreign_worker(client) as tools:
        runs = with_foreign_tools(cached_runs, tools)
        handle = await runs.start({"nodes": nodes})
        assert (await document_of(handle))["status"] == "completed"
        await runs.check_runs()
    timeouts = {
        scheduled_call.activity_id: scheduled_call.heartbeat_timeout.ToTimedelta().total_seconds()
        for scheduled_call in scheduled_calls(await handle.fetch_history())
    }
    assert timeouts == {"read": 3, "idempotent": 30, "write": 30, "foreign": 0, "custom": 7}


async def test_calls_are_scheduled_in_the_order_of_their_priorities(runs: Runs) -> None:
    """Guard F19: eager activities would start in the order of their commands, not of their priorities."""
    nodes = [tool_node(f"p{priority} {n}", "echo", priority=priority) for n in range(5) for priority in (5, 1, 3)]
    handle = await runs.start({"nodes": nodes})
    await document_of(handle)
    [history] = await histories_of(runs.client, handle)
    priorities = [scheduled_call.priority.priority_key for scheduled_call in scheduled_calls(history)]
    assert priorities == sorted(priorities)


async def test_stopping_worker_waits_for_running_tools(
    client: Client, harness: CallHarness, unique_name: str, queue: str, tmp_path: Path
) -> None:
    """Guard F19: with the SDK's default grace period of zero, every running call would lose an attempt."""
    plan = plan_of(call_node("held", "hold_write", name=unique_name), tool_node("after", "echo", "held"))
    async with _serve(client, harness.registry(), queue=queue, folder=tmp_path) as runs:
        handle = await runs.start(plan)
        await eventually(lambda: unique_name in harness.entered)
        # The worker stops at the end of the block, while the tool still runs.
        asyncio.get_running_loop().call_later(1, harness.open, unique_name)
    async with _serve(client, harness.registry(), queue=queue, folder=tmp_path):
        document = await document_of(handle)
    expected = {"held": ("completed", 1), "after": ("completed", 1)}
    assert {node_id: (node["status"], node["attempts"]) for node_id, node in document["nodes"].items()} == expected
    assert len(harness.effects[unique_name]) == 1


_RUN_COUNT = 3 * WORKFLOW_SLOTS
_TASK_DURATION_S = 0.2
"""Duration of each workflow task: long enough that all tasks would run concurrently without a limit."""


async def test_concurrent_workflow_tasks_are_limited(client: Client, harness: CallHarness, tmp_path: Path) -> None:
    slow_code = _SlowWorkflowCode()
    with patch.object(run_plan, "run_input_from_json", slow_code.read_input):
        async with serving_runs(
            client, harness.registry(), settings=Settings(state_dir=tmp_path), detects_deadlocks=True
        ) as runs:
            plan = {"nodes": [call_node("a", "echo", text="hello")]}
            handles = await asyncio.gather(*(runs.start(plan) for _ in range(_RUN_COUNT)))
            documents = [await document_of(handle) for handle in handles]

    assert [document["status"] for document in documents] == ["completed"] * _RUN_COUNT
    assert 1 < slow_code.max_running <= WORKFLOW_SLOTS


class _SlowWorkflowCode:
    """A slow `run_input_from_json` that counts its concurrent calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self.max_running = 0
        self._read_input = run_input_from_json

    def read_input(self, *arguments: Any) -> Any:
        with self._lock:
            self._running += 1
            self.max_running = max(self.max_running, self._running)
        time.sleep(_TASK_DURATION_S)
        with self._lock:
            self._running -= 1
        return self._read_input(*arguments)
