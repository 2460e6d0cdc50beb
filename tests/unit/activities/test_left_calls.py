"""Slow calls that have left their batch and wait for an activity that adopts them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.common import RawValue

from dagwright.activities import left_calls
from dagwright.activities.left_calls import BatchHeartbeats, LeftCalls, RunningCall

INFO: Any = SimpleNamespace(workflow_run_id="r", activity_id="n")


def _call() -> RunningCall:
    async def run() -> RawValue:
        await asyncio.Event().wait()
        raise AssertionError

    return RunningCall(asyncio.ensure_future(run()), BatchHeartbeats.__new__(BatchHeartbeats))


async def test_call_of_a_later_attempt_replaces_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_calls, "activity", SimpleNamespace(info=lambda: INFO))
    monkeypatch.setattr(left_calls, "LEFT_CALL_S", 0.01)
    left, (first, second) = LeftCalls(), (_call(), _call())
    left.add("n", first)
    monkeypatch.setattr(left_calls, "LEFT_CALL_S", 60)
    left.add("n", second)
    await asyncio.wait([first.task])
    assert (first.task.cancelled(), second.task.done()) == (True, False)
    # The timer of the first call is over, and the second one is there.
    await asyncio.wait([second.task], timeout=0.03)
    assert left.take(INFO) is second
    assert left.take(INFO) is None
    second.task.cancel()


async def test_call_that_no_activity_adopts_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_calls, "activity", SimpleNamespace(info=lambda: INFO))
    monkeypatch.setattr(left_calls, "LEFT_CALL_S", 0.01)
    left, call = LeftCalls(), _call()
    left.add("n", call)
    await asyncio.wait([call.task])
    assert (call.task.cancelled(), left.take(INFO)) == (True, None)
