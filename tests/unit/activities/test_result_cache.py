"""The result cache: keys, maximum ages, admission of lookups, and outages of the store."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from dagwright.activities import cache_admission, result_cache
from dagwright.activities.batch_cache import BatchCache
from dagwright.activities.cache_admission import CacheAdmission, CpuClock
from dagwright.activities.cached_results import CachedResult, decode_stored_result, encode_stored_result, result_key
from dagwright.activities.result_cache import RETENTION_S, CacheLookup, ResultCache
from dagwright.activities.tool_runs import Outcome
from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES
from dagwright.core.boundary.wire import HEADER_CACHE, HEADER_PROJECTIONS, METADATA_CACHED
from dagwright.core.expressions.stored_values import DeferredText, Secret, StoredValue
from dagwright.core.expressions.value_refs import bindings_of
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import Task, TaskRef
from dagwright.store import ref_of
from dagwright.tools import tool
from dagwright.tools.context import Cancellation
from tests.support.function_harness import FunctionHarness
from tests.support.memory_store import MemoryStore

KEY = "0" * 64
STARTED_AT = 1_700_000_000.0


class CacheHarness:
    """A store that the caches of several processes share, and a clock that the test sets."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = STARTED_AT
        self.calls: list[str] = []

    def new_cache(self) -> ResultCache:
        """Return the result cache of a new process."""
        return ResultCache(self.store, clock=lambda: self.now)

    async def result_and_source(
        self, cache: ResultCache, node_id: str = "n", **lookup_fields: Any
    ) -> tuple[Any, str | None]:
        """Return the result of a call, and the node whose result was reused (`None` for a new result)."""

        async def call() -> Outcome:
            self.calls.append(node_id)
            return Outcome(f'"{node_id}"'.encode())

        outcome, reused_result = await cache.get_or_call(cache_lookup(node_id, **lookup_fields), call)
        await cache.flush({lookup_fields.get("key", KEY)})
        return outcome.result.decode().strip('"'), reused_result.task_id if reused_result is not None else None


def cache_lookup(node_id: str = "n", **lookup_fields: Any) -> CacheLookup:
    defaults = {"key": KEY, "tool": "t", "max_age_s": 60.0, "is_pure": False, "run_id": "run-1"}
    return CacheLookup(**{**defaults, **lookup_fields}, task_id=node_id)


@pytest.fixture
def harness() -> CacheHarness:
    return CacheHarness()


async def test_result_is_reused_in_every_process_until_its_maximum_age(harness: CacheHarness) -> None:
    first_cache, second_cache = harness.new_cache(), harness.new_cache()
    assert await harness.result_and_source(first_cache, "a") == ("a", None)
    harness.now += 59.9
    assert await harness.result_and_source(first_cache, "b") == ("a", "a")
    assert await harness.result_and_source(second_cache, "c") == ("a", "a")
    assert await harness.result_and_source(second_cache, "d") == ("a", "a")
    harness.now += 0.1
    assert await harness.result_and_source(second_cache, "e") == ("e", None)
    assert await harness.result_and_source(first_cache, "f") == ("e", "e")
    assert harness.calls == ["a", "e"]
    # A value in memory needs no request to the store.
    assert len(harness.store.read_keys) == 4


async def test_caller_sets_the_maximum_age_of_a_result(harness: CacheHarness) -> None:
    assert await harness.result_and_source(harness.new_cache(), "a", max_age_s=10.0) == ("a", None)
    assert harness.store.cached_contents[KEY][1] == datetime.fromtimestamp(STARTED_AT + 10, UTC)
    harness.now += 30.0
    assert await harness.result_and_source(harness.new_cache(), "b", max_age_s=60.0) == ("a", "a")
    assert await harness.result_and_source(harness.new_cache(), "c", max_age_s=30.0) == ("c", None)


async def test_failure_is_never_reused(harness: CacheHarness) -> None:
    cache, error = harness.new_cache(), ValueError("no")

    async def fail() -> Outcome:
        return Outcome(error=error)

    assert await cache.get_or_call(cache_lookup(), fail) == (Outcome(error=error), None)
    assert await harness.result_and_source(cache, "b") == ("b", None)


def held_call(outcome: Outcome) -> tuple[Callable[[], Awaitable[Outcome]], asyncio.Event, asyncio.Event]:
    """Return a call that waits, an event that is set at its start, and an event that releases the call."""
    start_event, release_event = asyncio.Event(), asyncio.Event()

    async def call() -> Outcome:
        start_event.set()
        await release_event.wait()
        return outcome

    return call, start_event, release_event


async def test_concurrent_equal_calls_are_made_once(harness: CacheHarness) -> None:
    cache = harness.new_cache()
    call, start_event, release_event = held_call(Outcome(b'"first"'))
    first_task = asyncio.create_task(cache.get_or_call(cache_lookup("a"), call))
    await start_event.wait()
    waiters = [asyncio.create_task(harness.result_and_source(cache, f"o{number}")) for number in range(20)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    release_event.set()
    assert (await first_task)[1] is None
    assert await asyncio.gather(*waiters[1:]) == [("first", "a")] * 19
    assert waiters[0].cancelled()
    assert harness.calls == []


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_each_waiting_caller_calls_the_tool_after_a_failed_call(
    harness: CacheHarness, *, is_cancelled: bool
) -> None:
    cache = harness.new_cache()
    call, start_event, release_event = held_call(Outcome(error=ValueError("no")))
    first_task = asyncio.create_task(cache.get_or_call(cache_lookup("a"), call))
    await start_event.wait()
    waiters = [asyncio.create_task(harness.result_and_source(cache, name)) for name in ("b", "c")]
    await asyncio.sleep(0)
    if is_cancelled:
        first_task.cancel()
    else:
        release_event.set()
    await asyncio.wait({first_task})
    assert await asyncio.gather(*waiters) == [("b", None), ("c", None)]
    assert first_task.cancelled() == is_cancelled


async def test_large_result_is_found_while_its_payload_exists(harness: CacheHarness) -> None:
    content = b'"' + b"x" * MAX_INLINE_VALUE_BYTES + b'"'
    ref = await harness.store.put(content)
    cached_result = CachedResult(content, STARTED_AT, 1.0, "run-1", "a")
    await harness.store.put_cache_entry(KEY, encode_stored_result(cached_result), expires_at=datetime.now(UTC))
    assert await harness.new_cache().find(cache_lookup()) == cached_result
    del harness.store.contents[ref]
    assert await harness.new_cache().find(cache_lookup()) is None
    assert await harness.result_and_source(harness.new_cache(), "b") == ("b", None)


async def test_result_of_a_damaged_entry_is_computed_again(harness: CacheHarness) -> None:
    await harness.store.put_cache_entry(KEY, b"damaged", expires_at=datetime.now(UTC))
    assert await harness.result_and_source(harness.new_cache(), "a") == ("a", None)
    assert await harness.result_and_source(harness.new_cache(), "b") == ("a", "a")


async def test_store_outage_is_logged_once_and_suspends_requests_to_the_store(harness: CacheHarness) -> None:
    cache = harness.new_cache()
    harness.store.is_down = True
    with structlog.testing.capture_logs() as logs:
        assert await harness.result_and_source(cache, "a") == ("a", None)
        assert await harness.result_and_source(cache, "b") == ("a", "a")
        assert await harness.result_and_source(cache, "c", key="1" * 64) == ("c", None)
    assert logs == [
        {
            "event": "the result cache skips the payload store for now",
            "reason": "the payload store is down",
            "log_level": "warning",
        }
    ]
    assert harness.store.read_keys == [KEY]


class HangingStore(MemoryStore):
    """Store whose `get_cache_entry` hangs until the lookup is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup_started = asyncio.Event()
        self.lookup_ended = asyncio.Event()

    async def get_cache_entry(self, key: str) -> bytes | None:
        self.lookup_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.lookup_ended.set()
        return None


async def test_unresponsive_store_does_not_delay_a_call(harness: CacheHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "_LOOKUP_TIMEOUT_S", 0.01)
    with structlog.testing.capture_logs() as logs:
        assert await harness.result_and_source(ResultCache(HangingStore()), "a") == ("a", None)
    assert [log["reason"] for log in logs] == ["the payload store did not answer within 0.01 s"]


async def test_result_of_a_pure_call_is_cached_only_if_the_call_is_slow(harness: CacheHarness) -> None:
    cache, pure_fields = harness.new_cache(), {"is_pure": True, "max_age_s": None}
    assert await harness.result_and_source(cache, "a", **pure_fields) == ("a", None)
    assert await harness.result_and_source(cache, "b", **pure_fields) == ("b", None)
    assert harness.store.cached_contents == {}

    slow_result = CachedResult(b'"c"', STARTED_AT, 0.02, "run-1", "c")
    assert cache.put(cache_lookup("c", **pure_fields), slow_result)
    cache.start_write(cache_lookup("c", **pure_fields), slow_result)
    await cache.flush({KEY})
    harness.now += 10 * RETENTION_S
    assert await harness.result_and_source(cache, "d", **pure_fields) == ("c", "c")
    assert await harness.result_and_source(harness.new_cache(), "e", **pure_fields) == ("c", "c")
    assert harness.store.cached_contents[KEY][1] == datetime.fromtimestamp(STARTED_AT + RETENTION_S, UTC)


async def test_memory_is_bounded_and_least_recently_used_entries_are_evicted(
    harness: CacheHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_cache, "MAX_MEMORY_BYTES", 2_500)
    cache, keys = harness.new_cache(), [f"{number:064x}" for number in range(4)]
    for number in (0, 1, 2):
        cache.put(cache_lookup(key=keys[number]), CachedResult(b"x" * 100, STARTED_AT, 1.0, "run-1", "n"))
    assert cache.find_in_memory(cache_lookup(key=keys[0])) is not None
    cache.put(cache_lookup(key=keys[3]), CachedResult(b"x" * 100, STARTED_AT, 1.0, "run-1", "n"))
    assert [cache.find_in_memory(cache_lookup(key=key)) is not None for key in keys] == [True, False, True, True]


async def test_flush_waits_only_for_the_keys_in_its_argument(
    harness: CacheHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_cache, "_FLUSH_TIMEOUT_S", 600.0)
    cache, slow_key, write_release_event = harness.new_cache(), "1" * 64, asyncio.Event()

    async def put_cache_entry(key: str, content: bytes, *, expires_at: datetime) -> None:
        if key == slow_key:
            await write_release_event.wait()
        harness.store.cached_contents[key] = (content, expires_at)

    monkeypatch.setattr(harness.store, "put_cache_entry", put_cache_entry)
    for key in (slow_key, KEY):
        cache.start_write(cache_lookup(key=key), CachedResult(b"1", STARTED_AT, 1.0, "run-1", "n"))
    async with asyncio.timeout(60):
        await cache.flush({KEY})
        assert list(harness.store.cached_contents) == [KEY]
        write_release_event.set()
        await cache.flush({slow_key})
    assert list(harness.store.cached_contents) == [KEY, slow_key]


CALL_FIELDS: dict[str, Any] = {"arguments": {"a": 1, "b": [True, None]}, "bindings": []}
SMALL_RESULT = CachedResult(b'{"n":1.50}', 1_700_000_000.25, 0.5, "run-1", "sum[x]")
LARGE_RESULT = CachedResult(b'"' + b"x" * MAX_INLINE_VALUE_BYTES + b'"', 1_700_000_000.0, 9.5, "run-1", "big")


def call_key(tool: str = "t", code: str = "c", **call: Any) -> str | None:
    return result_key(tool, code, **{**CALL_FIELDS, **call})


def stored_value(ref: str, name: str = "a.result", paths: Any = ()) -> StoredValue:
    return StoredValue(ref=ref, name=name, paths=paths)


def test_key_depends_on_the_order_of_object_members() -> None:
    assert call_key() != call_key(arguments={"b": [True, None], "a": 1})
    assert len(call_key() or "") == 64


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "u"},
        {"code": "d"},
        {"arguments": {}},
        {"arguments": {"a": 1.0, "b": [True, None]}},
        {"arguments": {"a": 1, "b": [1, None]}},
        {"arguments": {"a": "1", "b": [True, None]}},
        {"arguments": {"a": 1, "b": [None, True]}},
        {"bindings": bindings_of({"a": stored_value("sha256-1")})},
    ],
)
def test_different_calls_have_different_keys(call: dict[str, Any]) -> None:
    assert call_key(**call) not in (None, call_key())


def test_stored_values_are_compared_by_reference_and_not_by_name() -> None:
    def key_with(value: Any) -> str | None:
        return call_key(bindings=bindings_of({"a": value}))

    first_value, renamed_value = stored_value("sha256-1"), stored_value("sha256-1", "z.result")
    assert key_with(first_value) == key_with(renamed_value)
    assert key_with(DeferredText(["x", first_value])) == key_with(DeferredText(["x", renamed_value]))
    other_values = (stored_value("sha256-2"), stored_value("sha256-1", paths=(("n",),)))
    assert len({key_with(value) for value in (first_value, *other_values)}) == 3


@pytest.mark.parametrize("parts", [[Secret("TOKEN")], ["Bearer ", Secret("TOKEN")]])
def test_call_with_a_secret_has_no_key(parts: Any) -> None:
    assert call_key(bindings=bindings_of({"a": DeferredText(parts)})) is None


def test_too_deeply_nested_arguments_have_no_key() -> None:
    nested_list: list[Any] = []
    for _ in range(100_000):
        nested_list = [nested_list]
    assert call_key(arguments={"a": nested_list}) is None


@pytest.mark.parametrize("text", ["é\ud800", "\x00"])
def test_arguments_with_invalid_unicode_or_control_characters_have_a_key(text: str) -> None:
    assert call_key(arguments={"a": text}) is not None


def test_small_result_is_cached_inline_and_a_large_result_by_reference() -> None:
    stored_small = decode_stored_result(encode_stored_result(SMALL_RESULT))
    assert stored_small is not None
    assert (stored_small.result, stored_small.ref) == (SMALL_RESULT, None)
    stored_large = decode_stored_result(encode_stored_result(LARGE_RESULT))
    assert stored_large is not None
    assert (stored_large.content, stored_large.ref) == (b"", ref_of(LARGE_RESULT.content))
    provenance = {"made_at": "2023-11-14T22:13:20.000Z", "run_id": "run-1", "node_id": "big"}
    assert stored_large.result.provenance() == provenance


@pytest.mark.parametrize(
    "damage",
    [
        lambda encoded: b"",
        lambda encoded: encoded[:-1],
        lambda encoded: encoded.replace(b"1.50", b"1.51"),
        lambda encoded: encoded.replace(b'"format":1', b'"format":2'),
        lambda encoded: encoded.replace(b'"made_at"', b'"other"'),
        lambda encoded: bytes(len(encoded)),
        lambda encoded: b"[]\n" + encoded,
    ],
)
def test_damaged_stored_result_is_ignored(damage: Any) -> None:
    assert decode_stored_result(damage(encode_stored_result(SMALL_RESULT))) is None


TASK = Task("n", CompiledNode(id="n", kind="tool", tool="t"), TaskRef(0), {}, [["node", "n"]])


async def test_thread_that_waits_for_the_store_ends_on_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.activities.result_cache._LOOKUP_TIMEOUT_S", 600.0)
    store, cancellation = HangingStore(), Cancellation()
    loop = asyncio.get_running_loop()
    batch_cache = BatchCache(ResultCache(store), {"t": "code"}, run_id="run", loop=loop, cancellation=cancellation)
    lookup = asyncio.create_task(asyncio.to_thread(batch_cache.find, TASK, []))
    async with asyncio.timeout(60):
        await store.lookup_started.wait()
        cancellation.request()
        with pytest.raises(asyncio.CancelledError):
            await lookup
        await store.lookup_ended.wait()


class CallCounter:
    """Number of calls of the tools.

    A counter in the closure of a tool would change the fingerprint of the tool with each call.
    """

    calls = 0


@tool(effects="read", secrets=["TOKEN"])
def count_calls(size: int = 0, text: str = "") -> dict[str, Any]:
    CallCounter.calls += 1
    return {"call": CallCounter.calls, "text": "x" * size}


@tool(effects="pure")
def slow_pure_tool() -> int:
    CallCounter.calls += 1
    deadline_s = time.thread_time() + 0.02
    while time.thread_time() < deadline_s:
        pass
    return CallCounter.calls


@tool(effects="pure")
def quick_pure_tool() -> int:
    """Sleep, as on a busy machine, but use only microseconds of CPU time."""
    CallCounter.calls += 1
    time.sleep(0.02)
    return CallCounter.calls


@tool(effects="write")
def write_tool() -> int:
    CallCounter.calls += 1
    return CallCounter.calls


@pytest.fixture(autouse=True)
def _reset_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallCounter, "calls", 0)


CACHE_HEADER = {HEADER_CACHE: 60.0}


async def test_result_of_an_equal_call_is_reused() -> None:
    store = MemoryStore()
    harness = FunctionHarness(count_calls, store=store)
    first_payload, second_payload = await harness.payload({}, **CACHE_HEADER), await harness.payload({}, **CACHE_HEADER)
    other_process_payload = await FunctionHarness(count_calls, store=store).payload({}, **CACHE_HEADER)
    assert first_payload.data == second_payload.data == other_process_payload.data == b'{"call":1,"text":""}'
    assert METADATA_CACHED not in first_payload.metadata
    provenances = [json.loads(each.metadata[METADATA_CACHED]) for each in (second_payload, other_process_payload)]
    assert provenances == [{"made_at": provenances[0]["made_at"], "run_id": "test", "node_id": "n1"}] * 2
    assert datetime.now(UTC) - datetime.fromisoformat(provenances[0]["made_at"]) < timedelta(minutes=1)
    assert json.loads((await harness.payload({"size": 1}, **CACHE_HEADER)).data)["call"] == 2
    assert json.loads((await harness.payload({})).data)["call"] == 3
    assert json.loads((await harness.payload({}, **{HEADER_CACHE: 0})).data)["call"] == 4


async def test_large_reused_result_is_stored_again_if_it_was_deleted() -> None:
    store = MemoryStore()
    first_payload = await FunctionHarness(count_calls, store=store).payload({"size": 10_000}, **CACHE_HEADER)
    contents, projections = dict(store.contents), {HEADER_PROJECTIONS: [[["call"], "value"]]}
    for is_in_memory in (False, True):
        harness = FunctionHarness(count_calls, store=store)
        for _ in range(2 if is_in_memory else 1):
            payload = await harness.payload({"size": 10_000}, **CACHE_HEADER, **projections)
        assert json.loads(payload.data) == {**json.loads(first_payload.data), "projections": [[["call"], {"value": 1}]]}
        assert (store.contents, METADATA_CACHED in payload.metadata) == (contents, True)
    store.contents.clear()
    assert METADATA_CACHED in (await harness.payload({"size": 10_000}, **CACHE_HEADER)).metadata
    assert store.contents == contents


@pytest.mark.parametrize("header", [{}, CACHE_HEADER])
async def test_result_of_a_write_call_is_never_cached(header: dict[str, Any]) -> None:
    harness = FunctionHarness(write_tool)
    assert [await harness.result({}, **header) for _ in range(2)] == [1, 2]


async def test_slow_pure_call_is_made_once_unless_the_plan_disables_the_cache() -> None:
    harness = FunctionHarness(slow_pure_tool)
    assert [await harness.result({}) for _ in range(3)] == [1, 1, 1]
    assert [await harness.result({}, **{HEADER_CACHE: 0}) for _ in range(2)] == [2, 3]


async def test_pure_call_with_little_cpu_time_is_made_each_time() -> None:
    harness = FunctionHarness(quick_pure_tool)
    assert [await harness.result({}) for _ in range(3)] == [1, 2, 3]


def _quick_lookup_count(admission: CacheAdmission) -> int:
    """Return for how many of 1,000 calls of a quick tool the cache is searched."""
    lookup_count = 0
    for _ in range(1_000):
        if admission.should_look_up("quick"):
            lookup_count += 1
            admission.record_lookup("quick", cached_call_s=None)
    return lookup_count


def test_results_of_a_quick_tool_are_looked_up_twice_and_twice_more_after_a_slow_call() -> None:
    admission = CacheAdmission()
    assert _quick_lookup_count(admission) == 2
    admission.record_slow_call("quick", 0.02)
    assert _quick_lookup_count(admission) == 2


def test_results_of_a_slow_tool_are_always_looked_up() -> None:
    admission = CacheAdmission()
    for _ in range(1_000):
        assert admission.should_look_up("slow")
        admission.record_lookup("slow", cached_call_s=None)
        admission.record_slow_call("slow", 0.006)
    for _ in range(1_000):
        assert admission.should_look_up("slow")
        admission.record_lookup("slow", cached_call_s=0.006)


def test_store_is_queried_for_calls_that_take_longer_than_a_query() -> None:
    admission = CacheAdmission()
    assert admission.should_query_store("t")
    admission.record_store_latency(0.05)
    assert admission.should_query_store("t")
    admission.record_slow_call("t", 0.02)
    assert not admission.should_query_store("t")
    admission.record_slow_call("t", 0.06)
    assert admission.should_query_store("t")
    admission.record_lookup("u", cached_call_s=0.02)
    assert not admission.should_query_store("u")


class _FakeTime:
    """Fake of the module `time`: a wall clock and a CPU clock that the test advances."""

    def __init__(self) -> None:
        self.elapsed_s, self.cpu_s = 1_000.0, 0.0

    def time(self) -> float:
        return self.elapsed_s

    def thread_time(self) -> float:
        return self.cpu_s

    def work(self, seconds: float) -> None:
        self.elapsed_s += seconds
        self.cpu_s += seconds


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> _FakeTime:
    fake_time = _FakeTime()
    monkeypatch.setattr(cache_admission, "time", fake_time)
    return fake_time


def test_cpu_clock_counts_cpu_time_but_not_waiting(fake_time: _FakeTime) -> None:
    clock = CpuClock()
    started_at = fake_time.time()
    fake_time.work(0.02)
    assert clock.cpu_seconds(started_at, fake_time.time()) == pytest.approx(0.02)

    clock.tick(fake_time.time())
    started_at = fake_time.time()
    fake_time.elapsed_s += 0.05
    assert clock.cpu_seconds(started_at, fake_time.time()) == pytest.approx(0.0)


def test_cpu_clock_ignores_cpu_time_before_the_call(fake_time: _FakeTime) -> None:
    clock = CpuClock()
    fake_time.work(0.02)
    started_at = fake_time.time()
    assert clock.cpu_seconds(started_at, started_at + 0.02) == pytest.approx(0.0)


def test_cpu_clock_counts_the_whole_duration_of_a_long_call() -> None:
    assert CpuClock().cpu_seconds(1_000.0, 1_000.5) == 0.5
