"""The wrapper around a tool, where the result of an equal call stands in for the call."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dagwright.contracts.wire import HEADER_CACHE, HEADER_HOLES, HEADER_WANTED, METADATA_CACHED
from dagwright.tools import tool
from tests.support.function_bench import FunctionBench
from tests.support.memory_store import MemoryStore


class Counted:
    """Counts calls where no closure sees it."""

    calls = 0


@tool(effects="read", secrets=["TOKEN"])
def counted(size: int = 0, text: str = "") -> dict[str, Any]:
    Counted.calls += 1
    return {"call": Counted.calls, "text": "x" * size}


@tool(effects="pure")
def counted_and_slow() -> int:
    Counted.calls += 1
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    return Counted.calls


@tool(effects="pure")
def counted_and_quick() -> int:
    """Waits for its turn as on a busy machine, and works for microseconds."""
    Counted.calls += 1
    time.sleep(0.02)
    return Counted.calls


@tool(effects="write")
def counted_write() -> int:
    Counted.calls += 1
    return Counted.calls


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    monkeypatch.setattr(Counted, "calls", 0)
    return Counted


TTL = {HEADER_CACHE: 60.0}


@pytest.mark.usefixtures("counting")
async def test_result_of_an_equal_call_stands_in_for_the_call() -> None:
    store = MemoryStore()
    bench = FunctionBench(counted, store=store)
    first, again = await bench.payload({}, **TTL), await bench.payload({}, **TTL)
    elsewhere = await FunctionBench(counted, store=store).payload({}, **TTL)
    assert first.data == again.data == elsewhere.data == b'{"call":1,"text":""}'
    assert METADATA_CACHED not in first.metadata
    told = [json.loads(each.metadata[METADATA_CACHED]) for each in (again, elsewhere)]
    assert told == [{"made_at": told[0]["made_at"], "workflow_id": "test", "node": "n1"}] * 2
    assert datetime.now(UTC) - datetime.fromisoformat(told[0]["made_at"]) < timedelta(minutes=1)
    assert json.loads((await bench.payload({"size": 1}, **TTL)).data)["call"] == 2
    assert json.loads((await bench.payload({})).data)["call"] == 3
    assert json.loads((await bench.payload({}, **{HEADER_CACHE: 0})).data)["call"] == 4


@pytest.mark.usefixtures("counting")
async def test_large_result_of_an_equal_call_is_put_anew_for_the_run_that_uses_it() -> None:
    store = MemoryStore()
    first = await FunctionBench(counted, store=store).payload({"size": 10_000}, **TTL)
    kept = dict(store.contents)
    for holds_memory in (False, True):
        bench = FunctionBench(counted, store=store)
        for _ in range(2 if holds_memory else 1):
            again = await bench.payload({"size": 10_000}, **TTL, **{HEADER_WANTED: [[["call"], "value"]]})
        assert json.loads(again.data) == {**json.loads(first.data), "projections": [[["call"], {"value": 1}]]}
        assert (store.contents, METADATA_CACHED in again.metadata) == (kept, True)
    store.contents.clear()
    assert METADATA_CACHED in (await bench.payload({"size": 10_000}, **TTL)).metadata
    assert store.contents == kept


@pytest.mark.usefixtures("counting")
async def test_call_with_a_secret_is_always_made() -> None:
    holes = {HEADER_HOLES: [[["text"], [{"secret": "TOKEN"}]]]}
    store = MemoryStore()
    bench = FunctionBench(counted, store=store)
    calls = [(await bench.result({"text": "?"}, **TTL, **holes))["call"] for _ in range(2)]
    assert (calls, store.memories, store.asked) == ([1, 2], {}, [])


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("header", [{}, TTL])
async def test_call_that_changes_the_world_is_always_made(header: dict[str, Any]) -> None:
    bench = FunctionBench(counted_write)
    assert [await bench.result({}, **header) for _ in range(2)] == [1, 2]


@pytest.mark.usefixtures("counting")
async def test_slow_pure_call_is_made_once_unless_the_plan_says_otherwise() -> None:
    bench = FunctionBench(counted_and_slow)
    assert [await bench.result({}) for _ in range(3)] == [1, 1, 1]
    assert [await bench.result({}, **{HEADER_CACHE: 0}) for _ in range(2)] == [2, 3]


@pytest.mark.usefixtures("counting")
async def test_quick_pure_call_is_made_each_time_however_long_it_waits_for_its_turn() -> None:
    bench = FunctionBench(counted_and_quick)
    assert [await bench.result({}) for _ in range(3)] == [1, 2, 3]


async def test_arguments_that_are_wrong_are_told_as_ever_if_there_is_a_cache() -> None:
    bench = FunctionBench(counted)
    wrong: list[list[Any]] = [[], [5], [{"nonsense": 1}], [{}, {}]]
    for arguments in wrong:
        assert (await bench.failure(*arguments, **TTL)).type == "invalid_arguments"
