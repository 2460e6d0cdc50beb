"""How many runs an owner may start at once."""

import asyncio
from typing import Any, cast

import pytest

from dagwright.client.runs import Runs
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.starts import Starts


class Server:
    """Runs of a server whose list is behind by as long as nobody calls `catch_up`."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.listed: set[str] = set()

    def catch_up(self) -> None:
        self.listed = {*self.open}

    async def open_runs_of(self, owner: str) -> set[str]:
        await asyncio.sleep(0)
        return {*self.listed}

    async def is_open(self, run: str) -> bool:
        return run in self.open

    is_there = is_open


async def started(server: Server, starts: Starts, run: str) -> bool:
    try:
        async with starts.room_for(run, cast(Runs, server)):
            await asyncio.sleep(0)
            server.open.add(run)
    except ApiError as error:
        return error.status != 429
    return True


async def test_of_many_that_come_at_once_no_more_start_than_may() -> None:
    server, starts = Server(), Starts("ann", most=3)
    found = await asyncio.gather(*(started(server, starts, f"run-{number}") for number in range(20)))
    assert sum(found) == len(server.open) == 3
    assert not await started(server, starts, "one more")


@pytest.mark.parametrize(("most", "words"), [(1, "may have 1 run at a time"), (2, "may have 2 runs at a time")])
async def test_owner_is_told_how_many_may_run(most: int, words: str) -> None:
    server, starts = Server(), Starts("ann", most=most)
    for number in range(most):
        await started(server, starts, f"run-{number}")
    with pytest.raises(ApiError, match=words):
        async with starts.room_for("one more", cast(Runs, server)):
            pass


@pytest.mark.parametrize("is_seen", [True, False])
async def test_run_that_has_ended_leaves_its_room_whether_or_not_it_was_listed(*, is_seen: bool) -> None:
    server, starts = Server(), Starts("ann", most=2)
    assert [await started(server, starts, run) for run in ("a", "b", "c")] == [True, True, False]
    if is_seen:
        server.catch_up()
        assert not await started(server, starts, "c")
    server.open.remove("a")
    if is_seen:
        server.catch_up()
    assert [await started(server, starts, run) for run in ("c", "d")] == [True, False]


async def test_run_that_is_there_or_starts_already_needs_no_room() -> None:
    server, starts = Server(), Starts("ann", most=1)
    assert await asyncio.gather(*(started(server, starts, "a") for _ in range(3))) == [True] * 3
    assert await started(server, starts, "a")
    assert not await started(server, starts, "b")


async def test_room_of_one_that_did_not_start_is_given_back() -> None:
    server, starts = Server(), Starts("ann", most=1)

    async def fails() -> Any:
        async with starts.room_for("a", cast(Runs, server)):
            raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        await fails()
    assert await started(server, starts, "b")


async def test_list_that_comes_late_makes_no_room_for_runs_that_a_newer_one_had() -> None:
    server, starts = Server(), Starts("ann", most=1)
    late = asyncio.Event()

    class Late(Server):
        async def open_runs_of(self, owner: str) -> set[str]:
            found = await super().open_runs_of(owner)
            await late.wait()
            return found

    slow = Late()
    slow.open = server.open
    waits = asyncio.create_task(started(slow, starts, "b"))
    await asyncio.sleep(0.001)
    assert await started(server, starts, "a")
    server.catch_up()
    assert not await started(server, starts, "c")
    late.set()
    assert not await waits


async def test_nobody_stands_in_line_for_a_server_that_does_not_answer() -> None:
    asked: list[str] = []

    class Silent(Server):
        async def open_runs_of(self, owner: str) -> set[str]:
            asked.append(owner)
            await asyncio.Event().wait()
            return set()

    starts = Starts("ann", most=3)
    starting = [asyncio.create_task(started(Silent(), starts, f"run-{number}")) for number in range(5)]
    await asyncio.sleep(0.01)
    assert asked == ["ann"] * 5
    for task in starting:
        task.cancel()
    await asyncio.gather(*starting, return_exceptions=True)
