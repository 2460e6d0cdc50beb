"""Progress events of nodes: each is sent once, with the data at the time of the event."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.run_follower import RunMoment
from dagwright.core.model.states import NodeStatus, Record
from dagwright.history.moment_facts import TaskState, has_started
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.progress_events import ProgressEventBuilder
from dagwright.interfaces.http.request_fields import StreamProgress
from tests.support.scripted_run import approval_requests


def run_moment(
    state: TaskState, record: Record, *, status: str = "running", requests: tuple[str, ...] = ()
) -> RunMoment:
    node = SimpleNamespace(title="Sum", tool="calculator")
    scheduler: Any = SimpleNamespace(record_of=lambda _: record, state=SimpleNamespace(node_of=lambda _: node))
    view = RunView("run-1", "first", status, None, scheduler, {}, None, None, is_closed=False)
    return RunMoment(view, ("sum",), approval_requests(requests), {"sum": state})


def events_of(progress: ProgressEventBuilder, moment: RunMoment) -> list[tuple[str, Any]]:
    status_events = progress.status_events if moment.has_ended_or_waits else lambda _: ()
    all_events = [cast("Any", event) for source in (progress.events, status_events) for event in source(moment)]
    return [(event["type"], event["data"].get("result")) for event in all_events]


DONE_RECORD = Record(NodeStatus.COMPLETED, 3, attempts=1, started_at=1.0, ended_at=2.0)
READY_STATE, READY_RECORD = TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.READY)


def resumed_progress(first_stream: ProgressEventBuilder) -> ProgressEventBuilder:
    return ProgressEventBuilder("run-1", StreamProgress.PROGRESS, checksums=first_stream.checksums)


def test_node_is_reported_with_its_state_at_the_time_of_the_event() -> None:
    progress = ProgressEventBuilder("run-1", StreamProgress.FULL)
    running_moment = run_moment(TaskState(NodeStatus.RUNNING, 1, None), DONE_RECORD)
    assert events_of(progress, running_moment) == [("run.running", None), ("node.started", None)]
    assert events_of(progress, run_moment(TaskState(NodeStatus.COMPLETED, 1, None), DONE_RECORD)) == [
        ("node.completed", 3)
    ]


def test_run_is_reported_again_only_if_it_has_changed() -> None:
    waiting_moment = run_moment(READY_STATE, READY_RECORD, status="waiting", requests=("check",))
    first_stream = ProgressEventBuilder("run-1", StreamProgress.PROGRESS)
    request_events = [("feedback.requested", None), ("run.waiting", None)]
    assert events_of(first_stream, waiting_moment) == [("node.ready", None), *request_events]
    assert events_of(resumed_progress(first_stream), waiting_moment) == [("node.ready", None)]
    assert events_of(resumed_progress(first_stream), run_moment(READY_STATE, READY_RECORD))[:1] == [
        ("run.running", None)
    ]


def test_past_states_are_omitted_except_starts_and_ends() -> None:
    end_moment = run_moment(TaskState(NodeStatus.COMPLETED, 1, None), DONE_RECORD, status="completed")
    end_events = [("node.completed", None), ("run.completed", None)]
    assert events_of(ProgressEventBuilder("run-1", StreamProgress.PROGRESS), end_moment) == [
        ("node.started", None),
        *end_events,
    ]
    first_stream = ProgressEventBuilder("run-1", StreamProgress.PROGRESS)
    assert events_of(first_stream, run_moment(READY_STATE, READY_RECORD)) == [
        ("run.running", None),
        ("node.ready", None),
    ]
    resumed_stream = resumed_progress(first_stream)
    resumed_stream.started_tasks.add("sum")
    assert events_of(resumed_stream, end_moment) == end_events


def test_reported_state_is_not_repeated_with_a_new_request() -> None:
    request_events = [("feedback.requested", None)]
    first_stream = ProgressEventBuilder("run-1", StreamProgress.PROGRESS)
    assert events_of(first_stream, run_moment(READY_STATE, READY_RECORD))[:1] == [("run.running", None)]
    second_stream = resumed_progress(first_stream)
    assert events_of(second_stream, run_moment(READY_STATE, READY_RECORD, requests=("check",)))[1:] == request_events
    third_stream = resumed_progress(second_stream)
    assert events_of(third_stream, run_moment(READY_STATE, READY_RECORD))[1:] == []
    assert events_of(third_stream, run_moment(READY_STATE, READY_RECORD, requests=("check",)))[1:] == request_events


@pytest.mark.parametrize(
    ("state", "record", "expected"),
    [
        (TaskState(NodeStatus.PENDING, 0, None), Record(), False),
        (TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), False),
        (TaskState(NodeStatus.READY, 1, None), Record(NodeStatus.READY, attempts=1), True),
        (TaskState(NodeStatus.RUNNING, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), True),
        # Before an approval, the call has not started. A human node that waits for its answer has started.
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.WAITING), False),
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), False),
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.WAITING, started_at=1.0), True),
        (TaskState(NodeStatus.COMPLETED, 0, None), Record(NodeStatus.COMPLETED, started_at=1.0), True),
        (TaskState(NodeStatus.SKIPPED, 0, None), Record(NodeStatus.SKIPPED), False),
    ],
)
def test_start_of_a_task_depends_on_state_and_record(state: TaskState, record: Record, *, expected: bool) -> None:
    assert has_started(state, record) is expected
