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
import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.heartbeats import Heartbeats
from activities.pure_calls import PureCalls
from activities.region_slices import RegionSlice
from activities.tool_runs import SHUTDOWN_WAIT_S
from dagwright.contracts.slices import read_slice
from dagwright.contracts.wire import ACTIVITY_RUN_REGION
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment

_LOOK_S = 0.05
"""How often somebody looks whether the node that runs is over its timeout."""

RegionActivity = Callable[[dict[str, Any]], Awaitable[RawValue]]


def region_activity(registry: ToolRegistry, environment: ToolEnvironment) -> RegionActivity:
    """Returns the activity `run_region` for the Python tools of `registry`."""
    tools = {spec.name: spec for spec in registry.python_tools()}

    @activity.defn(name=ACTIVITY_RUN_REGION)
    async def run_region(message: dict[str, Any]) -> RawValue:
        """Returns `{"ended": [[id, state, result, …], …], "versions"}` of what `message` gives to run."""
        info = activity.info()
        cancellation = Cancellation()
        calls = PureCalls(info.workflow_id or "", environment.secret, cancellation=cancellation)
        with structlog.contextvars.bound_contextvars(workflow_id=info.workflow_id, attempt=info.attempt):
            region = _slice_of(message, tools, calls)
            await _run(region, calls, cancellation=cancellation)
            answer = pydantic_core.to_json(region.answer())
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=answer))

    return run_region


def _slice_of(message: Mapping[str, Any], tools: Mapping[str, ToolSpec], calls: PureCalls) -> RegionSlice:
    try:
        given = read_slice(message)
    except ValueError as error:
        raise ApplicationError(str(error), type="invalid", non_retryable=True) from None
    missing = {node.tool for node in given.plan.nodes if node.kind == "tool"} - tools.keys()
    if missing:
        named = ", ".join(sorted(missing))
        raise ApplicationError(f"this worker does not have {named}", type="unknown_tool", non_retryable=True)
    return RegionSlice(given, tools, calls=calls)


async def _run(region: RegionSlice, calls: PureCalls, *, cancellation: Cancellation) -> None:
    """Runs a slice in a thread; heartbeats until it ends, and ends it when it is told to stop."""
    heartbeats = Heartbeats(activity.info())
    heartbeats.start()
    try:
        await _ended(_in_thread(region, calls), region, cancellation=cancellation)
    finally:
        heartbeats.stop()


def _in_thread(region: RegionSlice, calls: PureCalls) -> "asyncio.Future[None]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    copied = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        try:
            copied.run(region.run)
        # The edge of this thread: what nobody expected fails the attempt instead of leaving it to hang.
        except BaseException as unexpected:
            error = unexpected
        finally:
            calls.close()
        # The loop may be gone if the worker stopped without waiting for this thread.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, future, error)

    threading.Thread(target=work, name="region", daemon=True).start()
    return future


def _deliver(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(RuntimeError(f"the slice ended by a defect: {error!r}"))


async def _ended(future: "asyncio.Future[None]", region: RegionSlice, *, cancellation: Cancellation) -> None:
    """Waits for the end of a slice, its overdue node, or, when told to stop, a while for the node that runs."""
    loop = asyncio.get_running_loop()
    give_up_at: float | None = None
    while True:
        try:
            done, _ = await asyncio.wait({future}, timeout=_LOOK_S)
            if done:
                return future.result()
            if region.end_overdue():
                return None
            if give_up_at is not None and loop.time() > give_up_at and region.leave():
                return None
        except asyncio.CancelledError:
            # What is done counts, so the answer is given as ever.
            cancellation.request()
            region.stop()
            give_up_at = give_up_at or loop.time() + SHUTDOWN_WAIT_S
