"""Results of calls while the payload store is not available, without a server."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dagwright.tools import context, tool
from dagwright.tools.errors import ArgumentNotLoaded, ResultNotStored
from dagwright.tools.spec import EffectsName
from tests.support.function_harness import FunctionHarness, failing_harness
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.waits


def _large_result_tool(effects: EffectsName, calls: list[int], *, size: int = 100_000) -> Callable[..., Any]:
    @tool(effects=effects)
    def large() -> str:
        calls.append(1)
        return "x" * size

    return large


def _harness_with_unavailable_store(
    function: Callable[..., Any], *, timeout_s: int = 1
) -> tuple[FunctionHarness, MemoryStore]:
    """Return the harness of a function and the store of the harness, which is down."""
    store = MemoryStore()
    store.is_down = True
    harness = FunctionHarness(function, store=store)
    harness.set_info(start_to_close_timeout=timedelta(seconds=timeout_s))
    return harness, store


async def test_result_of_a_write_waits_for_the_store_and_the_write_is_not_repeated() -> None:
    calls: list[int] = []
    harness, store = _harness_with_unavailable_store(_large_result_tool("write", calls), timeout_s=60)
    sent_details: list[Any] = []

    def on_heartbeat(*details: Any) -> None:
        sent_details.extend(details)
        store.is_down = False

    harness.temporal.on_heartbeat = on_heartbeat
    payload = await harness.payload({})
    assert (payload.metadata["dagwright-stored"], len(calls), len(store.contents)) == (b"1", 1, 1)
    assert sent_details[:2] == [None, None]
    assert sent_details[2]["waits_for"].endswith("could not be stored: the payload store is down")


@pytest.mark.parametrize(
    ("effects", "size", "expected"),
    [
        ("write", 1_100_000, ("store_unavailable", True, None)),
        ("read", 100_000, ("store_retry", True, 100_002)),
        ("idempotent", 100_000, ("store_retry", True, 100_002)),
    ],
)
async def test_effects_determine_the_failure_of_a_result_that_cannot_be_stored(
    effects: EffectsName, size: int, expected: tuple[str, bool, int | None]
) -> None:
    calls: list[int] = []
    harness, _ = _harness_with_unavailable_store(_large_result_tool(effects, calls, size=size))
    failure = await harness.failure({})
    assert (failure.type, failure.non_retryable, failure.details[0].get("unstored_bytes")) == expected
    assert len(calls) == 1


async def test_result_of_a_write_that_cannot_be_stored_in_time_is_returned_inline() -> None:
    harness, _ = _harness_with_unavailable_store(_large_result_tool("write", []))
    payload = await harness.payload({})
    assert json.loads(payload.data) == "x" * 100_000
    assert "dagwright-stored" not in payload.metadata


async def test_heartbeats_keep_the_details_of_the_tool_while_its_result_waits_for_the_store() -> None:
    @tool(effects="read")
    async def resumable() -> str:
        context().heartbeat({"page": 7})
        return "x" * 100_000

    harness, store = _harness_with_unavailable_store(resumable, timeout_s=60)
    heartbeats: list[tuple[Any, ...]] = []

    def on_heartbeat(*details: Any) -> None:
        heartbeats.append(details)
        store.is_down = len(details) < 3

    harness.temporal.on_heartbeat = on_heartbeat
    await harness.payload({})
    waiting_heartbeats = [details for details in heartbeats if len(details) == 3]
    assert waiting_heartbeats[0][0] == {"page": 7}
    assert "waits_for" in waiting_heartbeats[0][2]
    assert heartbeats[-1] == ({"page": 7},)


@pytest.mark.parametrize(
    ("error", "effects", "expected"),
    [
        (ArgumentNotLoaded("x"), "write", ("store_unavailable", True)),
        (ArgumentNotLoaded("x"), "read", ("store_unavailable", False)),
        (ResultNotStored("x"), "read", ("store_unavailable", False)),
    ],
)
async def test_store_error_raised_by_a_tool_is_retried_like_other_errors_of_the_tool(
    error: Exception, effects: EffectsName, expected: tuple[str, bool]
) -> None:
    failure = await failing_harness(error, effects).failure({})
    assert (failure.type, failure.non_retryable) == expected
    assert "unstored_bytes" not in failure.details[0]
