"""Results that a slice of a region uses again: its thread stops waiting for the store when it is told to."""

import asyncio

import pytest

from activities.pure_results import PureResults
from activities.result_cache import ResultCache
from dagwright.plan.compiled import CompiledNode
from dagwright.plan.tasks import Task
from dagwright.tools.context import Cancellation
from tests.support.memory_store import MemoryStore

TASK = Task("n", CompiledNode(id="n", kind="tool", tool="t"), 0, None, {}, [["node", "n"]])


class HangingStore(MemoryStore):
    """Answers `recall` when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.was_left = asyncio.Event()

    async def recall(self, key: str) -> bytes | None:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_left.set()
        return None


async def test_thread_that_waits_for_the_store_hears_that_it_shall_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.result_cache._PATIENCE_S", 600.0)
    store, cancellation = HangingStore(), Cancellation()
    loop = asyncio.get_running_loop()
    results = PureResults(ResultCache(store), {"t": "code"}, workflow_id="run", loop=loop, cancellation=cancellation)
    looking = asyncio.create_task(asyncio.to_thread(results.find, TASK, []))
    async with asyncio.timeout(60):
        await store.is_asked.wait()
        cancellation.request()
        with pytest.raises(asyncio.CancelledError):
            await looking
        await store.was_left.wait()
