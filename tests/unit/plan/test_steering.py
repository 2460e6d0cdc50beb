"""What people do to a running plan, without a server: pausing it, and how what they did is told."""

import math

from dagwright.plan.by import By
from dagwright.plan.carry import carry_of, restore
from dagwright.plan.deadline import Deadline
from dagwright.plan.errors import NodeError
from dagwright.plan.ready_queue import MAX_IN_FLIGHT
from dagwright.plan.run_state import Paused
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import RunStatus
from dagwright.plan.steering import Cancel, Pause, Resume, SetLimits, standing_notes, take
from tests.unit.plan.building import compiled, ids_of, node, plan_of, scheduler_of, started

ANN = By("ann", "too early")


def test_paused_run_starts_nothing_new_and_goes_on_when_it_is_resumed() -> None:
    scheduler = scheduler_of(node("a"), node("b", "a"))
    assert ids_of(started(scheduler)) == ["a"]

    assert take(Pause(ANN), scheduler, at=1.0) is None
    assert scheduler.status() is RunStatus.RUNNING
    scheduler.complete("a", 1, at=2.0)
    assert (ids_of(started(scheduler)), scheduler.status()) == ([], RunStatus.WAITING)
    assert standing_notes(scheduler) == [
        {"code": "paused", "node": None, "message": "nothing new starts: paused by ann"}
    ]

    assert take(Pause(), scheduler, at=3.0) == "the run is paused already, paused by ann: too early"
    scheduler.paused = Paused(2.0, None, None)
    assert take(Pause(), scheduler, at=3.0) == "the run is paused already"
    assert take(Resume(), scheduler, at=4.0) is None
    assert take(Resume(), scheduler, at=4.0) == "the run is not paused"
    assert (ids_of(started(scheduler)), standing_notes(scheduler)) == (["b"], [])


def test_paused_run_stays_paused_in_a_new_execution() -> None:
    scheduler = scheduler_of(node("a"))
    take(Pause(ANN), scheduler, at=1.0)
    following = Scheduler(scheduler.plan, {})
    restore(following, carry_of(scheduler))
    assert (following.paused, ids_of(started(following))) == (scheduler.paused, [])


def test_paused_run_can_be_cancelled() -> None:
    scheduler = scheduler_of(node("a"))
    take(Pause(ANN), scheduler, at=1.0)
    scheduler.cancel(2.0)
    assert scheduler.status() is RunStatus.CANCELLED
    assert take(Pause(ANN), scheduler, at=3.0) == "the run is being stopped"


def _limited(count: int) -> Scheduler:
    scheduler = Scheduler(compiled(plan_of(*(node(name) for name in "abcd"))), {}, max_in_flight=count)
    scheduler.changes.deadline = Deadline(10.0, 60.0)
    scheduler.begin(10.0)
    return scheduler


def test_limit_that_is_raised_lets_more_start_and_one_that_is_lowered_fewer() -> None:
    scheduler = _limited(1)
    assert ids_of(started(scheduler)) == ["a"]
    assert take(SetLimits(2), scheduler, at=11.0) is None
    assert ids_of(started(scheduler)) == ["b"]
    assert take(SetLimits(1), scheduler, at=12.0) is None
    scheduler.complete("a", 1, at=13.0)
    assert (ids_of(started(scheduler)), scheduler.in_flight) == ([], 1)
    scheduler.complete("b", 1, at=14.0)
    assert ids_of(started(scheduler)) == ["c"]
    assert take(SetLimits(MAX_IN_FLIGHT), scheduler, at=15.0) is None
    assert ids_of(started(scheduler)) == ["d"]


def test_deadline_that_was_changed_counts_from_the_start_and_says_who_set_it() -> None:
    scheduler = _limited(1)
    past = "a deadline counts from the start of the run, which was 10 s ago: give more than that"
    assert take(SetLimits(deadline_s=10.0), scheduler, at=20.0) == past
    assert take(SetLimits(deadline_s=15.0, by=ANN), scheduler, at=20.0) is None
    scheduler.expire(24.9)
    assert not scheduler.is_stopped
    following = Scheduler(scheduler.plan, {})
    following.changes.deadline = Deadline(10.0, 60.0)
    restore(following, carry_of(scheduler))
    following.expire(25.0)
    told = NodeError("deadline_exceeded", "the run took over its deadline of 15 s, set by ann")
    assert (following.error, following.max_in_flight) == (told, 1)
    assert take(SetLimits(deadline_s=math.inf), scheduler, at=21.0) is None
    scheduler.expire(1e9)
    assert (scheduler.is_stopped, scheduler.deadline.at) == (False, None)
    scheduler.cancel(30.0)
    assert take(SetLimits(2), scheduler, at=31.0) == "the run is being stopped"


def test_run_that_is_stopped_or_has_ended_is_not_cancelled() -> None:
    scheduler = _limited(500)
    for name in ids_of(started(scheduler)):
        scheduler.complete(name, 1, at=11.0)
    assert [take(act, scheduler, at=12.0) for act in (Cancel(), Pause(), SetLimits(2))] == ["the run has ended"] * 3
    assert scheduler.status() is RunStatus.COMPLETED
    scheduler = _limited(500)
    assert take(Cancel(ANN), scheduler, at=12.0) is None
    assert take(Cancel(), scheduler, at=12.0) == "the run is being stopped already"


def test_arguments_of_what_has_begun_are_told_as_they_are_shown() -> None:
    scheduler = scheduler_of(
        node("a", arguments={"x": "{{PLACEHOLDER_n}}", "key": "{{secret.KEY}}"}),
        node("b", arguments={"x": "{{a.result}}"}),
        node("each", for_each=[1, 2], arguments={"x": "{{item}}"}),
        inputs={"n": 1},
    )
    before = scheduler.arguments_told("b")
    tasks = {task.id for task in started(scheduler)}
    scheduler.complete("a", {"y": 2}, at=1.0)
    assert tasks == {"a", "each[0]", "each[1]"}
    assert before is None
    assert scheduler.arguments_told("a") == {"x": 1, "key": "{{secret.KEY}}"}
    assert scheduler.arguments_told("b") == {"x": {"y": 2}}
    assert [scheduler.arguments_told(name) for name in ("each", "each[1]", "none")] == [None, {"x": 2}, None]
