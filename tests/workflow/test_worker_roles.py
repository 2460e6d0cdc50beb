"""Workers with the roles `workflows` and `tools` on the real server."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright.worker.capacity import WorkerCapacity
from dagwright.worker.serving import serving
from tests.support.goals import call_node
from tests.support.plan_building import plan_of
from tests.support.run_views import wait_for_status
from tests.support.runs import Runs, with_tools
from tests.support.tools import CallHarness
from tests.workflow.building import pure_node

pytestmark = pytest.mark.server

PLAN = plan_of(pure_node("each", "{{item}}", for_each=[1, 2, 3]), call_node("last", "echo", text="{{each.result}}"))


async def test_run_waits_with_a_note_until_each_role_has_a_worker(
    client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    queue = f"roles-{uuid4().hex}"
    toolset = with_tools(load_toolset(Settings(state_dir=tmp_path)), harness.registry(), queue=f"{queue}-tools")
    runs = Runs(client, task_queue=queue, tools=toolset.declarations(), store=toolset.store)
    workflow_capacity = WorkerCapacity("workflows", workflow_slots=2, cached_runs=0)
    # With a memory target, the resource-based tuner supplies the slots.
    tool_capacity = WorkerCapacity("tools", activity_slots=2, target_memory=0.99)
    async with AsyncExitStack() as stack:
        handle = await runs.start(PLAN)
        await stack.enter_async_context(serving(client, toolset, task_queue=queue, capacity=workflow_capacity))
        document = (await wait_for_status(client, handle.id, "waiting")).document()
        assert "no worker serves the queue" in str(document["notes"]), document["notes"]
        assert "of add" in str(document["notes"])
        await stack.enter_async_context(serving(client, toolset, task_queue=queue, capacity=tool_capacity))
        await asyncio.wait_for(handle.result(), 60)
        await runs.check_runs()
