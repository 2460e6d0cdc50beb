"""The activity `run_region`: run a batch of a region's pure nodes and return their outcomes.

Temporal may repeat the activity: the nodes are pure, and nodes in an acknowledged batch result are never given to
another batch.
This module must not import workflows.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.batch_cache import BatchCache
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.pure_calls import PureCalls
from dagwright.activities.region_batches import RegionBatch, start_scheduler
from dagwright.activities.region_state import OffloadedRegionState, RegionCache, fetch_region, restore_region
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.store_retry import StoreRetry
from dagwright.activities.tool_runs import SHUTDOWN_WAIT_S
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import ACTIVITY_RUN_REGION
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.tools import Effects
from dagwright.features.regions.batches import read_batch
from dagwright.features.regions.offloaded_batches import read_offloaded_batch
from dagwright.process.event_loop import short_switch_interval
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.result_json import json_bytes

_POLL_INTERVAL_S = 0.05
"""How often the timeout of the running node is checked."""

RegionActivity = Callable[[dict[str, Any]], Awaitable[RawValue]]

BatchFunction = Callable[[], None]
"""Function that runs a batch in its thread."""


def region_activity(
    registry: ToolRegistry,
    environment: ToolEnvironment,
    *,
    store: PayloadStore,
    values: LargeValues,
    cache: ResultCache,
) -> RegionActivity:
    """Return the activity `run_region` for the Python tools of `registry`."""
    aliases = {alias: spec for spec in registry.python_tools() for alias in spec.aliases}
    tools = aliases | {spec.name: spec for spec in registry.python_tools()}
    fingerprints = {
        name: cache.fingerprints.fingerprint(spec.function)
        for name, spec in tools.items()
        if spec.declaration.effects is Effects.PURE
    }
    region_cache = RegionCache()

    @activity.defn(name=ACTIVITY_RUN_REGION)
    async def run_region(message: dict[str, Any]) -> RawValue:
        """Run the nodes of `message` and return their outcomes; see `dagwright.features.regions`."""
        info = activity.info()
        loop, cancellation = asyncio.get_running_loop(), Cancellation()
        batch_cache = BatchCache(
            cache, fingerprints, run_id=info.workflow_id or "", loop=loop, cancellation=cancellation
        )
        attempt = _Attempt(tools, environment, values, cache=batch_cache, cancellation=cancellation, info=info)
        try:
            result = await attempt.run_batch(message, region_cache, store=store)
        except (ValueError, PayloadMissing, PayloadDamaged) as error:
            raise ApplicationError(str(error), type="region_lost", non_retryable=True) from None
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=result))

    return run_region


class _Attempt:
    """One attempt of one batch."""

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        environment: ToolEnvironment,
        values: LargeValues,
        *,
        cache: BatchCache,
        cancellation: Cancellation,
        info: activity.Info,
    ) -> None:
        self._tools = tools
        self._values = values
        self._run_id = info.workflow_id or ""
        self._cancellation = cancellation
        self._heartbeats = Heartbeats(info)
        self._store_retry = StoreRetry(self._heartbeats, self._cancellation)
        load = self._store_retry.loader(values, asyncio.get_running_loop())
        self._calls = PureCalls(self._run_id, environment, load=load, cancellation=self._cancellation, cache=cache)
        self._batch: RegionBatch | None = None

    async def run_batch(self, message: Mapping[str, Any], region_cache: RegionCache, *, store: PayloadStore) -> bytes:
        """Run a batch and return its result; send heartbeats all the time, even while the store does not respond."""
        self._heartbeats.start()
        try:
            if "inner" in message:
                return await self._run_offloaded_batch(message, region_cache, store=store)
            return await self._run_inline(message)
        finally:
            self._heartbeats.stop()

    async def _run_inline(self, message: Mapping[str, Any]) -> bytes:
        """Run a batch whose nodes are in the message, and return its result."""

        def run_nodes() -> None:
            scheduler = start_scheduler(read_batch(message))
            self._check_tools(scheduler.plan)
            self._batch = RegionBatch(scheduler, self._tools, calls=self._calls)
            self._batch.run()

        await self._run_in_thread(run_nodes)
        assert self._batch is not None
        return pydantic_core.to_json(self._batch.result())

    async def _run_offloaded_batch(
        self, message: Mapping[str, Any], region_cache: RegionCache, *, store: PayloadStore
    ) -> bytes:
        """Run a batch of a region whose nodes are in the store, and return its result."""
        batch_input = read_offloaded_batch(message)
        cached_state = region_cache.pop(self._run_id, batch_input)
        stored_region = (
            None
            if cached_state is not None
            else await self._store_retry.retry(lambda: fetch_region(batch_input, store))
        )
        region_states: list[OffloadedRegionState] = []
        reports: list[bytes] = []

        def run_nodes() -> None:
            region_state = cached_state
            if region_state is None:
                assert stored_region is not None
                region_state = restore_region(stored_region, batch_input)
                self._check_tools(region_state.region.plan)
            region_states.append(region_state)
            self._batch = RegionBatch(
                region_state.scheduler,
                self._tools,
                calls=self._calls,
                inline_nodes=region_state.region.exports,
                reported_count=region_state.reported_count,
            )
            self._batch.run()
            reports.append(region_state.report(self._batch))

        await self._run_in_thread(run_nodes)
        region_state, batch = region_states[0], self._batch
        assert batch is not None
        # The report from the thread contains large results and long failure texts inline. `_run_in_thread` has replaced
        # them by references, so the report is built again.
        is_report_usable = bool(reports) and not (batch.large_result_nodes or batch.long_failures)
        content = reports[0] if is_report_usable else region_state.report(batch)
        ref = await self._store_retry.retry(lambda: store.put(content))
        result = region_state.result(batch, ref)
        if not self._cancellation.is_requested:
            # A cancelled batch may have stopped inside a node, so this process does not continue the region.
            region_cache.put(self._run_id, batch_input, region_state, ref=ref)
        return result

    def _check_tools(self, plan: CompiledPlan) -> None:
        missing_tools = {node.tool for node in plan.nodes if node.kind == "tool"} - self._tools.keys()
        if missing_tools:
            raise ValueError(f"this worker does not have {', '.join(sorted(missing_tools))}")

    async def _run_in_thread(self, run_nodes: BatchFunction) -> None:
        """Run a batch in a thread, and end it on cancellation."""
        await self._wait_for_batch(_start_thread(run_nodes, self._calls))
        if self._batch is not None:
            await self._batch.store_large(self._store_result, self._values.store_failure)
            await self._calls.flush()

    async def _store_result(self, result: Any, node: CompiledNode) -> StoredValue:
        content = await asyncio.to_thread(json_bytes, result)
        name = f"{node.id}.result"
        return await self._store_retry.retry(
            lambda: self._values.store_result(result, content, projections=node.projections, name=name)
        )

    async def _wait_for_batch(self, future: "asyncio.Future[None]") -> None:
        """Wait until the batch ends or its running node is overdue; after a cancellation, wait briefly for the node."""
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        while True:
            try:
                done, _ = await asyncio.wait({future}, timeout=_POLL_INTERVAL_S)
                if done:
                    return future.result()
                if self._batch is not None and self._batch.fail_overdue():
                    return None
                if give_up_at is not None and loop.time() > give_up_at and self._batch and self._batch.abandon():
                    return None
            except asyncio.CancelledError:
                # Do not raise: the result with the completed nodes is still returned.
                self._cancellation.request()
                if self._batch is not None:
                    self._batch.stop()
                give_up_at = give_up_at or loop.time() + SHUTDOWN_WAIT_S


def _start_thread(run_nodes: BatchFunction, calls: PureCalls) -> "asyncio.Future[None]":
    """Start a thread that runs the batch; the future completes when the batch ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        error: BaseException | None = None
        try:
            with short_switch_interval:
                context.run(run_nodes)
        # This is the outermost frame of the thread. An unexpected error must fail the attempt, which would otherwise
        # wait forever.
        except BaseException as raised_error:
            error = raised_error
        finally:
            calls.close()
        # The loop may be gone if the worker stopped without waiting for this thread.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, future, error)

    threading.Thread(target=run, name="region", daemon=True).start()
    return future


def _deliver(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, ValueError):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"the batch failed with a defect: {error!r}"))
