"""Components, each alone in a scheduler: budgets, plan extension, fork reuse, cancellation and feedback."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.requests import BUDGET_TASK, Feedback, Purpose
from dagwright.core.model.states import STILL_RUNNING_OUTSIDE, Attempt, NodeError, RunStatus, TaskRef, Usage
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.features.budgets.admission import BudgetAdmission
from dagwright.features.budgets.budget import Budget
from dagwright.features.feedback.component import HumanFeedback
from dagwright.features.fork_reuse.component import ForkReuse
from dagwright.features.fork_reuse.fingerprint import fingerprint_of
from dagwright.features.fork_reuse.reuse import ReusableResult, ReuseTable
from dagwright.features.node_cancellation import NodeCancellation
from dagwright.features.plan_edits.edits import checked_extension
from dagwright.features.plan_extension.component import PlanExtension
from tests.support.components import single_component_scheduler, start_tasks, state_of, statuses_of
from tests.support.plan_building import NoExtension, node


class OneNodeExtender(NoExtension):
    """Extender that adds one node after the first node has ended."""

    def next_extension(self, state: RunState) -> Extension | None:
        if not state.is_finished or state.number_of("more") is not None:
            return None
        return Extension(1, (CompiledNode("more", tool="any", dependencies=(0,)),))

    def goal_error(self, state: RunState) -> NodeError | None:
        return NodeError("goal_missed", "the goal was not reached")

    def is_reserved(self, node_id: str) -> bool:
        return node_id == "more"


def test_extender_adds_nodes_when_nothing_can_run_and_a_missed_goal_sets_the_status() -> None:
    state = state_of(node("a"))
    check_nodes = partial(checked_extension, state=state)
    scheduler, extension = single_component_scheduler(state, partial(PlanExtension, check_nodes=check_nodes))
    extension.set_extender(OneNodeExtender())
    scheduler.start(0.0)
    assert start_tasks(scheduler) == ["a"]
    scheduler.complete("a", 1, at=1.0)
    assert (start_tasks(scheduler, at=1.0), scheduler.state.is_generated_id("more")) == (["more"], True)
    scheduler.complete("more", 1, at=2.0)
    assert scheduler.status() is RunStatus.COMPLETED_WITH_FAILURES


def test_fork_reuses_only_results_with_the_same_fingerprint() -> None:
    state = state_of(node("a"), node("b"))
    scheduler, reuse = single_component_scheduler(state, ForkReuse)
    produced_by = {"run_id": "other", "node_id": "a"}
    same_result = ReusableResult(fingerprint_of(state, TaskRef(0)), has_result=True, result=7, produced_by=produced_by)
    other_result = ReusableResult("changed", scope="other", has_result=True, result=8)
    reuse.set_table(ReuseTable({"a": same_result, "b": other_result}))
    scheduler.start(0.0)
    task = scheduler.next_task(0.0)
    assert (scheduler.records[0].result, scheduler.records[0].reused) == (7, produced_by)
    assert task is not None
    assert (task.id, task.scope, scheduler.next_task(0.0)) == ("b", None, None)


def test_task_that_does_not_stop_in_time_is_cancelled() -> None:
    scheduler, cancellation = single_component_scheduler(state_of(node("a"), node("b")), NodeCancellation)
    scheduler.start(0.0)
    start_tasks(scheduler)
    cancellation.cancel("a", deadline_at=5.0)
    cancellation.cancel("b", deadline_at=6.0)
    scheduler.complete("b", 1, at=1.0)
    assert scheduler.next_timer == 5.0
    scheduler.advance(5.0)
    assert statuses_of(scheduler) == {"a": "cancelled", "b": "completed"}
    assert scheduler.records[0].reason == STILL_RUNNING_OUTSIDE
    assert scheduler.next_timer is None


def test_feedback_needs_only_four_hooks_while_a_run_has_no_requests() -> None:
    state = state_of(node("a"))
    check_nodes = partial(checked_extension, state=state)
    scheduler, feedback = single_component_scheduler(state, partial(HumanFeedback, check_nodes=check_nodes))
    scheduler.start(0.0)
    assert {*feedback.needed_hooks()} == {"items_may_open_requests", "on_node_failed", "on_rebuild", "on_stop"}


_TOOLS = {
    "ask": ToolDeclaration("ask", Effects.READ, uses_models=True),
    "any": ToolDeclaration("any", Effects.READ),
}


class FakeRequests:
    """Requests to people that are only recorded."""

    def __init__(self) -> None:
        self.run_answer_appliers: dict[Purpose, Callable[[Any, Feedback, float], None]] = {}
        self.opened_ids: list[str] = []

    def is_asking(self, task: str) -> bool:
        return task == BUDGET_TASK and bool(self.opened_ids)

    def ask_for_run(self, question: Mapping[str, Any], *, task: str, base_id: str, purpose: Purpose, at: float) -> None:
        self.opened_ids.append(base_id)

    def close_request(self, task: str, at: float) -> None:
        self.opened_ids.clear()


def test_call_beyond_the_budget_waits_until_a_person_raises_the_budget() -> None:
    requests = FakeRequests()
    nodes = [node(name, tool="ask", arguments={"text": "x"}) for name in ("a", "b")]
    state = state_of(*nodes, node("c", tool="any"), tools=_TOOLS)
    scheduler, admission = single_component_scheduler(state, lambda scheduler: BudgetAdmission(scheduler, requests))
    admission.set_budget(Budget({"calls": 1}))
    scheduler.start(0.0)
    assert start_tasks(scheduler) == ["a", "c"]
    assert statuses_of(scheduler)["b"] == "waiting"
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(usage=Usage(calls=1, input_tokens=10)))
    assert requests.opened_ids == ["budget"]
    requests.run_answer_appliers["budget"]({"more": {"calls": 1}}, Feedback("budget", {}), 2.0)
    scheduler.propagate(2.0)
    assert (start_tasks(scheduler, at=2.0), requests.opened_ids) == (["b"], [])
