"""`RunFeeds` on a real server: one reader for all who look, and a subscriber that goes on where it stopped."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.history.executions import BEGINNING, Offset
from dagwright.history.run_reader import RunFeed, RunNotFound
from dagwright.history.run_subscriptions import RunFeeds, RunUpdate
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, as_shown, document_of
from tests.support.tools import Bench

pytestmark = pytest.mark.server


class _Opened:
    """Opens feeds and counts them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.count = 0

    def __call__(self, workflow_id: str) -> RunFeed:
        self.count += 1
        return RunFeed(self._client, workflow_id)


def _chain(name: str) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": "first", "tool": "echo", "arguments": {}},
            {"id": "held", "tool": "hold", "arguments": {"name": name}, "depends_on": ["first"]},
            {"id": "last", "tool": "echo", "arguments": {}, "depends_on": ["held"]},
        ]
    }


async def _all_of(feeds: RunFeeds, handle: Handle, *, after: Offset | None = None) -> list[RunUpdate]:
    return [update async for update in feeds.subscribe(handle.id, after=after)]


def _told(updates: list[RunUpdate]) -> dict[str, str]:
    """Returns what the states of the tasks that were told are at the end."""
    scheduler = updates[-1].view.scheduler
    assert scheduler is not None
    tasks = dict.fromkeys(task for update in updates for task in update.changed)
    return {task: record.status.value for task in tasks if (record := scheduler.record_of(task))}


async def test_a_hundred_subscribers_have_one_reader_and_are_told_the_same(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    opened = _Opened(client)
    feeds = RunFeeds(opened)
    handle = await cached_runs.start(_chain(unique))
    watching = [asyncio.create_task(_all_of(feeds, handle)) for _ in range(100)]
    await eventually(lambda: unique in bench.entered)
    bench.open(unique)
    written = await document_of(handle)
    told = await asyncio.gather(*watching)

    assert opened.count == 1
    assert [_told(updates) for updates in told] == [
        {"first": "completed", "held": "completed", "last": "completed"}
    ] * 100
    assert all(updates[-1].view.document() == as_shown(written) for updates in told[:3])


async def test_reader_goes_with_the_last_subscriber(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    opened = _Opened(client)
    feeds = RunFeeds(opened)
    handle = await cached_runs.start(_chain(unique))
    tasks = set(asyncio.all_tasks())
    async with aclosing(feeds.subscribe(handle.id)) as first, aclosing(feeds.subscribe(handle.id)) as second:
        await anext(first)
        await anext(second)
        assert opened.count == 1
    await eventually(lambda: not {task for task in asyncio.all_tasks() - tasks if "_Topic" in str(task.get_coro())})
    bench.open(unique)
    await document_of(handle)
    assert _told(await _all_of(feeds, handle))["last"] == "completed"
    assert opened.count == 2


async def test_subscriber_goes_on_from_its_offset_without_gap_or_repetition(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    feeds = RunFeeds(_Opened(client))
    handle = await cached_runs.start(_chain(unique))
    seen: list[str] = []
    async with aclosing(feeds.subscribe(handle.id)) as updates:
        async for update in updates:
            seen += update.changed
            scheduler = update.view.scheduler
            if scheduler is not None and scheduler.records[1].status == "running":
                offset = Offset.parse(str(update.view.offset))
                break
    bench.open(unique)
    await document_of(handle)
    rest = await _all_of(feeds, handle, after=offset)
    again = await _all_of(feeds, handle, after=BEGINNING)
    nothing_new = await _all_of(feeds, handle, after=rest[-1].view.offset)

    assert list(dict.fromkeys(seen)) == ["first", "held"]
    assert [update.changed for update in rest] == [("held", "last")]
    assert [update.changed for update in again] == [("first", "held", "last")]
    assert [update.changed for update in nothing_new] == [()]


async def test_every_subscriber_of_a_run_that_is_not_there_is_told(client: Client) -> None:
    feeds = RunFeeds(lambda workflow_id: RunFeed(client, workflow_id))

    async def look() -> str:
        with pytest.raises(RunNotFound) as refused:
            await anext(feeds.subscribe("nowhere at all"))
        return str(refused.value)

    assert set(await asyncio.gather(look(), look())) == {"there is no run 'nowhere at all'"}


async def test_offset_of_an_execution_that_is_not_kept_counts_for_nothing(client: Client, cached_runs: Runs) -> None:
    handle = await cached_runs.start({"nodes": [{"id": "a", "tool": "echo", "arguments": {}}]})
    await document_of(handle)
    feeds = RunFeeds(lambda workflow_id: RunFeed(client, workflow_id))
    assert [update.changed for update in await _all_of(feeds, handle, after=Offset(7, 3))] == [("a",)]
