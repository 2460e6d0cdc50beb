"""Results that are used again: how old they may be, equal calls at once, and a store that does not work."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from activities import result_cache
from activities.cached_results import CachedResult, to_stored_form
from activities.result_cache import KEPT_FOR_S, Asked, ResultCache
from activities.tool_runs import Outcome
from dagwright.contracts.limits import INLINE_VALUE_BYTES
from tests.support.memory_store import MemoryStore

KEY = "0" * 64
BEGAN = 1_700_000_000.0


class Bench:
    """One store, and as many processes as a test wants; the time stands still unless the test moves it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = BEGAN
        self.calls: list[str] = []

    def process(self) -> ResultCache:
        return ResultCache(self.store, clock=lambda: self.now)

    async def ask(self, cache: ResultCache, node: str = "n", **changes: Any) -> tuple[Any, str | None]:
        """Returns what a call answers, and which node made it if it was not made."""

        async def call() -> Outcome:
            self.calls.append(node)
            return Outcome(f'"{node}"'.encode())

        outcome, cached = await cache.answer(asked(node, **changes), call)
        await cache.written({changes.get("key", KEY)})
        return outcome.result.decode().strip('"'), cached.node if cached is not None else None


def asked(node: str = "n", **changes: Any) -> Asked:
    values = {"key": KEY, "tool": "t", "max_age_s": 60.0, "is_pure": False, "workflow_id": "run-1"}
    return Asked(**{**values, **changes}, node=node)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_result_is_used_again_in_every_process_until_it_is_too_old(bench: Bench) -> None:
    first, second = bench.process(), bench.process()
    assert await bench.ask(first, "a") == ("a", None)
    bench.now += 59.9
    assert await bench.ask(first, "b") == ("a", "a")
    assert await bench.ask(second, "c") == ("a", "a")
    assert await bench.ask(second, "d") == ("a", "a")
    bench.now += 0.1
    assert await bench.ask(second, "e") == ("e", None)
    assert await bench.ask(first, "f") == ("e", "e")
    assert bench.calls == ["a", "e"]
    # Nobody asks the store for what he knows himself.
    assert len(bench.store.asked) == 4


async def test_who_asks_says_how_old_a_result_may_be(bench: Bench) -> None:
    assert await bench.ask(bench.process(), "a", max_age_s=10.0) == ("a", None)
    assert bench.store.memories[KEY][1] == datetime.fromtimestamp(BEGAN + 10, UTC)
    bench.now += 30.0
    assert await bench.ask(bench.process(), "b", max_age_s=60.0) == ("a", "a")
    assert await bench.ask(bench.process(), "c", max_age_s=30.0) == ("c", None)


async def test_other_calls_have_other_results(bench: Bench) -> None:
    cache = bench.process()
    assert await bench.ask(cache, "a") == ("a", None)
    assert await bench.ask(cache, "b", key="1" * 64) == ("b", None)


async def test_failure_is_never_used_again(bench: Bench) -> None:
    cache, wrong = bench.process(), ValueError("no")

    async def fail() -> Outcome:
        return Outcome(error=wrong)

    assert await cache.answer(asked(), fail) == (Outcome(error=wrong), None)
    assert await bench.ask(cache, "b") == ("b", None)


def held(outcome: Outcome) -> tuple[Callable[[], Awaitable[Outcome]], asyncio.Event, asyncio.Event]:
    """Returns a call that waits, what tells that it runs, and what lets it go on."""
    entered, gate = asyncio.Event(), asyncio.Event()

    async def call() -> Outcome:
        entered.set()
        await gate.wait()
        return outcome

    return call, entered, gate


async def test_equal_calls_at_once_are_made_once(bench: Bench) -> None:
    cache = bench.process()
    call, entered, gate = held(Outcome(b'"first"'))
    first = asyncio.create_task(cache.answer(asked("a"), call))
    await entered.wait()
    others = [asyncio.create_task(bench.ask(cache, f"o{number}")) for number in range(20)]
    await asyncio.sleep(0)
    others[0].cancel()
    gate.set()
    assert (await first)[1] is None
    assert await asyncio.gather(*others[1:]) == [("first", "a")] * 19
    assert others[0].cancelled()
    assert bench.calls == []


async def test_those_who_waited_for_a_call_that_failed_make_their_own(bench: Bench) -> None:
    cache = bench.process()
    call, entered, gate = held(Outcome(error=ValueError("no")))
    first = asyncio.create_task(cache.answer(asked("a"), call))
    await entered.wait()
    others = [asyncio.create_task(bench.ask(cache, name)) for name in ("b", "c")]
    await asyncio.sleep(0)
    gate.set()
    await first
    assert await asyncio.gather(*others) == [("b", None), ("c", None)]


async def test_those_who_waited_for_a_call_that_was_cancelled_make_their_own(bench: Bench) -> None:
    cache = bench.process()
    call, entered, _ = held(Outcome(b"1"))
    first = asyncio.create_task(cache.answer(asked("a"), call))
    await entered.wait()
    other = asyncio.create_task(bench.ask(cache, "b"))
    await asyncio.sleep(0)
    first.cancel()
    assert await other == ("b", None)
    assert first.cancelled()


async def test_large_result_is_found_as_long_as_its_payload_is_there(bench: Bench) -> None:
    content = b'"' + b"x" * INLINE_VALUE_BYTES + b'"'
    ref = await bench.store.put(content)
    made = CachedResult(content, BEGAN, 1.0, "run-1", "a")
    await bench.store.remember(KEY, to_stored_form(made), expires_at=datetime.now(UTC))
    assert await bench.process().find(asked()) == made
    del bench.store.contents[ref]
    assert await bench.process().find(asked()) is None
    assert await bench.ask(bench.process(), "b") == ("b", None)


async def test_what_is_damaged_is_made_anew(bench: Bench) -> None:
    await bench.store.remember(KEY, b"damaged", expires_at=datetime.now(UTC))
    assert await bench.ask(bench.process(), "a") == ("a", None)
    assert await bench.ask(bench.process(), "b") == ("a", "a")


async def test_store_that_is_down_is_told_once_and_left_alone_while_the_process_remembers(bench: Bench) -> None:
    cache = bench.process()
    bench.store.is_down = True
    with structlog.testing.capture_logs() as logs:
        assert await bench.ask(cache, "a") == ("a", None)
        assert await bench.ask(cache, "b") == ("a", "a")
        assert await bench.ask(cache, "c", key="1" * 64) == ("c", None)
    assert logs == [
        {"event": "results are not used again for now", "reason": "the payload store is down", "log_level": "warning"}
    ]
    assert bench.store.asked == [KEY]


async def test_store_that_never_answers_does_not_hold_a_call_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "_PATIENCE_S", 0.01)

    async def recall(key: str) -> bytes | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(bench.store, "recall", recall)
    with structlog.testing.capture_logs() as logs:
        assert await bench.ask(bench.process(), "a") == ("a", None)
    assert [log["reason"] for log in logs] == ["the payload store did not answer within 0.01 s"]


async def test_pure_call_is_kept_only_if_it_took_long(bench: Bench) -> None:
    cache, pure = bench.process(), {"is_pure": True, "max_age_s": None}
    assert await bench.ask(cache, "a", **pure) == ("a", None)
    assert await bench.ask(cache, "b", **pure) == ("b", None)
    assert bench.store.memories == {}

    slow = CachedResult(b'"c"', BEGAN, 0.02, "run-1", "c")
    assert cache.keep(asked("c", **pure), slow)
    cache.write(asked("c", **pure), slow)
    await cache.written({KEY})
    bench.now += 10 * KEPT_FOR_S
    assert await bench.ask(cache, "d", **pure) == ("c", "c")
    assert await bench.ask(bench.process(), "e", **pure) == ("c", "c")
    assert bench.store.memories[KEY][1] == datetime.fromtimestamp(BEGAN, UTC) + timedelta(seconds=KEPT_FOR_S)


async def test_memory_is_bounded_and_the_longest_unused_go_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "MEMORY_BYTES", 2_500)
    cache, keys = bench.process(), [f"{number:064x}" for number in range(4)]
    for number in (0, 1, 2):
        cache.keep(asked(key=keys[number]), CachedResult(b"x" * 100, BEGAN, 1.0, "run-1", "n"))
    assert cache.in_memory(asked(key=keys[0])) is not None
    cache.keep(asked(key=keys[3]), CachedResult(b"x" * 100, BEGAN, 1.0, "run-1", "n"))
    assert [cache.in_memory(asked(key=key)) is not None for key in keys] == [True, False, True, True]


async def test_call_waits_for_its_own_result_to_be_written_and_for_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_cache, "_WRITING_S", 600.0)
    cache, slow, may_end = bench.process(), "1" * 64, asyncio.Event()

    async def remember(key: str, content: bytes, *, expires_at: datetime) -> None:
        if key == slow:
            await may_end.wait()
        bench.store.memories[key] = (content, expires_at)

    monkeypatch.setattr(bench.store, "remember", remember)
    for key in (slow, KEY):
        cache.write(asked(key=key), CachedResult(b"1", BEGAN, 1.0, "run-1", "n"))
    async with asyncio.timeout(60):
        await cache.written({KEY})
        assert list(bench.store.memories) == [KEY]
        may_end.set()
        await cache.written({slow})
    assert list(bench.store.memories) == [KEY, slow]
