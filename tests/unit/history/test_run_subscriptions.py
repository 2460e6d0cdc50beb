"""`RunSubscriptions` without a server: updates for clients that reconnect, and readers that lag."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pytest

from dagwright.core.model.states import NodeStatus
from dagwright.history import run_subscriptions
from dagwright.history.executions import START, Cursor
from dagwright.history.moment_facts import MomentFacts, TaskFacts, TaskState
from dagwright.history.run_reader import RunReader
from dagwright.history.run_subscriptions import RunSubscriptions, RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView

COMPLETED, RUNNING, WAITING = NodeStatus.COMPLETED, NodeStatus.RUNNING, NodeStatus.WAITING
Statuses = Mapping[str, NodeStatus]
NO_TASK_FACTS = TaskFacts(0, None, COMPLETED, None, "", None, None, None)


def view(event_id: int, *, is_closed: bool = False, has_waiting_marks: bool = False, **statuses: NodeStatus) -> RunView:
    """Return the view of a run at an event, with task states instead of a scheduler."""
    status, scheduler = "completed" if is_closed else "running", cast("Any", _tasks(statuses))
    fields: Any = {"is_closed": is_closed, "cursor": Cursor(1, event_id), "has_waiting_marks": has_waiting_marks}
    return RunView("run-1", "first", status, None, scheduler, {}, None, None, **fields)


def _tasks(statuses: Statuses) -> dict[str, TaskState]:
    return {name: TaskState(status, 1, None) for name, status in statuses.items()}


class FakeReader:
    """Reader that returns views.

    Args:
        known_statuses: statuses of the tasks at `reached_cursor`.
    """

    def __init__(self, views: Sequence[RunView], known_statuses: Statuses, *, reached_cursor: Cursor) -> None:
        self._views = views
        self._known_statuses = known_statuses
        self._reached_cursor = reached_cursor

    async def states_and_cursor_at(self, _: Cursor) -> tuple[Mapping[str, TaskState], Cursor]:
        return _tasks(self._known_statuses), self._reached_cursor

    async def follow(self) -> AsyncGenerator[RunView, None]:
        for view in self._views:
            yield view
            # Let every subscriber receive this view.
            for _ in range(5):
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def use_states_as_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_subscriptions, "states_of", lambda states: dict(states or {}))
    monkeypatch.setattr(
        run_subscriptions, "facts_of", lambda _, changed, **__: MomentFacts(dict.fromkeys(changed, NO_TASK_FACTS))
    )


def subscriptions_to(
    views: Sequence[RunView], known_statuses: Statuses | None = None, *, reached_cursor: Cursor = START
) -> RunSubscriptions:
    reader = FakeReader(views, known_statuses or {}, reached_cursor=reached_cursor)
    return RunSubscriptions(lambda _: cast("RunReader", reader))


async def updates_of(
    *views: RunView,
    after: Cursor | SubscriptionCursor | None = None,
    known_statuses: Statuses | None = None,
    reached_cursor: Cursor = START,
) -> list[RunUpdate]:
    subscriptions = subscriptions_to(views, known_statuses, reached_cursor=reached_cursor)
    return [update async for update in subscriptions.subscribe("run-1", after=after)]


async def test_update_has_the_changed_states_at_its_position() -> None:
    updates = await updates_of(
        view(5, a=RUNNING), view(9, a=COMPLETED, b=RUNNING), view(12, is_closed=True, a=COMPLETED, b=COMPLETED)
    )
    assert [
        (str(update.position), {name: state.status for name, state in update.states.items()}) for update in updates
    ] == [
        ("1-5", {"a": RUNNING}),
        ("1-9", {"a": COMPLETED, "b": RUNNING}),
        ("1-12", {"b": COMPLETED}),
    ]


async def test_slow_subscriber_receives_the_final_update() -> None:
    subscriptions = subscriptions_to([view(5, a=RUNNING), view(9, is_closed=True, a=COMPLETED)])
    positions = []
    async for update in subscriptions.subscribe("run-1"):
        positions.append(str(update.position))
        for _ in range(20):
            await asyncio.sleep(0)
    assert positions == ["1-5", "1-9"]


async def test_lagging_reader_sends_no_changes_that_the_client_already_has() -> None:
    final_statuses: Any = {"a": COMPLETED, "b": COMPLETED}
    views = (
        view(3, a=RUNNING),
        view(6, a=COMPLETED, b=RUNNING),
        view(9, **final_statuses),
        view(11, is_closed=True, **final_statuses),
    )
    updates = await updates_of(*views, after=Cursor(1, 9), known_statuses=final_statuses, reached_cursor=Cursor(1, 9))
    assert [(str(update.position), update.changed_ids) for update in updates] == [("1-9", ()), ("1-11", ())]


async def test_state_of_a_call_that_waited_for_a_worker_is_sent_again() -> None:
    # The client received `waiting` for `a` because of a wait mark. In the history, `a` was running, as it is now.
    views = (view(5, is_closed=True, a=RUNNING, b=COMPLETED),)
    known_statuses = {"a": RUNNING, "b": COMPLETED}
    for has_waiting_marks, expected_ids in ((True, ("a",)), (False, ())):
        after = SubscriptionCursor(Cursor(1, 5), has_waiting_marks=has_waiting_marks)
        updates = await updates_of(*views, after=after, known_statuses=known_statuses, reached_cursor=Cursor(1, 5))
        assert [update.changed_ids for update in updates] == [expected_ids]
    updates = await updates_of(view(5, has_waiting_marks=True, a=WAITING), view(5, is_closed=True, a=COMPLETED))
    assert [str(update.position) for update in updates] == ["1-5w", "1-5"]


async def test_derived_value_of_an_update_is_computed_once() -> None:
    subscriptions = subscriptions_to([view(5, a=RUNNING), view(9, is_closed=True, a=COMPLETED)])
    computed_positions: list[str] = []

    def compute(update: RunUpdate) -> str:
        computed_positions.append(str(update.position))
        return computed_positions[-1]

    async def watch() -> list[str]:
        updates = subscriptions.subscribe("run-1")
        return [update.derive_once("words", partial(compute, update)) async for update in updates]

    assert await asyncio.gather(*(watch() for _ in range(20))) == [["1-5", "1-9"]] * 20
    assert computed_positions == ["1-5", "1-9"]


def test_invalid_cursor_is_rejected_and_cursors_are_ordered() -> None:
    for text in ("", "1", "0-1", "-1-2", "1-", "1-x", "1.5-2", "1-2-3", "٣-x", "9" * 40 + "-1"):
        with pytest.raises(ValueError, match="is not a cursor; a cursor looks like 1-145"):
            Cursor.parse(text)
    cursors = [Cursor(2, 1), Cursor(1, 30), Cursor(1, 4)]
    assert sorted(cursors) == [Cursor(1, 4), Cursor(1, 30), Cursor(2, 1)]
