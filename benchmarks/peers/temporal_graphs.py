"""The graphs as hand-written Temporal workflows, and their worker.

`python -m benchmarks.peers.temporal_graphs ADDRESS` serves until it is stopped.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from benchmarks.peers import graphs
from dagwright.settings import ACTIVITY_POLLERS, WORKFLOW_SLOTS
from dagwright.worker.serving import STICKY_TIMEOUT

QUEUE = "peers-hand-written"
_TIMEOUT = timedelta(seconds=3)
"""A step whose worker dies is repeated after this time; there are no heartbeats."""


@activity.defn
async def total(values: list[int]) -> int:
    """Return the sum of the values."""
    return graphs.total(values)


@activity.defn
async def draft() -> str:
    """Return a document."""
    return graphs.draft()


@activity.defn
async def rotate(text: str, shift: int) -> str:
    """Move the first `shift` characters of a document to its end."""
    return graphs.rotate(text, shift)


@activity.defn
async def checksum(texts: list[str]) -> int:
    """Return the checksum of the documents, in order."""
    return graphs.checksum(texts)


@activity.defn
async def append(ledger: str, number: int) -> int:
    """Append a number to the ledger after some time."""
    return await asyncio.to_thread(graphs.append, ledger, number)


@workflow.defn(name="PeerChain", sandboxed=False)
class ChainWorkflow:
    """Steps one after the other."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        value = await _call(total, [1])
        for _ in range(1, graphs.CHAIN_LENGTH):
            value = await _call(total, [value, 1])
        return int(value)


@workflow.defn(name="PeerFanOut", sandboxed=False)
class FanOutWorkflow:
    """A step, its many dependents, and a step that depends on all of them."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        root = await _call(total, [1])
        leaves = await asyncio.gather(*(_call(total, [root, index]) for index in range(graphs.FAN_WIDTH)))
        return int(await _call(total, leaves))


@workflow.defn(name="PeerLayers", sandboxed=False)
class LayersWorkflow:
    """Layers of steps; each step depends on the whole previous layer."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        values: list[int] = []
        for _ in range(graphs.LAYERS):
            steps = (_call(total, [index, *values]) for index in range(graphs.LAYER_WIDTH))
            values = list(await asyncio.gather(*steps))
        return int(await _call(total, values))


@workflow.defn(name="PeerDocuments", sandboxed=False)
class DocumentsWorkflow:
    """A document, many documents made from it, and their checksum."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        root = await _call(draft)
        texts = await asyncio.gather(*(_call(rotate, root, index) for index in range(graphs.DOCUMENTS)))
        return int(await _call(checksum, texts))


@workflow.defn(name="PeerEffects", sandboxed=False)
class EffectsWorkflow:
    """Steps with an effect, one after the other."""

    @workflow.run
    async def run(self, ledger: str) -> int:
        """Run the graph."""
        number = 0
        for _ in range(graphs.EFFECT_COUNT):
            number = await _call(append, ledger, number)
        return number


WORKFLOWS: dict[str, Any] = {
    graphs.CHAIN: ChainWorkflow,
    graphs.FAN_OUT: FanOutWorkflow,
    graphs.LAYERED: LayersWorkflow,
    graphs.DOCUMENT_FAN: DocumentsWorkflow,
    graphs.EFFECT_CHAIN: EffectsWorkflow,
}


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return await workflow.execute_activity(function, args=arguments, start_to_close_timeout=_TIMEOUT)


async def serve(address: str) -> None:
    """Serve the workflows and their activities until SIGINT or SIGTERM."""
    stop_requested = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop_requested.set)
    async with Worker(
        await Client.connect(address, data_converter=pydantic_data_converter),
        task_queue=QUEUE,
        workflows=list(WORKFLOWS.values()),
        activities=[total, draft, rotate, checksum, append],
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_concurrent_activity_task_polls=ACTIVITY_POLLERS,
        max_concurrent_workflow_tasks=WORKFLOW_SLOTS,
    ):
        await stop_requested.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
