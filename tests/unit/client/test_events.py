"""Events of the Python API from the states of a real scheduler, without a server."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.client.event_mapping import EventMapper, EventMoment, ReportedState, reported_state_at
from dagwright.client.event_stream import EventStream
from dagwright.client.events import CursorInvalid, EventCursor, FeedbackRequested, NodeEvent, RunEvent
from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import NodeError, NodeStatus
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.executions import Cursor
from dagwright.history.moment_facts import facts_of, states_of
from dagwright.history.queues import WaitMarks
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.run_view import HistorySnapshot, RunView
from dagwright.history.text_stream import TextMark
from tests.unit.interfaces.cli.views import START, node, start_ready, view_of

MAX_STEPS = 12


def description(event: RunEvent) -> str:
    return f"{event.type} {event.node_id}" if isinstance(event, NodeEvent) else event.type


def moment_of(view: RunView, *, hidden: Mapping[str, NodeStatus] | None = None) -> EventMoment:
    assert view.scheduler is not None
    states = states_of(view.scheduler)
    facts = facts_of(view.scheduler, states, history_statuses=hidden or {})
    status = view.scheduler.status().value
    return EventMoment(replace(view, status=status, ended_at=START + 99), states, facts)


def durable_of(mapper: EventMapper, view: RunView) -> list[str]:
    assert view.scheduler is not None
    actual = mapper.events(moment_of(view), is_closed=view.scheduler.is_finished)
    return [description(each) for each in actual.durable]


def mapper(reported: ReportedState | None = None) -> EventMapper:
    return EventMapper("run-1", None, reported or ReportedState())


class Walk:
    """A run of five nodes that a test advances one task at a time."""

    def __init__(self) -> None:
        self.view = view_of(node("a"), node("b"), node("c", "a", "b"), node("d", "c"), node("e", "a"))
        self.at = START

    @property
    def scheduler(self) -> RunScheduler:
        assert self.view.scheduler is not None
        return self.view.scheduler

    def step(self, choice: int, *, fails: bool) -> None:
        running = [task for task, state in states_of(self.scheduler).items() if state.status is NodeStatus.RUNNING]
        if not running:
            return
        self.at += 1
        task = running[choice % len(running)]
        if fails:
            self.scheduler.fail(task, NodeError("tool_failed", "no"), at=self.at)
        else:
            self.scheduler.complete(task, 1, at=self.at)
        while self.scheduler.next_task(self.at) is not None:
            pass

    def snapshot(self, event: int) -> HistorySnapshot:
        return HistorySnapshot(copy.deepcopy(self.scheduler), Cursor(1, event), self.scheduler.is_finished)


def test_end_of_a_node_precedes_the_start_of_its_dependents() -> None:
    walk, live = Walk(), mapper()
    assert durable_of(live, walk.view) == ["run.started", "node.started a", "node.started b"]
    walk.step(0, fails=False)
    walk.step(0, fails=True)
    expected = ["node.completed a", "node.started e", "node.failed b", "node.blocked c", "node.blocked d"]
    assert durable_of(live, walk.view) == expected
    walk.step(0, fails=False)
    assert durable_of(live, walk.view) == ["node.completed e", "run.completed"]
    assert durable_of(live, walk.view) == []


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=MAX_STEPS), stops=st.integers(0, MAX_STEPS))
def test_client_of_the_history_gets_the_events_of_a_live_client(steps: list[tuple[int, bool]], stops: int) -> None:
    walk, live = Walk(), mapper()
    durable_of(live, walk.view)
    later: EventMapper | None = None
    for number, (choice, fails) in enumerate(steps):
        if number == stops:
            later = mapper(reported_state_at(walk.snapshot(number + 1)))
        walk.step(choice, fails=fails)
        actual = durable_of(live, walk.view)
        if later is not None:
            assert durable_of(later, walk.view) == actual


def test_items_of_a_moment_are_in_the_order_of_their_numbers() -> None:
    view = view_of(node("m", for_each=[*range(12)]))
    live = mapper()
    items = [f"m[{number}]" for number in range(12)]
    started = ["run.started", "node.started m", *(f"node.started {item}" for item in items)]
    assert durable_of(live, view) == started
    assert view.scheduler is not None
    for item in reversed(items):
        view.scheduler.complete(item, 1, at=START + 1)
    ended = [f"node.completed {item}" for item in items]
    assert durable_of(live, view) == [*ended, "node.completed m", "run.completed"]


def test_requests_of_items_are_in_the_order_of_their_numbers() -> None:
    view = view_of({"id": "check", "human": {"type": "APPROVAL", "prompt": "Well?"}, "for_each": [*range(12)]})
    actual = mapper().events(moment_of(view), is_closed=False)
    requests = [each for each in actual.durable if isinstance(each, FeedbackRequested)]
    assert [request.node_id for request in requests] == [f"check[{number}]" for number in range(12)]


def test_request_is_open_until_the_run_has_its_answer() -> None:
    view = view_of({"id": "check", "human": {"type": "APPROVAL", "prompt": "Well?"}})
    before = moment_of(view)
    assert requested_in(before) == [("check", True)]
    assert view.scheduler is not None
    answer = Feedback("check", {"approved": True}, "ann")
    assert view.scheduler.features.feedback.answer(answer, at=START + 1) is None
    # A client that reads the events again receives the request of the earlier moment, and later also its answer.
    assert requested_in(before) == [("check", False)]
    later = moment_of(replace(view, opened_requests={**before.facts.open_requests}))
    assert requested_in(later) == [("check", False)]


def requested_in(moment: EventMoment) -> list[tuple[str | None, bool]]:
    actual = mapper().events(moment, is_closed=False).durable
    return [(each.node_id, each.is_open) for each in actual if isinstance(each, FeedbackRequested)]


def test_node_that_is_retried_starts_again() -> None:
    walk, live = Walk(), mapper()
    walk.step(0, fails=True)
    durable_of(live, walk.view)
    record = walk.scheduler.record_of("a")
    assert record is not None
    record.status = NodeStatus.READY
    assert durable_of(live, walk.view) == []
    record.status = NodeStatus.RUNNING
    assert durable_of(live, walk.view) == ["node.started a"]


def test_node_that_waits_for_a_worker_waits_and_resumes() -> None:
    view = view_of(node("a"))
    assert view.scheduler is not None
    live, marks = mapper(), WaitMarks()
    durable_of(live, view)
    marks.put(view.scheduler, {"a": "no worker serves its queue"})
    actual = live.events(moment_of(view, hidden=marks.history_statuses), is_closed=False)
    assert [description(each) for each in actual.after] == ["node.waiting a"]
    assert (actual.before, actual.durable) == ([], [])
    marks.clear()
    actual = live.events(moment_of(view), is_closed=False)
    assert ([description(each) for each in actual.before], actual.durable, actual.after) == (["node.resumed a"], [], [])
    start_ready(view.scheduler)


def test_live_events_of_a_moment_follow_the_starts_before_them() -> None:
    """A client that connects while a node waits receives the start of the run first."""
    view, marks = view_of(node("a")), WaitMarks()
    assert view.scheduler is not None
    start_ready(view.scheduler)
    marks.put(view.scheduler, {"a": "no worker serves its queue"})
    actual = mapper().events(moment_of(view, hidden=marks.history_statuses), is_closed=False)
    stream = EventStream(cast("Any", None), "run-1", run=None, after=EventCursor())
    events = [*stream._with_cursors(actual, SubscriptionCursor(Cursor(1, 7), has_marks=True))]
    assert [description(event) for event in events] == ["run.started", "node.started a", "node.waiting a"]
    assert events[1].cursor == events[2].cursor


def test_status_of_the_run_is_reported_when_it_changes() -> None:
    view = view_of(node("a"))
    live = mapper()
    for status, expected in (
        ("running", []),
        ("waiting", ["run.waiting"]),
        ("waiting", []),
        ("running", ["run.running"]),
    ):
        actual = live.events(moment_of(view)._replace(view=replace(view, status=status)), is_closed=False)
        assert [each.type for each in (*actual.before, *actual.after)] == expected


@pytest.mark.parametrize(
    "cursor",
    [
        EventCursor(),
        EventCursor(SubscriptionCursor(Cursor(2, 145), has_marks=True)),
        EventCursor(SubscriptionCursor(Cursor(1, 40)), SubscriptionCursor(Cursor(1, 45)), 3),
        EventCursor(SubscriptionCursor(Cursor(1, 40)), text=TextMark("archive/check#2~.x", 120, 0x1F)),
    ],
)
def test_cursor_is_written_and_parsed(cursor: EventCursor) -> None:
    assert EventCursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1", "1-", "-1--1", "0-1", "1-2.3", "1-2.1-1.1", "1-2.1-3"),
        *("1-2.1-3.0", "1-2.1-3.x", "1-2~1.zz.a", "1-2~1", "1-2~x"),
    ],
)
def test_text_that_is_not_a_cursor_is_rejected(text: str) -> None:
    with pytest.raises(CursorInvalid, match="is not a cursor"):
        EventCursor.parse(text)


def test_event_is_written_as_json() -> None:
    error = NodeError("tool_failed", "no")
    event = NodeEvent(
        type="node.failed", run_id="run-1", cursor="1-9", node_id="a", status=NodeStatus.FAILED, attempts=2, error=error
    )
    document: dict[str, Any] = event.to_json()
    assert document == {
        "type": "node.failed",
        "run_id": "run-1",
        "cursor": "1-9",
        "at": None,
        "node_id": "a",
        "status": "failed",
        "attempts": 2,
        "title": None,
        "tool": None,
        "reason": None,
        "error": {"code": "tool_failed", "message": "no", "retryable": False},
    }
