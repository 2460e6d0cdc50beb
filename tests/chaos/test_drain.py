"""A worker is stopped while a `write` call runs; a second worker is running."""

import asyncio
from pathlib import Path

import pytest

from tests.support.chaos import ROOT, FaultPoints, result_within, start_run, worker_process
from tests.support.chaos_tools import attempts_of
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import bare_document, completed_node
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

_PLAN = plan_of(
    tool_node("w", "write_then_hold", arguments={"name": "w"}, timeout="5m"),
    call_node("after", "long_text", name="{{w.result}}"),
    output="{{w.result}}",
)


async def test_write_of_a_stopping_worker_completes_after_the_grace_period(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    program = ROOT / "tests" / "support" / "short_grace_worker.py"
    points.hold("w")
    async with worker_process(private_server.address, folder, program=program) as first_worker:
        handle = await start_run(await private_server.start(), _PLAN, run_id="drained")
        await points.wait_for_point("w")
        async with worker_process(private_server.address, folder) as second_worker:
            # Both workers write to the same log.
            await eventually(lambda: second_worker.log.count('"worker started"') == 2)
            stop_task = asyncio.create_task(first_worker.stop())
            # Wait until the grace period of the call has ended.
            await eventually(lambda: "write continues while the worker stops" in first_worker.log)
            points.release("w")
            document = await result_within(handle, 60)
            await stop_task
    assert (document["status"], document["output"]) == ("completed", "w")
    assert bare_document(document)["nodes"]["w"] == completed_node("w")
    assert len(attempts_of(folder)) == 1
