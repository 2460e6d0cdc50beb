"""Calls of `write` tools while their worker shuts down, without a server."""

import asyncio
import threading
from datetime import timedelta

import pytest

from dagwright.process.drain import drain_s, grace_s, writes_in_flight
from dagwright.tools import tool
from tests.support.activity_harness import WORKER_SHUTDOWN
from tests.support.function_harness import FunctionHarness


@pytest.mark.parametrize("is_async", [False, True])
async def test_write_continues_while_its_worker_stops(is_async: bool) -> None:
    started_event, release_event = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(effects="write")
    def slow() -> str:
        loop.call_soon_threadsafe(started_event.set)
        return "done" if release_event.wait(120) else "never"

    @tool(effects="write", name="slow")
    async def slow_async() -> str:
        started_event.set()
        return "done" if await asyncio.to_thread(release_event.wait, 120) else "never"

    harness = FunctionHarness(slow_async if is_async else slow)
    harness.set_info(start_to_close_timeout=timedelta(seconds=60))
    tool_call = asyncio.ensure_future(harness.result({}))
    await started_event.wait()
    assert writes_in_flight.count == 1
    harness.temporal.cancel(WORKER_SHUTDOWN)
    loop.call_later(0.01, release_event.set)
    assert await tool_call == "done"
    assert writes_in_flight.count == 0


@pytest.mark.parametrize(("timeout_s", "drain_limit_s"), [(0.05, None), (60.0, 0.0)])
async def test_draining_write_is_stopped_at_its_timeout_or_at_the_drain_limit(
    timeout_s: float, drain_limit_s: float | None
) -> None:
    started_event = asyncio.Event()

    @tool(effects="write")
    async def slow() -> None:
        started_event.set()
        await asyncio.Event().wait()

    harness = FunctionHarness(slow, drain_limit_s=drain_limit_s)
    harness.set_info(start_to_close_timeout=timedelta(seconds=timeout_s))
    tool_call = await harness.start_and_cancel(harness.failure({}), started_event, WORKER_SHUTDOWN)
    failure = await tool_call
    assert (failure.type, failure.non_retryable) == ("worker_stopped", True)


def test_drain_time_is_the_smaller_of_the_remaining_time_and_the_limit_minus_the_grace_period() -> None:
    assert [grace_s(drain_limit_s) for drain_limit_s in (None, 4.0, 30.0)] == [10.0, 4.0, 10.0]
    drain_times_s = [drain_s(60.0, limit_s=drain_limit_s) for drain_limit_s in (None, 4.0, 30.0, 300.0)]
    assert drain_times_s == [60.0, 0.0, 20.0, 60.0]
    assert drain_s(-1.0, limit_s=None) == 0.0
