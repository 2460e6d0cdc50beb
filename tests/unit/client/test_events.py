"""Events of the Python API from the states of a real scheduler, without a server.

Durable events depend only on the history of a run.
Live events, such as `node.waiting`, depend on when the history is read.
"""

import copy
from collections.abc import Iterable, Mapping
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
from dagwright.history.executions import Cursor
from dagwright.history.moment_facts import facts_of, states_of
from dagwright.history.queues import WaitMarks
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.run_view import HistorySnapshot, RunView
from dagwright.history.text_stream import TextMark
from tests.support.plan_building import node
from tests.unit.interfaces.cli.views import START, scheduler_of, view_of

MAX_STEPS = 12


def descriptions(events: Iterable[RunEvent]) -> list[str]:
    return [f"{event.type} {event.node_id}" if isinstance(event, NodeEvent) else event.type for event in events]


def moment_of(view: RunView, *, history_statuses: Mapping[str, NodeStatus] | None = None) -> EventMoment:
    scheduler = scheduler_of(view)
    states = states_of(scheduler)
    facts = facts_of(scheduler, states, history_statuses=history_statuses or {})
    return EventMoment(replace(view, status=scheduler.status().value, ended_at=START + 99), states, facts)


def durable_events(event_mapper: EventMapper, view: RunView) -> list[str]:
    actual = event_mapper.events(moment_of(view), is_closed=scheduler_of(view).is_finished)
    return descriptions(actual.durable)


def new_mapper(reported_state: ReportedState | None = None) -> EventMapper:
    return EventMapper("run-1", None, reported_state or ReportedState())


class SteppedRun:
    """A run of five nodes that a test advances one task at a time."""

    def __init__(self) -> None:
        self.view = view_of(node("a"), node("b"), node("c", "a", "b"), node("d", "c"), node("e", "a"))
        self.scheduler = scheduler_of(self.view)
        self.now = START

    def step(self, choice: int, *, fails: bool) -> None:
        states = states_of(self.scheduler)
        running_tasks = [task for task, state in states.items() if state.status is NodeStatus.RUNNING]
        if not running_tasks:
            return
        self.now += 1
        task = running_tasks[choice % len(running_tasks)]
        if fails:
            self.scheduler.fail(task, NodeError("tool_failed", "no"), at=self.now)
        else:
            self.scheduler.complete(task, 1, at=self.now)
        while self.scheduler.next_task(self.now) is not None:
            pass

    def snapshot(self, event: int) -> HistorySnapshot:
        return HistorySnapshot(copy.deepcopy(self.scheduler), Cursor(1, event), self.scheduler.is_finished)


def test_end_of_a_node_precedes_the_start_of_its_dependents() -> None:
    stepped_run, live_mapper = SteppedRun(), new_mapper()
    assert durable_events(live_mapper, stepped_run.view) == ["run.started", "node.started a", "node.started b"]
    stepped_run.step(0, fails=False)
    stepped_run.step(0, fails=True)
    expected = ["node.completed a", "node.started e", "node.failed b", "node.blocked c", "node.blocked d"]
    assert durable_events(live_mapper, stepped_run.view) == expected
    stepped_run.step(0, fails=False)
    assert durable_events(live_mapper, stepped_run.view) == ["node.completed e", "run.completed"]
    assert durable_events(live_mapper, stepped_run.view) == []


@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=MAX_STEPS),
    connects_at=st.integers(0, MAX_STEPS),
)
def test_client_that_connects_during_a_run_gets_the_same_events_from_then_on(
    steps: list[tuple[int, bool]], connects_at: int
) -> None:
    stepped_run, live_mapper = SteppedRun(), new_mapper()
    durable_events(live_mapper, stepped_run.view)
    later_mapper: EventMapper | None = None
    for number, (choice, fails) in enumerate(steps):
        if number == connects_at:
            later_mapper = new_mapper(reported_state_at(stepped_run.snapshot(number + 1)))
        stepped_run.step(choice, fails=fails)
        actual = durable_events(live_mapper, stepped_run.view)
        if later_mapper is not None:
            assert durable_events(later_mapper, stepped_run.view) == actual


def test_item_events_of_one_moment_are_in_item_order() -> None:
    view = view_of(node("m", for_each=[*range(12)]))
    live_mapper = new_mapper()
    items = [f"m[{number}]" for number in range(12)]
    start_events = ["run.started", "node.started m", *(f"node.started {item}" for item in items)]
    assert durable_events(live_mapper, view) == start_events
    for item in reversed(items):
        scheduler_of(view).complete(item, 1, at=START + 1)
    end_events = [f"node.completed {item}" for item in items]
    assert durable_events(live_mapper, view) == [*end_events, "node.completed m", "run.completed"]


def test_item_requests_are_in_item_order() -> None:
    view = view_of({"id": "check", "human": {"type": "APPROVAL", "prompt": "Well?"}, "for_each": [*range(12)]})
    actual = new_mapper().events(moment_of(view), is_closed=False)
    requests = [each for each in actual.durable if isinstance(each, FeedbackRequested)]
    assert [request.node_id for request in requests] == [f"check[{number}]" for number in range(12)]


def test_request_is_open_until_it_is_answered() -> None:
    view = view_of({"id": "check", "human": {"type": "APPROVAL", "prompt": "Well?"}})
    open_moment = moment_of(view)
    assert requests_in(open_moment) == [("check", True)]
    answer = Feedback("check", {"approved": True}, "ann")
    assert scheduler_of(view).features.feedback.answer(answer, at=START + 1) is None
    # If a client reads the events again, the request is not open at either moment, because it was answered.
    assert requests_in(open_moment) == [("check", False)]
    answered_moment = moment_of(replace(view, opened_requests={**open_moment.facts.open_requests}))
    assert requests_in(answered_moment) == [("check", False)]


def requests_in(moment: EventMoment) -> list[tuple[str | None, bool]]:
    actual = new_mapper().events(moment, is_closed=False).durable
    return [(each.node_id, each.is_open) for each in actual if isinstance(each, FeedbackRequested)]


def test_node_that_is_retried_starts_again() -> None:
    stepped_run, live_mapper = SteppedRun(), new_mapper()
    stepped_run.step(0, fails=True)
    durable_events(live_mapper, stepped_run.view)
    record = stepped_run.scheduler.record_of("a")
    assert record is not None
    record.status = NodeStatus.READY
    assert durable_events(live_mapper, stepped_run.view) == []
    record.status = NodeStatus.RUNNING
    assert durable_events(live_mapper, stepped_run.view) == ["node.started a"]


def test_call_without_a_worker_is_reported_as_waiting_then_resumed() -> None:
    view = view_of(node("a"))
    live_mapper = new_mapper()
    marks = WaitMarks()
    durable_events(live_mapper, view)
    marks.put(scheduler_of(view), {"a": "no worker serves its queue"})
    actual = live_mapper.events(moment_of(view, history_statuses=marks.history_statuses), is_closed=False)
    assert (actual.before, actual.durable, descriptions(actual.after)) == ([], [], ["node.waiting a"])
    marks.clear()
    actual = live_mapper.events(moment_of(view), is_closed=False)
    assert (descriptions(actual.before), actual.durable, actual.after) == (["node.resumed a"], [], [])


def test_live_events_follow_the_durable_events_of_their_moment() -> None:
    """A client that connects while a node waits receives the start events first."""
    view, marks = view_of(node("a")), WaitMarks()
    marks.put(scheduler_of(view), {"a": "no worker serves its queue"})
    actual = new_mapper().events(moment_of(view, history_statuses=marks.history_statuses), is_closed=False)
    stream = EventStream(cast("Any", None), "run-1", run=None, after=EventCursor())
    events = [*stream._with_cursors(actual, SubscriptionCursor(Cursor(1, 7), has_waiting_marks=True))]
    assert descriptions(events) == ["run.started", "node.started a", "node.waiting a"]
    assert events[1].cursor == events[2].cursor


def test_status_of_the_run_is_reported_when_it_changes() -> None:
    view, live_mapper = view_of(node("a")), new_mapper()
    reported_types = []
    for status in ("running", "waiting", "waiting", "running"):
        actual = live_mapper.events(moment_of(view)._replace(view=replace(view, status=status)), is_closed=False)
        reported_types.append([each.type for each in (*actual.before, *actual.after)])
    assert reported_types == [[], ["run.waiting"], [], ["run.running"]]


@pytest.mark.parametrize(
    "cursor",
    [
        EventCursor(),
        EventCursor(SubscriptionCursor(Cursor(2, 145), has_waiting_marks=True)),
        EventCursor(SubscriptionCursor(Cursor(1, 40)), SubscriptionCursor(Cursor(1, 45)), 3),
        EventCursor(SubscriptionCursor(Cursor(1, 40)), text=TextMark("archive/check#2~.x", 120, 0x1F)),
    ],
)
def test_formatted_cursor_is_parsed_to_the_same_cursor(cursor: EventCursor) -> None:
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


def test_event_is_serialized_as_json() -> None:
    error = NodeError("tool_failed", "no")
    event = NodeEvent(
        type="node.failed", run_id="run-1", cursor="1-9", node_id="a", status=NodeStatus.FAILED, attempts=2, error=error
    )
    assert event.to_json() == {
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
