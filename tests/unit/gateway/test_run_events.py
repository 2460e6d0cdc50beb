"""Ids of events, and what the events of a run are."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import BEGINNING, Offset
from dagwright.history.reader import TaskState
from dagwright.history.run_reader import RunView
from dagwright.history.run_subscriptions import RunUpdate, Told
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.looking import seen_before
from dagwright.interfaces.http.run_events import EventId, run_events
from tests.support.gateway import NamedEvent, named_events_of

VIEW = RunView("run-1", "first", "running", "A plan", None, {}, None, None, is_closed=False, offset=Offset(1, 5))


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("1-145", EventId(Told(Offset(1, 145)))),
        ("2-7w", EventId(Told(Offset(2, 7), has_marks=True))),
        ("1-9e", EventId(Told(Offset(1, 9)), is_end=True)),
        ("run-1/1-9e", EventId(Told(Offset(1, 9)), is_end=True, run="run-1")),
        ("a/b/1-9", EventId(Told(Offset(1, 9)), run="a/b")),
    ],
)
def test_id_is_read_as_it_was_told(text: str, id: EventId) -> None:
    assert (EventId.parse(text), str(id)) == (id, text)


@pytest.mark.parametrize("text", ["x", "1", "-", "0-1", "1-x", "1-1ew", "run-1/", "[DONE]", "1-" + "9" * 40])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="send the id of the last event"):
        EventId.parse(text)


def test_header_is_newer_than_the_address() -> None:
    assert seen_before(None, None) is None
    assert seen_before(" ", "") is None
    assert seen_before("1-9", "1-5") == EventId(Told(Offset(1, 9)))
    assert seen_before(None, "1-5") == EventId(Told(Offset(1, 5)))


def test_id_in_a_header_names_the_run_that_it_names_in_the_address() -> None:
    id = "l\u00e4uft/1-5"
    assert seen_before(id.encode().decode("latin-1"), None) == seen_before(None, id)


async def told(*updates: Any) -> list[NamedEvent]:
    async def coming() -> AsyncGenerator[RunUpdate, None]:
        for update in updates:
            if isinstance(update, Exception):
                raise update
            yield update

    return named_events_of("".join([text async for text in run_events(coming())]))


def update(view: RunView, **states: NodeStatus) -> RunUpdate:
    return RunUpdate(view, tuple(states), {name: TaskState(status, 1, None) for name, status in states.items()})


async def test_each_change_is_told_once_and_the_run_when_it_is_another() -> None:
    later = replace(VIEW, offset=Offset(1, 9))
    waiting = replace(VIEW, offset=Offset(1, 9), status="waiting", has_marks=True)
    found = await told(
        update(VIEW, a=NodeStatus.RUNNING),
        update(VIEW),
        update(later, a=NodeStatus.COMPLETED, b=NodeStatus.RUNNING),
        update(waiting),
    )
    assert [(each.id, each.name) for each in found] == [
        ("1-5", "nodes"),
        ("1-5", "run"),
        ("1-9", "nodes"),
        ("1-9w", "run"),
    ]
    assert found[2].content["nodes"] == [
        {"node_id": "a", "status": "completed", "attempts": 1},
        {"node_id": "b", "status": "running", "attempts": 1},
    ]
    assert found[3].content["status"] == "waiting"


async def test_end_says_how_and_is_the_last() -> None:
    error = {"code": "bad", "message": "It is."}
    closed = replace(VIEW, status="failed", is_closed=True, error=error)
    (run, end) = await told(update(closed))
    assert (run.name, end.name, end.id) == ("run", "end", "1-5e")
    assert (end.content["status"], end.content["error"]) == ("failed", {"node": None, **error})


async def test_what_goes_wrong_in_the_middle_is_told_without_an_id() -> None:
    wrong = ApiError(503, "away")
    found = await told(update(VIEW), wrong)
    assert [(each.id, each.name) for each in found] == [("1-5", "run"), (None, "error")]
    assert found[1].content["error"]["message"] == "away"
    with pytest.raises(ZeroDivisionError):
        await told(update(VIEW), ZeroDivisionError())


def test_what_was_told_is_a_text() -> None:
    assert [str(Told(BEGINNING)), str(Told.parse("3-4w"))] == ["1-0", "3-4w"]
    with pytest.raises(ValueError, match="is no offset"):
        Told.parse("w")


async def test_what_happens_at_one_moment_is_made_once_and_sent_as_one() -> None:
    shared: dict[Any, Any] = {}
    ended = replace(VIEW, status="completed", is_closed=True)
    moment = replace(update(ended, a=NodeStatus.COMPLETED), shared=shared)

    async def of_one_client() -> list[str]:
        async def coming() -> AsyncGenerator[RunUpdate, None]:
            yield moment

        return [text async for text in run_events(coming())]

    (first,), (second,) = await of_one_client(), await of_one_client()
    assert first is second
    assert [each.name for each in named_events_of(first)] == ["nodes", "run", "end"]
