"""Events of a run, and their ids."""

from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import START, Cursor
from dagwright.history.run_subscriptions import RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.run_documents import event_cursor
from dagwright.interfaces.http.run_events import EventId, run_events
from tests.support.gateway import NamedEvent, named_events_of
from tests.unit.interfaces.http.conftest import async_updates, run_update

VIEW = RunView("run-1", "first", "running", "A plan", None, {}, None, None, is_closed=False, cursor=Cursor(1, 5))


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("1-145", EventId(SubscriptionCursor(Cursor(1, 145)))),
        ("2-7w", EventId(SubscriptionCursor(Cursor(2, 7), has_waiting_marks=True))),
        ("1-9e", EventId(SubscriptionCursor(Cursor(1, 9)), is_end=True)),
        ("run-1/1-9e", EventId(SubscriptionCursor(Cursor(1, 9)), is_end=True, run_id="run-1")),
        ("a/b/1-9", EventId(SubscriptionCursor(Cursor(1, 9)), run_id="a/b")),
    ],
)
def test_sent_event_id_can_be_parsed(text: str, id: EventId) -> None:
    assert (EventId.parse(text), str(id)) == (id, text)


@pytest.mark.parametrize("text", ["x", "1", "-", "0-1", "1-x", "1-1ew", "run-1/", "[DONE]", "1-" + "9" * 40])
def test_invalid_event_id_is_rejected(text: str) -> None:
    with pytest.raises(ApiError, match="send the id of the last received event"):
        EventId.parse(text)


def test_header_takes_precedence_over_the_parameter() -> None:
    assert (event_cursor(None, None), event_cursor(" ", "")) == (None, None)
    assert event_cursor("1-9", "1-5") == EventId(SubscriptionCursor(Cursor(1, 9)))
    assert event_cursor(None, "1-5") == EventId(SubscriptionCursor(Cursor(1, 5)))
    id = "l\u00e4uft/1-5"
    assert event_cursor(id.encode().decode("latin-1"), None) == event_cursor(None, id)


async def texts_of(*updates: RunUpdate | Exception) -> list[str]:
    return [text async for text in run_events(async_updates(*updates))]


async def events_of(*updates: RunUpdate | Exception) -> list[NamedEvent]:
    return named_events_of("".join(await texts_of(*updates)))


async def test_each_changed_node_is_sent_once_and_the_run_only_when_its_status_changes() -> None:
    later_view = replace(VIEW, cursor=Cursor(1, 9))
    waiting_view = replace(later_view, status="waiting", has_waiting_marks=True)
    first_update = run_update(VIEW, a=NodeStatus.RUNNING)
    second_update = run_update(later_view, a=NodeStatus.COMPLETED, b=NodeStatus.RUNNING)
    events = await events_of(first_update, run_update(VIEW), second_update, run_update(waiting_view))
    first_ids_and_names = [
        (None, "node.started"),
        ("1-5", "run.running"),
        (None, "node.completed"),
        ("1-9", "node.started"),
    ]
    assert [(event.id, event.name) for event in events] == [*first_ids_and_names, ("1-9w", "run.waiting")]
    fields = {"run_id": "run-1", "attempts": 1}
    assert events[2].content == {**fields, "node_id": "a", "status": "completed"}
    assert events[3].content == {**fields, "node_id": "b", "status": "running"}
    assert events[4].content["status"] == "waiting"


async def test_end_event_has_status_and_error_and_an_error_event_has_no_id() -> None:
    error = {"code": "bad", "message": "It is."}
    (end_event,) = await events_of(run_update(replace(VIEW, status="failed", is_closed=True, error=error)))
    assert (end_event.name, end_event.id) == ("run.failed", "1-5e")
    assert (end_event.content["status"], end_event.content["error"]) == ("failed", {"node_id": None, **error})
    events = await events_of(run_update(VIEW), ApiError(ErrorCode.SERVER_UNAVAILABLE, "away"))
    assert [(event.id, event.name) for event in events] == [("1-5", "run.running"), (None, "error")]
    assert events[1].content["error"]["message"] == "away"
    with pytest.raises(ZeroDivisionError):
        await events_of(run_update(VIEW), ZeroDivisionError())


def test_subscription_cursor_is_converted_to_text_and_back() -> None:
    assert [str(SubscriptionCursor(START)), str(SubscriptionCursor.parse("3-4w"))] == ["1-0", "3-4w"]
    with pytest.raises(ValueError, match="is not a cursor"):
        SubscriptionCursor.parse("w")


async def test_events_of_a_moment_are_encoded_once_for_all_clients() -> None:
    shared_values: dict[Any, Any] = {}
    ended_view = replace(VIEW, status="completed", is_closed=True)
    shared_update = replace(run_update(ended_view, a=NodeStatus.COMPLETED), derived_values=shared_values)

    (first_text,), (second_text,) = await texts_of(shared_update), await texts_of(shared_update)
    assert first_text is second_text
    assert [event.name for event in named_events_of(first_text)] == ["node.completed", "run.completed"]
