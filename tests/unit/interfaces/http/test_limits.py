"""Limits of a key: requests, streams, invalid keys, and concurrent runs."""

import asyncio
from collections.abc import Collection
from typing import cast

import pytest

from dagwright.client.runs import Runs
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.key_limits import InvalidKeyCounter, KeyLimits, KeyUsage, StreamReservation
from dagwright.interfaces.http.run_starts import RunQuota


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


LIMITS = KeyLimits(requests_per_minute=3, streams=2, runs=1, body_bytes=10, plan_bytes=10)


def test_requests_are_counted_by_the_minute_for_each_key() -> None:
    clock = Clock()
    usage = KeyUsage(LIMITS, clock)
    assert [usage.count_request(key) for key in "aaaab"] == [0.0, 0.0, 0.0, 20.0, 0.0]
    clock.now += 15
    assert usage.count_request("a") == 5.0
    clock.now += 5
    assert (usage.count_request("a"), usage.count_request("a") > 0) == (0.0, True)
    clock.now += 10_000
    assert [usage.count_request("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_streams_are_counted_while_they_are_open() -> None:
    usage = KeyUsage(LIMITS, Clock())
    first_stream, second_stream, third_stream = (StreamReservation(usage, "a") for _ in range(3))
    assert first_stream.reserve()
    # A second reservation of the same stream does not count.
    assert [stream.reserve() for stream in (first_stream, second_stream, third_stream)] == [True, True, False]
    assert StreamReservation(usage, "b").reserve()
    third_stream.close()
    assert not third_stream.reserve()
    first_stream.close()
    first_stream.close()
    assert (third_stream.reserve(), StreamReservation(usage, "a").reserve()) == (True, False)


def test_invalid_keys_are_counted_by_address() -> None:
    clock = Clock()
    counter = InvalidKeyCounter(clock, per_minute=2)
    assert [counter.count("10.0.0.1") for _ in range(3)] == [0.0, 0.0, 30.0]
    assert counter.count("10.0.0.2") == 0.0
    clock.now += 30
    assert (counter.count("10.0.0.1"), counter.count("10.0.0.1")) == (0.0, 30.0)
    # All addresses of an IPv6 network count as one address.
    assert [counter.count(f"2001:db8::{number}") > 0 for number in range(3)] == [False, False, True]
    assert [counter.count("2001:db8:0:1::1"), counter.count("10.0.0.2"), counter.count("")] == [0.0, 0.0, 0.0]


def test_addresses_are_remembered_up_to_a_limit() -> None:
    counter = InvalidKeyCounter(Clock(), per_minute=1)
    for number in range(10_001):
        counter.count(str(number))
    assert (counter.count("10000") > 0, counter.count("0")) == (True, 0.0)


class FakeServer:
    """Fake server with a list of runs that is out of date until `update_list` is called.

    The server responds to a request for a count only while `may_count` is set.
    """

    def __init__(self) -> None:
        self.open_runs: set[str] = set()
        self.listed_runs: set[str] = set()
        self.is_budget_used_up = False
        self.counted_owners: list[str] = []
        self.may_count = asyncio.Event()
        self.may_count.set()

    async def used_up_budget_text(self, owner: str) -> str | None:
        return f"daily budget of {owner}" if self.is_budget_used_up else None

    def update_list(self) -> None:
        self.listed_runs = {*self.open_runs}

    async def count_open_runs(self, owner: str, *, excluded_ids: Collection[str] = ()) -> int:
        self.counted_owners.append(owner)
        await asyncio.sleep(0)
        count = len(self.listed_runs.difference(excluded_ids))
        await self.may_count.wait()
        return count

    async def is_open(self, run_id: str) -> bool:
        return run_id in self.open_runs

    exists = is_open


async def try_start(server: FakeServer, quota: RunQuota, run_id: str) -> bool:
    """Start a run, and return whether its quota allowed it."""
    try:
        async with quota.reserve(run_id, cast(Runs, server)):
            await asyncio.sleep(0)
            server.open_runs.add(run_id)
    except ApiError as error:
        return error.status != 429
    return True


async def test_concurrent_starts_stay_within_the_limit() -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=3)
    start_results = await asyncio.gather(*(try_start(server, quota, f"run-{number}") for number in range(20)))
    assert sum(start_results) == len(server.open_runs) == 3
    assert not await try_start(server, quota, "one more")


@pytest.mark.parametrize(("limit", "message"), [(1, "may have 1 run at a time"), (2, "may have 2 runs at a time")])
async def test_rejection_names_the_limit_of_runs(limit: int, message: str) -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=limit)
    assert [await try_start(server, quota, f"run-{number}") for number in range(limit)] == [True] * limit
    with pytest.raises(ApiError, match=message):
        async with quota.reserve("one more", cast(Runs, server)):
            pass


async def test_owner_without_budget_starts_no_new_run_until_the_next_day() -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=2)
    assert await try_start(server, quota, "existing")
    server.is_budget_used_up = True
    assert await try_start(server, quota, "existing")
    with pytest.raises(ApiError, match="'ann' has no model usage left: daily budget of ann") as error:
        async with quota.reserve("new", cast(Runs, server)):
            pass
    assert error.value.status == 429
    assert 1 <= int((error.value.headers or {})["Retry-After"]) <= 86_400


@pytest.mark.parametrize("is_listed", [True, False])
async def test_ended_run_frees_its_slot_even_if_it_was_never_listed(*, is_listed: bool) -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=2)
    assert [await try_start(server, quota, run_id) for run_id in ("a", "b", "c")] == [True, True, False]
    if is_listed:
        server.update_list()
        assert not await try_start(server, quota, "c")
    server.open_runs.remove("a")
    if is_listed:
        server.update_list()
    assert [await try_start(server, quota, run_id) for run_id in ("c", "d")] == [True, False]


async def test_existing_run_needs_no_slot_and_a_failed_start_frees_its_slot() -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=1)
    with pytest.raises(OSError, match="no answer"):
        async with quota.reserve("failed", cast(Runs, server)):
            raise OSError("no answer")
    assert await asyncio.gather(*(try_start(server, quota, "a") for _ in range(3))) == [True] * 3
    assert [await try_start(server, quota, run_id) for run_id in "ab"] == [True, False]


async def test_started_run_counts_once_after_the_server_lists_it() -> None:
    now = [0.0]
    server, quota = FakeServer(), RunQuota("ann", limit=3, clock=lambda: now[0])
    assert [await try_start(server, quota, run_id) for run_id in "ab"] == [True, True]
    server.update_list()
    now[0] = 60.0
    assert [await try_start(server, quota, run_id) for run_id in "cd"] == [True, False]
    assert server.open_runs == {*"abc"}


async def test_slow_count_of_runs_does_not_free_slots_of_newer_runs() -> None:
    now = [0.0]
    server, quota = FakeServer(), RunQuota("ann", limit=1, clock=lambda: now[0])
    slow_server = FakeServer()
    slow_server.may_count.clear()
    slow_server.open_runs = server.open_runs
    waiting_start = asyncio.create_task(try_start(slow_server, quota, "b"))
    await asyncio.sleep(0.001)
    assert await try_start(server, quota, "a")
    server.update_list()
    now[0] = 60.0
    assert not await try_start(server, quota, "c")
    slow_server.may_count.set()
    assert not await waiting_start


async def test_starts_do_not_wait_for_each_other_if_the_server_is_silent() -> None:
    server, quota = FakeServer(), RunQuota("ann", limit=3)
    server.may_count.clear()
    tasks = [asyncio.create_task(try_start(server, quota, f"run-{number}")) for number in range(5)]
    await asyncio.sleep(0.01)
    assert server.counted_owners == ["ann"] * 5
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
