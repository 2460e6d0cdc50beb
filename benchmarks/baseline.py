"""The graphs of the benchmarks as hand-written workflows: plain `execute_activity`, with an asyncio task per node.

This is the baseline, as fast as possible: each workflow is the code that a developer would write for exactly one graph.
The module imports only the sizes and times of the graphs.
"""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import Priority, RetryPolicy

from benchmarks.shapes import (
    CHAIN_LENGTH,
    CHAIN_STEPS,
    CHAINS,
    FAN_WIDTH,
    LAYER_WIDTH,
    LAYERS,
    STEP_S,
    STRAGGLER_S,
    is_straggler,
)

_TIMEOUT = timedelta(seconds=60)
_HEARTBEAT = timedelta(seconds=3)
_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_attempts=3)
_PRIORITY = Priority(priority_key=3)


@activity.defn(name="no_op")
async def no_op(value: int) -> int:
    """Return the value."""
    return value


@activity.defn(name="pause")
async def pause(seconds: float, value: int) -> int:
    """Return the value after a pause."""
    await asyncio.sleep(seconds)
    return value


@workflow.defn(name="FanOutBaseline", sandboxed=False)
class FanOutBaselineWorkflow:
    """One activity, its many dependents, and an activity that depends on all of them."""

    @workflow.run
    async def run(self, width: int = FAN_WIDTH) -> int:
        """Run the graph."""
        root = await _no_op(1)
        leaves = await asyncio.gather(*(_no_op(root) for _ in range(width)))
        return await _no_op(len(leaves))


@workflow.defn(name="ChainBaseline", sandboxed=False)
class ChainBaselineWorkflow:
    """50 activities, one after the other."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        value = 1
        for _ in range(CHAIN_LENGTH):
            value = await _no_op(value)
        return value


@workflow.defn(name="LayersBaseline", sandboxed=False)
class LayersBaselineWorkflow:
    """Layers of activities; each activity depends on the whole previous layer."""

    @workflow.run
    async def run(self, width: int = LAYER_WIDTH, layer_count: int = LAYERS) -> int:
        """Run the graph."""
        values = list(range(width))
        for _ in range(layer_count):
            values = await asyncio.gather(*(_no_op(value) for value in values))
        return sum(values)


@workflow.defn(name="LayersWithOptionsBaseline", sandboxed=False)
class LayersWithOptionsBaselineWorkflow:
    """The layers of `LayersBaselineWorkflow`, with the activity options that Dagwright uses for a node."""

    @workflow.run
    async def run(self, width: int, layer_count: int) -> int:
        """Run the graph."""
        values = list(range(width))
        for layer in range(layer_count):
            calls = (_no_op_with_options(value, f"n{layer}-{index}") for index, value in enumerate(values))
            values = await asyncio.gather(*calls)
        return sum(values)


@workflow.defn(name="StragglersBaseline", sandboxed=False)
class StragglersBaselineWorkflow:
    """20 chains of 5 activities between a start and an end; one activity per layer takes longer."""

    @workflow.run
    async def run(self) -> int:
        """Run the graph."""
        start = await _pause(STEP_S, 1)
        ends = await asyncio.gather(*(self._chain(number, start) for number in range(CHAINS)))
        return await _pause(STEP_S, len(ends))

    @staticmethod
    async def _chain(number: int, value: int) -> int:
        for step in range(CHAIN_STEPS):
            value = await _pause(STRAGGLER_S if is_straggler(number, step) else STEP_S, value)
        return value


async def _no_op(value: int) -> int:
    return await workflow.execute_activity(no_op, value, start_to_close_timeout=_TIMEOUT)


async def _no_op_with_options(value: int, name: str) -> int:
    return await workflow.execute_activity(
        no_op,
        value,
        activity_id=name,
        summary=name,
        start_to_close_timeout=_TIMEOUT,
        heartbeat_timeout=_HEARTBEAT,
        retry_policy=_RETRY,
        priority=_PRIORITY,
    )


async def _pause(seconds: float, value: int) -> int:
    return await workflow.execute_activity(pause, args=[seconds, value], start_to_close_timeout=_TIMEOUT)
