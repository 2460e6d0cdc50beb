"""`RunFeeds` without a server: what a subscriber is told who comes back, also to a reader that lags behind."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.core.model.states import NodeStatus
from dagwright.history import run_subscriptions
from dagwright.history.executions import BEGINNING, Offset
from dagwright.history.reader import TaskState
from dagwright.history.run_reader import RunFeed, RunView
from dagwright.history.run_subscriptions import RunFeeds, RunUpdate, Told

DONE, RUNS, WAITS = NodeStatus.COMPLETED, NodeStatus.RUNNING, NodeStatus.WAITING
States = Mapping[str, NodeStatus]


def view(event: int, *, is_closed: bool = False, has_marks: bool = False, **states: NodeStatus) -> RunView:
    """Returns a run at an event; its states stand where its scheduler would."""
    return RunView(
        "run-1",
        "first",
        "completed" if is_closed else "running",
        None,
        cast(Any, _tasks(states)),
        {},
        None,
        None,
        is_closed=is_closed,
        offset=Offset(1, event),
        has_marks=has_marks,
    )


def _tasks(states: States) -> dict[str, TaskState]:
    return {name: TaskState(status, 1, None) for name, status in states.items()}


class Feed:
    """A feed that shows what it is given, one view after the other."""

    def __init__(self, views: Sequence[RunView], seen: States, *, reached: Offset) -> None:
        self._views = views
        self._seen = seen
        self._reached = reached

    async def seen_at(self, _: Offset) -> tuple[Mapping[str, TaskState], Offset]:
        return _tasks(self._seen), self._reached

    async def follow(self) -> AsyncGenerator[RunView, None]:
        for each in self._views:
            yield each
            # Whoever looks is told of each.
            for _ in range(5):
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def states_are_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_subscriptions, "states_of", lambda states: dict(states or {}))


async def told(
    *views: RunView, after: Offset | Told | None = None, seen: States | None = None, reached: Offset = BEGINNING
) -> list[RunUpdate]:
    feeds = RunFeeds(lambda _: cast(RunFeed, Feed(views, seen or {}, reached=reached)))
    return [update async for update in feeds.subscribe("run-1", after=after)]


async def test_states_are_those_of_the_moment_that_is_told() -> None:
    updates = await told(view(5, a=RUNS), view(9, a=DONE, b=RUNS), view(12, is_closed=True, a=DONE, b=DONE))
    assert [(str(each.told), {name: state.status for name, state in each.states.items()}) for each in updates] == [
        ("1-5", {"a": RUNS}),
        ("1-9", {"a": DONE, "b": RUNS}),
        ("1-12", {"b": DONE}),
    ]


async def test_reader_that_lags_behind_what_was_seen_tells_nothing_until_it_has_caught_up() -> None:
    views = view(3, a=RUNS), view(6, a=DONE, b=RUNS), view(9, a=DONE, b=DONE), view(11, is_closed=True, a=DONE, b=DONE)
    updates = await told(*views, after=Offset(1, 9), seen={"a": DONE, "b": DONE}, reached=Offset(1, 9))
    assert [each.changed for each in updates] == [(), ()]
    assert [str(each.told) for each in updates] == ["1-9", "1-11"]


async def test_place_that_was_never_reached_is_not_waited_for() -> None:
    views = view(3, a=RUNS), view(6, is_closed=True, a=DONE)
    updates = await told(*views, after=Offset(1, 999), seen={"a": RUNS}, reached=Offset(1, 3))
    assert [each.changed for each in updates] == [(), ("a",)]


async def test_calls_that_waited_for_a_worker_are_told_again_for_no_event_tells_of_them() -> None:
    # The client saw that `a` waits; in the history it runs, and now it does.
    views = (view(5, is_closed=True, a=RUNS, b=DONE),)
    seen = {"a": RUNS, "b": DONE}
    marked = await told(*views, after=Told(Offset(1, 5), has_marks=True), seen=seen, reached=Offset(1, 5))
    plain = await told(*views, after=Told(Offset(1, 5)), seen=seen, reached=Offset(1, 5))
    assert [each.changed for each in marked] == [("a",)]
    assert [each.changed for each in plain] == [()]


async def test_id_says_that_calls_wait_for_a_worker() -> None:
    updates = await told(view(5, has_marks=True, a=WAITS), view(5, is_closed=True, a=DONE))
    assert [str(each.told) for each in updates] == ["1-5w", "1-5"]


async def test_what_subscribers_make_of_a_moment_is_made_once() -> None:
    feeds = RunFeeds(
        lambda _: cast(RunFeed, Feed([view(5, a=RUNS), view(9, is_closed=True, a=DONE)], {}, reached=BEGINNING))
    )
    made: list[str] = []

    def make(update: RunUpdate) -> str:
        made.append(str(update.told))
        return made[-1]

    async def watch() -> list[str]:
        return [update.once("words", partial(make, update)) async for update in feeds.subscribe("run-1")]

    assert await asyncio.gather(*(watch() for _ in range(20))) == [["1-5", "1-9"]] * 20
    assert made == ["1-5", "1-9"]


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_offset_is_read_as_it_was_written(run: int, event: int) -> None:
    assert Offset.parse(str(Offset(run, event))) == Offset(run, event)


@pytest.mark.parametrize("text", ["", "1", "0-1", "-1-2", "1-", "1-x", "1.5-2", "1-2-3", "٣-x", "9" * 40 + "-1"])
def test_text_that_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no offset; one looks like 1-145"):
        Offset.parse(text)


def test_offsets_are_in_the_order_of_the_run() -> None:
    offsets = [Offset(2, 1), Offset(1, 30), Offset(1, 4)]
    assert sorted(offsets) == [Offset(1, 4), Offset(1, 30), Offset(2, 1)]
