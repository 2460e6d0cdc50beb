"""The activities of large maps, by themselves: they tell that they live."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
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
