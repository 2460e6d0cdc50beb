"""Human feedback with a scheduler and no other component."""

from typing import Any

from dagwright.core.model.errors import NodeError
from dagwright.core.model.policy import Policy
from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import Attempt, RunStatus
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.feedback.component import HumanFeedback
from dagwright.features.feedback.request_opening import Raised
from tests.support.components import alone, started_ids, state_of, statuses
from tests.support.plan_building import node

_HUMAN = {"prompt": "Go on?", "type": "APPROVAL"}


def _run(*nodes: dict[str, Any], **options: Any) -> tuple[Scheduler[Any], HumanFeedback]:
    scheduler, feedback = alone(state_of(*nodes, **options), HumanFeedback)
    scheduler.start(0.0)
    return scheduler, feedback


def test_run_that_asks_nothing_needs_no_hook_for_its_nodes() -> None:
    _, feedback = _run(node("a"))
    assert {*feedback.needed_hooks()} == {"keeps_items", "on_node_failed", "on_rebuild", "on_stop"}


def test_node_for_a_person_waits_for_the_answer() -> None:
    scheduler, feedback = _run(node("check", human=_HUMAN), node("b", "check"))
    assert (started_ids(scheduler), scheduler.status()) == ([], RunStatus.WAITING)
    assert feedback.answer(Feedback("check", {"approved": True}), 1.0) is None
    assert started_ids(scheduler, at=1.0) == ["b"]


def test_call_waits_for_the_approval_that_the_policy_requires() -> None:
    scheduler, feedback = _run(node("a"), policy=Policy(otherwise="ask"))
    assert (started_ids(scheduler), [*feedback.requests.open]) == ([], ["a"])
    feedback.set_policy(Policy(), 1.0)
    assert (started_ids(scheduler, at=1.0), [*feedback.requests.open]) == (["a"], [])


def test_running_tool_that_asks_is_called_again_with_the_answer() -> None:
    scheduler, feedback = _run(node("a"))
    started_ids(scheduler)
    assert feedback.ask("a", Raised("Which one?"), at=1.0, attempt=Attempt()) is None
    assert statuses(scheduler) == {"a": "waiting"}
    assert feedback.answer(Feedback("a", {"text": "the first"}), 2.0) is None
    task = scheduler.next_task(2.0)
    assert task is not None
    assert (task.call_id, [*task.answers]) == ("a#2", [{"request_id": "a", "answer": {"text": "the first"}}])


def test_failure_needs_feedback_if_the_node_declares_it() -> None:
    scheduler, feedback = _run(node("a", on_error="ask"))
    started_ids(scheduler)
    scheduler.fail("a", NodeError("broken", "no"), at=1.0)
    assert feedback.answer(Feedback("a", {"selected": ["skip"]}), 2.0) is None
    assert statuses(scheduler) == {"a": "skipped"}


def test_request_of_a_cancelled_run_is_closed() -> None:
    scheduler, feedback = _run(node("check", human=_HUMAN))
    scheduler.cancel(1.0)
    assert ([*feedback.requests.open], feedback.requests.closed["check"].how) == ([], "closed")


def test_answer_that_comes_early_is_kept_for_its_request() -> None:
    scheduler, feedback = _run(node("a"), node("check", "a", human=_HUMAN))
    assert feedback.answer(Feedback("check", {"approved": True}), 0.0) is None
    started_ids(scheduler)
    scheduler.complete("a", 1, at=1.0)
    assert statuses(scheduler) == {"a": "completed", "check": "completed"}
