"""Activities that wait during an outage of the payload store, send heartbeats, and report why they wait."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from dagwright.activities.map_items import map_activities
from dagwright.activities.read_model_plan import read_plan_activity
from dagwright.activities.store_retry import await_store_activity
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import DETAIL_UNSTORED_BYTES, HEADER_BINDINGS
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.scheduler.map_items import StoredList, stored_list_to_json
from dagwright.store import StoreUnavailable
from tests.support.activity_harness import ActivityHarness
from tests.support.memory_store import MemoryStore


class SlowStore(MemoryStore):
    """Store whose `get` returns when a test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.release_event = asyncio.Event()

    async def get(self, ref: str) -> bytes:
        await self.release_event.wait()
        return await super().get(ref)


def _activity(store: MemoryStore, index: int) -> Callable[..., Any]:
    """Return the activity `load_items` (0) or `join_items` (1)."""
    return map_activities(LargeValues(store, retry_pauses_s=()))[index]


def _stored_list(ref: str) -> dict[str, Any]:
    return stored_list_to_json(StoredList(StoredValue(ref, name="list"), 1, 2))


def _environment() -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, heartbeat_timeout=timedelta(milliseconds=30))
    return environment


async def test_heartbeats_are_sent_while_items_are_fetched() -> None:
    store, environment = SlowStore(), _environment()
    ref = await store.put(pydantic_core.to_json([10, 20, 30, 40]))
    environment.on_heartbeat = lambda *_: store.release_event.set()
    async with asyncio.timeout(30):
        assert await environment.run(_activity(store, 0), _stored_list(ref)) == {"value": [20, 30]}


async def test_activity_waits_for_an_unavailable_store_and_fails_if_a_value_is_lost() -> None:
    store = MemoryStore()
    ref = await store.put(b"[10, 20, 30, 40]")
    part = await store.put(b'{"value": [1]}')
    join_argument = {"lists": [{"pieces": [part]}], "name": "m"}
    contents = dict(store.contents)
    for index, argument in enumerate((_stored_list(ref), join_argument)):
        environment = _environment()

        def end_outage(*details: object) -> None:
            if "waits_for" in str(details):
                store.is_down = False

        environment.on_heartbeat = end_outage
        store.is_down = True
        store.contents = dict(contents)
        async with asyncio.timeout(30):
            await environment.run(_activity(store, index), argument)
        store.contents.clear()
        with pytest.raises(ApplicationError) as failure:
            await _environment().run(_activity(store, index), argument)
        assert (failure.value.type, failure.value.non_retryable) == ("value_lost", True)


class FullStore(MemoryStore):
    """Store that accepts only small or existing values until a test frees space."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_bytes = 1000
        self.sizes: list[int] = []

    async def put(self, content: bytes) -> str:
        self.sizes.append(len(content))
        if len(content) > self.limit_bytes and content not in self.contents.values():
            raise StoreUnavailable("the disk is full")
        return await super().put(content)


async def test_wait_for_space_ends_when_a_new_value_of_the_required_size_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FullStore()
    environment = ActivityEnvironment()
    reasons: list[Any] = []

    def on_heartbeat(*details: Any) -> None:
        reasons.extend(each["waits_for"] for each in details if isinstance(each, dict) and "waits_for" in each)
        store.limit_bytes = 100_000

    environment.on_heartbeat = on_heartbeat
    wait_activity = await_store_activity(store, LargeValues(store, retry_pauses_s=()))
    await environment.run(wait_activity, {"refs": [], "size_bytes": 50_000, "pause_s": 0.01})
    assert (store.sizes, reasons[0]) == ([50_000, 50_000], "the disk is full")
    # The activity stores a test value with new content each time, and deletes the value.
    assert store.contents == {}


async def test_store_outage_does_not_count_as_an_attempt_to_read_a_plan() -> None:
    store = MemoryStore()
    ref = await store.put(b'"text"')
    store.is_down = True
    harness = ActivityHarness(read_plan_activity({}, LargeValues(store, retry_pauses_s=())))
    failure = await harness.failure({"text": ""}, **{HEADER_BINDINGS: [[["text"], [{"stored": ref}]]]})
    assert (failure.type, failure.non_retryable) == ("store_retry", True)
    assert failure.details[0][DETAIL_UNSTORED_BYTES] == 0
