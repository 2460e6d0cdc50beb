"""What a run says that ends at its deadline: what ran and what waited."""

from dagwright.plan.by import By
from dagwright.plan.deadline import Deadline
from dagwright.plan.errors import NodeError
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import NodeStatus
from dagwright.plan.steering import Pause, take
from tests.unit.plan.building import node, scheduler_of, started


def _at_its_deadline(scheduler: Scheduler) -> NodeError | None:
    scheduler.changes.deadline = Deadline(0.0, 60.0)
    scheduler.expire(60.0)
    return scheduler.error


def test_run_at_its_deadline_says_what_ran_and_what_waited() -> None:
    human = {"type": "CLARIFICATION", "prompt": "Which\ntown?", "assignee": "ann"}
    scheduler = scheduler_of(
        node("slow"), node("ask", human=human), node("m", for_each=[1, 2, 3]), node("after", "slow")
    )
    started(scheduler)

    told = (
        "the run took over its deadline; still running: slow, m[0], m[1], 1 more; "
        "waiting: ask (waits for ann: Which town?)"
    )
    assert _at_its_deadline(scheduler) == NodeError("deadline_exceeded", told)
    after = scheduler.record_of("after")
    assert after is not None
    assert (after.status, after.reason) == (NodeStatus.CANCELLED, "the run took over its deadline")


def test_run_that_was_paused_at_its_deadline_says_so() -> None:
    scheduler = scheduler_of(node("a"))
    take(Pause(By("ann")), scheduler, at=1.0)

    assert _at_its_deadline(scheduler) == NodeError(
        "deadline_exceeded", "the run took over its deadline; it was paused"
    )


def test_run_with_nothing_under_way_at_its_deadline_says_no_more() -> None:
    scheduler = scheduler_of(node("a"))

    assert _at_its_deadline(scheduler) == NodeError("deadline_exceeded", "the run took over its deadline")
