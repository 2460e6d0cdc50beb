"""What a client is told of the nodes of a run: each once, and what belongs to the moment that is told."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.following import RunMoment
from dagwright.core.model.states import NodeStatus, Record
from dagwright.history.reader import TaskState, has_begun
from dagwright.history.run_reader import RunView
from dagwright.interfaces.http.bodies import Shown
from dagwright.interfaces.http.progress import Progress
from tests.support.told_run import requests_named


def moment(state: TaskState, record: Record, *, status: str = "running", asked: tuple[str, ...] = ()) -> RunMoment:
    node = SimpleNamespace(title="Sum", tool="calculator")
    scheduler: Any = SimpleNamespace(record_of=lambda _: record, node_of=lambda _: node)
    view = RunView("run-1", "first", status, None, scheduler, {}, None, None, is_closed=False)
    return RunMoment(view, ("sum",), requests_named(asked), {"sum": state})


def told(progress: Progress, moment: RunMoment) -> list[tuple[str, Any]]:
    behind = progress.of_run if moment.is_last else lambda _: ()
    events = [cast("Any", each) for told in (progress.events, behind) for each in told(moment)]
    return [(each["type"], each["data"].get("result")) for each in events]


def test_node_is_told_as_it_was_though_the_scheduler_is_ahead() -> None:
    done = Record(NodeStatus.COMPLETED, 3, attempts=1, started_at=1.0, ended_at=2.0)
    progress = Progress("run-1", Shown.FULL)
    running = moment(TaskState(NodeStatus.RUNNING, 1, None), done)
    assert told(progress, running) == [("run_running", None), ("node_started", None)]
    completed = moment(TaskState(NodeStatus.COMPLETED, 1, None), done)
    assert told(progress, completed) == [("node_completed", 3)]


def test_run_as_a_whole_is_told_again_only_if_it_is_another() -> None:
    state, record = TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.READY)
    waits = moment(state, record, status="waiting", asked=("check",))
    before = Progress("run-1", Shown.PROGRESS)
    asked = [("human_feedback_requested", None), ("run_waiting", None)]
    assert told(before, waits) == [("node_ready", None), *asked]
    assert told(Progress("run-1", Shown.PROGRESS, standing=before.standing), waits) == [("node_ready", None)]
    runs = moment(state, record)
    assert told(Progress("run-1", Shown.PROGRESS, standing=before.standing), runs)[:1] == [("run_running", None)]


def test_states_that_have_passed_are_left_out_and_starts_and_ends_are_not() -> None:
    done = Record(NodeStatus.COMPLETED, 3, attempts=1, started_at=1.0, ended_at=2.0)
    ended = moment(TaskState(NodeStatus.COMPLETED, 1, None), done, status="completed")
    lasting = [("node_completed", None), ("run_completed", None)]
    assert told(Progress("run-1", Shown.PROGRESS), ended) == [("node_started", None), *lasting]
    looking = Progress("run-1", Shown.PROGRESS)
    waiting = moment(TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.READY))
    assert told(looking, waiting) == [("run_running", None), ("node_ready", None)]
    goes_on = Progress("run-1", Shown.PROGRESS, standing=looking.standing)
    goes_on.started.add("sum")
    assert told(goes_on, ended) == lasting


def test_state_that_was_told_before_a_break_is_not_told_again_with_what_is_asked_meanwhile() -> None:
    state, record = TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.READY)
    before = Progress("run-1", Shown.PROGRESS)
    assert told(before, moment(state, record))[:1] == [("run_running", None)]
    later = Progress("run-1", Shown.PROGRESS, standing=before.standing)
    assert told(later, moment(state, record, asked=("check",)))[1:] == [("human_feedback_requested", None)]
    answered = Progress("run-1", Shown.PROGRESS, standing=later.standing)
    assert told(answered, moment(state, record))[1:] == []
    assert told(answered, moment(state, record, asked=("check",)))[1:] == [("human_feedback_requested", None)]


@pytest.mark.parametrize(
    ("state", "record", "begun"),
    [
        (TaskState(NodeStatus.PENDING, 0, None), Record(), False),
        (TaskState(NodeStatus.READY, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), False),
        (TaskState(NodeStatus.READY, 1, None), Record(NodeStatus.READY, attempts=1), True),
        (TaskState(NodeStatus.RUNNING, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), True),
        # An approval is asked for before the call, an answer in its place.
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.WAITING), False),
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.RUNNING, started_at=1.0), False),
        (TaskState(NodeStatus.WAITING, 0, None), Record(NodeStatus.WAITING, started_at=1.0), True),
        (TaskState(NodeStatus.COMPLETED, 0, None), Record(NodeStatus.COMPLETED, started_at=1.0), True),
        (TaskState(NodeStatus.SKIPPED, 0, None), Record(NodeStatus.SKIPPED), False),
    ],
)
def test_start_of_a_node_is_told_from_the_same_facts_before_and_after_a_break(
    state: TaskState, record: Record, *, begun: bool
) -> None:
    assert has_begun(state, record) is begun
