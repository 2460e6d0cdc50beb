"""Results of calls while the payload store is not available, without a server."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dagwright.tools import context, tool
from dagwright.tools.errors import ArgumentNotLoaded, ResultNotStored
from dagwright.tools.spec import EffectsName
from tests.support.function_bench import FunctionBench, failing_bench
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.waits


def _large(effects: EffectsName, calls: list[int], *, size: int = 100_000) -> Callable[..., Any]:
    @tool(effects=effects)
    def large() -> str:
        calls.append(1)
        return "x" * size

    return large


async def test_result_of_a_write_waits_for_the_store_and_the_write_is_not_repeated() -> None:
    store, calls = MemoryStore(), list[int]()
    store.is_down = True
    bench = FunctionBench(_large("write", calls), store=store)
    bench.temporal.info = replace(bench.temporal.info, start_to_close_timeout=timedelta(seconds=60))
    entries: list[Any] = []

    def on_heartbeat(*details: Any) -> None:
        entries.extend(details)
        store.is_down = False

    bench.temporal.on_heartbeat = on_heartbeat
    stored = await bench.payload({})
    assert (stored.metadata["dagwright-stored"], len(calls), len(store.contents)) == (b"1", 1, 1)
    assert entries[:2] == [None, None]
    assert entries[2]["waits_for"].endswith("could not be stored: the payload store is down")


@pytest.mark.parametrize(
    ("effects", "size", "expected"),
    [
        ("write", 1_100_000, ("store_unavailable", True)),
        ("read", 100_000, ("store_retry", True)),
        ("idempotent", 100_000, ("store_retry", True)),
    ],
)
async def test_effects_determine_the_failure_of_a_result_that_cannot_be_stored(
    effects: EffectsName, size: int, expected: tuple[str, bool]
) -> None:
    store, calls = MemoryStore(), list[int]()
    store.is_down = True
    bench = FunctionBench(_large(effects, calls, size=size), store=store)
    bench.temporal.info = replace(bench.temporal.info, start_to_close_timeout=timedelta(seconds=1))
    failure = await bench.failure({})
    assert (failure.type, failure.non_retryable) == expected
    assert len(calls) == 1


async def test_result_of_a_write_that_cannot_be_stored_in_time_travels_inline() -> None:
    store, calls = MemoryStore(), list[int]()
    store.is_down = True
    bench = FunctionBench(_large("write", calls), store=store)
    bench.temporal.info = replace(bench.temporal.info, start_to_close_timeout=timedelta(seconds=1))
    inline = await bench.payload({})
    assert json.loads(inline.data) == "x" * 100_000
    assert "dagwright-stored" not in inline.metadata


async def test_resources_of_a_tool_stay_while_its_result_waits_for_the_store() -> None:
    @tool(effects="read")
    async def resumable() -> str:
        context().heartbeat({"page": 7})
        return "x" * 100_000

    store = MemoryStore()
    store.is_down = True
    bench = FunctionBench(resumable, store=store)
    bench.temporal.info = replace(bench.temporal.info, start_to_close_timeout=timedelta(seconds=60))
    heartbeats: list[tuple[Any, ...]] = []

    def on_heartbeat(*details: Any) -> None:
        heartbeats.append(details)
        store.is_down = len(details) < 3

    bench.temporal.on_heartbeat = on_heartbeat
    await bench.payload({})
    waited = [details for details in heartbeats if len(details) == 3]
    assert waited[0][0] == {"page": 7}
    assert "waits_for" in waited[0][2]
    assert heartbeats[-1] == ({"page": 7},)


@pytest.mark.parametrize(
    ("error", "effects", "expected"),
    [
        (ArgumentNotLoaded("x"), "write", ("store_unavailable", True)),
        (ArgumentNotLoaded("x"), "read", ("store_unavailable", False)),
        (ResultNotStored("x"), "read", ("store_unavailable", False)),
    ],
)
async def test_tool_that_raises_the_errors_of_the_store_itself_is_not_called_without_limit(
    error: Exception, effects: EffectsName, expected: tuple[str, bool]
) -> None:
    failure = await failing_bench(error, effects).failure({})
    assert (failure.type, failure.non_retryable) == expected
    assert "unstored_bytes" not in failure.details[0]


async def test_failure_for_the_store_has_the_size_of_the_result() -> None:
    store, calls = MemoryStore(), list[int]()
    store.is_down = True
    bench = FunctionBench(_large("idempotent", calls), store=store)
    bench.temporal.info = replace(bench.temporal.info, start_to_close_timeout=timedelta(seconds=1))
    failure = await bench.failure({})
    assert failure.details[0]["unstored_bytes"] == 100_002
