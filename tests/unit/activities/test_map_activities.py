"""The activities of large maps, by themselves: they tell that they live, and why they cannot go on."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.maps import map_activities
from activities.values import Values
from dagwright.plan.items import StoredList, stored_list_to_json
from dagwright.plan.stored import StoredValue
from tests.support.memory_store import MemoryStore


class SlowStore(MemoryStore):
    """Answers `get` when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def get(self, ref: str) -> bytes:
        await self.may_answer.wait()
        return await super().get(ref)


def _activity(store: MemoryStore, number: int) -> Callable[..., Any]:
    return map_activities(Values(store, patience_s=()))[number]


def _stretch(ref: str) -> dict[str, Any]:
    return stored_list_to_json(StoredList(StoredValue(ref, name="list"), 1, 2))


def _environment() -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, heartbeat_timeout=timedelta(milliseconds=30))
    return environment


async def test_items_are_fetched_with_heartbeats() -> None:
    store, environment = SlowStore(), _environment()
    ref = await store.put(pydantic_core.to_json([10, 20, 30, 40]))
    environment.on_heartbeat = lambda *_: store.may_answer.set()
    async with asyncio.timeout(30):
        assert await environment.run(_activity(store, 0), _stretch(ref)) == {"value": [20, 30]}


async def test_store_that_does_not_answer_is_waited_for() -> None:
    store = MemoryStore()
    ref = await store.put(b"[10, 20, 30, 40]")
    piece = await store.put(b'{"value": [1]}')
    joined = {"lists": [{"pieces": [piece]}], "name": "m"}
    contents = dict(store.contents)
    for number, message in enumerate((_stretch(ref), joined)):
        environment = _environment()

        def come_back(*details: object) -> None:
            if "waits_for" in str(details):
                store.is_down = False

        environment.on_heartbeat = come_back
        store.is_down = True
        store.contents = dict(contents)
        async with asyncio.timeout(30):
            await environment.run(_activity(store, number), message)
        store.contents.clear()
        with pytest.raises(ApplicationError) as failure:
            await _environment().run(_activity(store, number), message)
        assert (failure.value.type, failure.value.non_retryable) == ("value_lost", True)
