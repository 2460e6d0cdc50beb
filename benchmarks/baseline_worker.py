"""A worker process for the hand-written workflows, with the options of Dagwright's own worker: slots, polls, build ID.

`python -m benchmarks.baseline_worker ADDRESS` serves until it is stopped.
"""

import asyncio
import signal
import sys

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from benchmarks.baseline import (
    ChainBaselineWorkflow,
    FanOutBaselineWorkflow,
    LayersBaselineWorkflow,
    LayersWithOptionsBaselineWorkflow,
    StragglersBaselineWorkflow,
    no_op,
    pause,
)
from benchmarks.processes import BASELINE_QUEUE
from dagwright.settings import ACTIVITY_POLLERS, NEW_RUNS_SHARE, WORKFLOW_POLLERS, WORKFLOW_SLOTS
from dagwright.worker.serving import BUILD_ID, STICKY_TIMEOUT


async def serve(address: str) -> None:
    """Serve the workflows and their activities until SIGINT or SIGTERM."""
    stop_requested = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop_requested.set)
    restrictions = SandboxRestrictions.default.with_passthrough_modules("benchmarks")
    async with Worker(
        await Client.connect(address, data_converter=pydantic_data_converter),
        task_queue=BASELINE_QUEUE,
        workflows=[
            ChainBaselineWorkflow,
            FanOutBaselineWorkflow,
            LayersBaselineWorkflow,
            LayersWithOptionsBaselineWorkflow,
            StragglersBaselineWorkflow,
        ],
        activities=[no_op, pause],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_concurrent_activity_task_polls=ACTIVITY_POLLERS,
        max_concurrent_workflow_tasks=WORKFLOW_SLOTS,
        max_concurrent_workflow_task_polls=WORKFLOW_POLLERS,
        nonsticky_to_sticky_poll_ratio=NEW_RUNS_SHARE,
        build_id=BUILD_ID,
    ):
        await stop_requested.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
