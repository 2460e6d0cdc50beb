"""The activity that waits for the payload store: it writes what the store could not take."""

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.await_store import await_store_activity
from activities.values import Values
from dagwright.store import StoreUnavailable
from tests.support.memory_store import MemoryStore


class FullStore(MemoryStore):
    """Takes only small values, and what it has already, until somebody frees space."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_bytes = 1000
        self.sizes: list[int] = []

    async def put(self, content: bytes) -> str:
        self.sizes.append(len(content))
        if len(content) > self.limit_bytes and content not in self.contents.values():
            raise StoreUnavailable("the disk is full")
        return await super().put(content)


async def test_wait_ends_only_when_a_new_value_of_the_size_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FullStore()
    environment = ActivityEnvironment()
    reasons: list[Any] = []

    def on_heartbeat(*details: Any) -> None:
        reasons.extend(each["waits_for"] for each in details if isinstance(each, dict) and "waits_for" in each)
        store.limit_bytes = 100_000

    environment.on_heartbeat = on_heartbeat
    waiting = await_store_activity(store, Values(store, patience_s=()))
    await environment.run(waiting, {"refs": [], "size_bytes": 50_000, "pause_s": 0.01})
    assert (store.sizes, reasons[0]) == ([50_000, 50_000], "the disk is full")
    # Each probe is new, and deleted.
    assert store.contents == {}
