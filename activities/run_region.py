"""The activity `run_region`: runs a part of a region of pure nodes and tells how they ended.

Temporal may repeat it: its nodes are pure, and what an answered slice told is never given to another one. This module
must not import workflows.
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

from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.inner_regions import InnerRegion, RegionMemory, fetch, restored
from dagwright.activities.pure_calls import PureCalls
from dagwright.activities.pure_results import PureResults
from dagwright.activities.region_slices import RegionSlice, begun
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.store_waits import StoreWaits
from dagwright.activities.tool_runs import SHUTDOWN_WAIT_S
from dagwright.activities.values import Values
from dagwright.core.boundary.wire import ACTIVITY_RUN_REGION
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.tools import Effects
from dagwright.features.regions.batches import batch_from_json
from dagwright.features.regions.offloaded_batches import offloaded_batch_from_json
from dagwright.process.event_loop import hard_work
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.results import json_bytes

_LOOK_S = 0.05
"""How often somebody looks whether the node that runs is over its timeout."""

RegionActivity = Callable[[dict[str, Any]], Awaitable[RawValue]]

Work = Callable[[], None]
"""What a slice does in its thread."""


def region_activity(
    registry: ToolRegistry,
    environment: ToolEnvironment,
    *,
    store: PayloadStore,
    values: Values,
    cache: ResultCache,
) -> RegionActivity:
    """Returns the activity `run_region` for the Python tools of `registry`."""
    aliases = {alias: spec for spec in registry.python_tools() for alias in spec.aliases}
    tools = aliases | {spec.name: spec for spec in registry.python_tools()}
    codes = {
        name: cache.codes.code_of(spec.function)
        for name, spec in tools.items()
        if spec.declaration.effects is Effects.PURE
    }
    memory = RegionMemory()

    @activity.defn(name=ACTIVITY_RUN_REGION)
    async def run_region(message: dict[str, Any]) -> RawValue:
        """Returns the ends of the nodes that `message` gives to run; see `dagwright.features.regions`."""
        info = activity.info()
        loop, cancellation = asyncio.get_running_loop(), Cancellation()
        results = PureResults(cache, codes, workflow_id=info.workflow_id or "", loop=loop, cancellation=cancellation)
        attempt = _Attempt(tools, environment, values, results=results, cancellation=cancellation, info=info)
        try:
            answer = await attempt.answer(message, memory, store=store)
        except (ValueError, PayloadMissing, PayloadDamaged) as error:
            raise ApplicationError(str(error), type="region_lost", non_retryable=True) from None
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=answer))

    return run_region


class _Attempt:
    """One attempt of one slice."""

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        environment: ToolEnvironment,
        values: Values,
        *,
        results: PureResults,
        cancellation: Cancellation,
        info: activity.Info,
    ) -> None:
        self._tools = tools
        self._values = values
        self._workflow_id = info.workflow_id or ""
        self._cancellation = cancellation
        self._heartbeats = Heartbeats(info)
        self._waits = StoreWaits(self._heartbeats, self._cancellation)
        load = self._waits.loader(values, asyncio.get_running_loop())
        self._calls = PureCalls(
            self._workflow_id, environment, load=load, cancellation=self._cancellation, results=results
        )
        self._region: RegionSlice | None = None

    async def answer(self, message: Mapping[str, Any], memory: RegionMemory, *, store: PayloadStore) -> bytes:
        """Runs a slice and returns what it answers; heartbeats until then, also while the store does not answer."""
        self._heartbeats.start()
        try:
            if "inner" in message:
                return await self._run_inner(message, memory, store=store)
            return await self._run_inline(message)
        finally:
            self._heartbeats.stop()

    async def _run_inline(self, message: Mapping[str, Any]) -> bytes:
        """Runs a slice whose nodes stand in the message; returns what it answers."""

        def work() -> None:
            scheduler = begun(batch_from_json(message))
            self._check_tools(scheduler.plan)
            self._region = RegionSlice(scheduler, self._tools, calls=self._calls)
            self._region.run()

        await self._in_thread(work)
        assert self._region is not None
        return pydantic_core.to_json(self._region.answer())

    async def _run_inner(self, message: Mapping[str, Any], memory: RegionMemory, *, store: PayloadStore) -> bytes:
        """Runs a slice of a region whose inside lies in the store; returns what it answers."""
        given = offloaded_batch_from_json(message)
        kept = memory.take(self._workflow_id, given)
        stored = None if kept is not None else await self._waits.patiently(lambda: fetch(given, store))
        found: list[InnerRegion] = []
        told: list[bytes] = []

        def work() -> None:
            inner = kept
            if inner is None:
                assert stored is not None
                inner = restored(stored, given)
                self._check_tools(inner.inside.plan)
            found.append(inner)
            self._region = RegionSlice(
                inner.scheduler, self._tools, calls=self._calls, answered=inner.inside.wanted, told=inner.told
            )
            self._region.run()
            told.append(inner.told_by(self._region))

        await self._in_thread(work)
        inner, region = found[0], self._region
        assert region is not None
        # What was told before large results went to the store holds them.
        is_whole = bool(told) and not (region.large or region.long_failures)
        content = told[0] if is_whole else inner.told_by(region)
        ref = await self._waits.patiently(lambda: store.put(content))
        answer = inner.answer(region, ref)
        if not self._cancellation.is_requested:
            # One that was told to stop may have left a node in the middle, and nobody goes on with it here.
            memory.keep(self._workflow_id, given, inner, ref=ref)
        return answer

    def _check_tools(self, plan: CompiledPlan) -> None:
        missing = {node.tool for node in plan.nodes if node.kind == "tool"} - self._tools.keys()
        if missing:
            raise ValueError(f"this worker does not have {', '.join(sorted(missing))}")

    async def _in_thread(self, work: Work) -> None:
        """Runs a slice in a thread, and ends it when it is told to stop."""
        await self._ended(_started(work, self._calls))
        if self._region is not None:
            await self._region.keep_large(self._keep, self._values.keep_failure)
            await self._calls.written()

    async def _keep(self, result: Any, node: CompiledNode) -> StoredValue:
        content = await asyncio.to_thread(json_bytes, result)
        name = f"{node.id}.result"
        return await self._waits.patiently(lambda: self._values.keep(result, content, wanted=node.wanted, name=name))

    async def _ended(self, future: "asyncio.Future[None]") -> None:
        """Waits for the end of a slice, its overdue node, or, when told to stop, a while for the node that runs."""
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        while True:
            try:
                done, _ = await asyncio.wait({future}, timeout=_LOOK_S)
                if done:
                    return future.result()
                if self._region is not None and self._region.end_overdue():
                    return None
                if give_up_at is not None and loop.time() > give_up_at and self._region and self._region.leave():
                    return None
            except asyncio.CancelledError:
                # What is done counts, so the answer is given as ever.
                self._cancellation.request()
                if self._region is not None:
                    self._region.stop()
                give_up_at = give_up_at or loop.time() + SHUTDOWN_WAIT_S


def _started(work: Work, calls: PureCalls) -> "asyncio.Future[None]":
    """Starts a thread that does the work; the future tells its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    copied = contextvars.copy_context()

    def run() -> None:
        error: BaseException | None = None
        try:
            with hard_work:
                copied.run(work)
        # The edge of this thread: what nobody expected fails the attempt instead of leaving it to hang.
        except BaseException as unexpected:
            error = unexpected
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
        future.set_exception(RuntimeError(f"the slice ended by a defect: {error!r}"))
