"""Budgets of a run: model calls wait at the limit, a person is asked once, and the run continues or finishes."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from dagwright.core.model.actor import Actor
from dagwright.core.model.budget_limits import limits_from_json
from dagwright.core.model.states import NO_USAGE, Attempt, Usage
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.features.budgets.budget import Budget, BudgetReport, Reservation, budget_from_json
from dagwright.features.commands.node_commands import CancelNode
from dagwright.features.commands.steering import Pause, Resume, apply_command
from dagwright.features.plan_edits.node_additions import add_nodes, add_nodes_of_unfinished_plan
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.ready_calls import next_call
from tests.support.plan_building import (
    TOOLS,
    answer_request,
    budget_of,
    compiled_plan,
    ids_of,
    node,
    open_requests,
    plan_of,
    record_of,
    restored_scheduler,
    start_ready_tasks,
    started_scheduler,
    statuses_of,
)

ALL_TOOLS = {
    **TOOLS,
    **{name: ToolDeclaration(name, Effects.READ) for name in ("call_model", "read_model_plan")},
    "ask_model": ToolDeclaration("ask_model", Effects.READ, uses_models=True),
}
HUMAN = {"type": "CLARIFICATION", "prompt": "Which?"}


def model_node(
    node_id: str, *dependencies: str, max_tokens: int = 100, purpose: str = "agent", **fields: Any
) -> dict[str, Any]:
    """Return a node that calls a model. The estimate of the call is `max_tokens` plus the tokens of the messages."""
    arguments = {"config": {"max_tokens": max_tokens}, "labels": {"purpose": purpose}, "messages": []}
    return node(node_id, *dependencies, tool="call_model", arguments=arguments, **fields)


def run_of(*nodes: dict[str, Any], budget: Budget, **fields: Any) -> RunScheduler:
    return started_scheduler(compiled_plan(plan_of(*nodes, **fields), tools=ALL_TOOLS), setup={"budget": budget})


def partly_spent_run(*nodes: dict[str, Any], budget: Budget, **fields: Any) -> RunScheduler:
    """Start as many ready nodes as the budget admits, complete the first node with 20 tokens, and return the run."""
    scheduler = run_of(*nodes, budget=budget, **fields)
    first_task, *_ = start_ready_tasks(scheduler)
    scheduler.complete(first_task.id, 1, at=1.0, attempt=attempt_using(20))
    return scheduler


def attempt_using(tokens: int, *, money: str = "0") -> Attempt:
    return Attempt(1, 0.5, usage=Usage(calls=1, prompt_tokens=tokens, money=Decimal(money)))


def reason_of(scheduler: RunScheduler, node_id: str) -> str | None:
    return record_of(scheduler, node_id).reason


def answer_budget_request(scheduler: RunScheduler, data: Any, request_id: str = "budget") -> str | None:
    return answer_request(scheduler, request_id, {"data": data}, "ann", at=9.0)


def test_calls_over_the_limit_wait_until_another_call_releases_budget() -> None:
    scheduler = run_of(model_node("a"), model_node("b"), model_node("c"), budget=Budget({"tokens": 300}))
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "b"]
    assert statuses_of(scheduler) == {"a": "running", "b": "running", "c": "waiting"}
    assert reason_of(scheduler, "c") == "budget (tokens: 0 of 300 used)"
    assert not open_requests(scheduler)
    scheduler.complete("a", 1, at=1.0, attempt=attempt_using(20))
    assert ids_of(start_ready_tasks(scheduler)) == ["c"]
    assert reason_of(scheduler, "c") is None


def test_one_request_asks_for_more_budget_and_all_waiting_calls_continue() -> None:
    scheduler = partly_spent_run(model_node("a"), model_node("b"), model_node("c"), budget=Budget({"calls": 1}))
    assert start_ready_tasks(scheduler) == []
    (request,) = open_requests(scheduler).values()
    prompt = "The budget of the run is used up (calls: 1 of 1 used). How much more may it use, or should it finish now?"
    # `schema` and `opened_at` are not compared.
    null_fields = dict.fromkeys(("node_id", "schema", "options", "assignee", "opened_at", "deadline"))
    assert request.to_json("w1") | {"schema": None, "opened_at": None} == null_fields | {
        **{"request_id": "budget", "type": "INFORMATION", "prompt": prompt, "run_id": "w1", "purpose": "budget"},
        **{"multiple": False, "allow_text": False},
    }
    assert scheduler.status().value == "waiting"
    assert answer_budget_request(scheduler, {"calls": 2}) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b", "c"]
    assert scheduler.features.feedback.requests.closed["budget"].answer == "more"


def test_finish_skips_unstarted_nodes_and_answers_from_the_results_so_far() -> None:
    final_node = model_node("end", "a", "b", purpose="answer", join="all_done")
    nodes = (node("tool"), model_node("a"), model_node("b"), node("after", "b"), final_node)
    scheduler = run_of(*nodes, budget=Budget({"calls": 1}), output="{{end.result}}")
    assert ids_of(start_ready_tasks(scheduler)) == ["tool", "a"]
    scheduler.complete("a", 1, at=1.0, attempt=attempt_using(20))
    assert answer_budget_request(scheduler, {"finish": True}) is None
    expected_statuses = {"tool": "running", "a": "completed", "b": "skipped", "after": "skipped", "end": "ready"}
    assert statuses_of(scheduler) == expected_statuses
    assert reason_of(scheduler, "after") == "not started: calls: 1 of 1 used"
    assert ids_of(start_ready_tasks(scheduler)) == ["end"]
    scheduler.complete("end", "so far", at=2.0, attempt=attempt_using(20))
    scheduler.complete("tool", 1, at=2.0)
    assert (scheduler.status().value, scheduler.output()) == ("completed", ("so far", None))


def test_non_interactive_run_finishes_by_itself_but_still_reads_a_plan_that_a_model_has_written() -> None:
    nodes = (model_node("a"), model_node("b"), model_node("m", for_each=[1, 2]))
    scheduler = partly_spent_run(*nodes, budget=Budget({"calls": 1}, "finish"))
    assert statuses_of(scheduler) == {"a": "completed", "b": "skipped", "m": "completed"}
    assert (scheduler.is_finished, open_requests(scheduler)) == (True, {})
    nodes = (model_node("p"), node("read", "p", tool="read_model_plan"), model_node("b"))
    scheduler = partly_spent_run(*nodes, budget=Budget({"calls": 1}, "finish"))
    assert statuses_of(scheduler) == {"p": "completed", "read": "ready", "b": "skipped"}
    assert ids_of(start_ready_tasks(scheduler)) == ["read"]


def test_first_call_of_unknown_price_runs_alone_and_unknown_cost_is_not_counted_as_zero() -> None:
    scheduler = run_of(model_node("a"), model_node("b"), model_node("c"), budget=Budget({"money": Decimal("1.00")}))
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    scheduler.complete("a", 1, at=1.0, attempt=attempt_using(100, money="0.10"))
    assert ids_of(start_ready_tasks(scheduler)) == ["b", "c"]
    scheduler = run_of(model_node("a"), model_node("b"), budget=Budget({"money": Decimal("1.00")}))
    start_ready_tasks(scheduler)
    unpriced_usage = Usage(calls=1, prompt_tokens=5, unpriced_calls=1)
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(1, 0.5, usage=unpriced_usage))
    assert start_ready_tasks(scheduler) == []
    assert "the cost of some calls is not known" in (reason_of(scheduler, "b") or "")
    assert answer_budget_request(scheduler, {"money": None}) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]


def test_nodes_added_by_child_runs_count_toward_the_budget_of_the_run() -> None:
    budget = Budget({"nodes": 2})
    scheduler = run_of(model_node("a"), model_node("b"), budget=budget)
    budget.added_by_child["sub"] = 3
    assert start_ready_tasks(scheduler) == []
    assert reason_of(scheduler, "a") == "budget (nodes: 3 of 2 used)"


def add_planned_nodes(scheduler: RunScheduler, *nodes: dict[str, Any]) -> None:
    """Add nodes to a run, as if a model were writing a plan with these nodes."""
    new_nodes = compiled_plan(plan_of(*nodes), tools=ALL_TOOLS).nodes
    base = scheduler.plan.visible_count
    shifted_nodes = [replace(each, dependencies=[base + number for number in each.dependencies]) for each in new_nodes]
    add_nodes_of_unfinished_plan(scheduler, Extension(base, shifted_nodes, ALL_TOOLS), at=1.0)


def test_nodes_over_the_limit_wait_for_more_budget_or_are_skipped_at_the_finish() -> None:
    scheduler = run_of(node("first"), node("second"), budget=Budget({"nodes": 2}))
    assert ids_of(start_ready_tasks(scheduler)) == ["first", "second"]
    add_planned_nodes(scheduler, node("a"), model_node("b"), node("c"), model_node("d"), node("e", "a"))
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "b"]
    assert reason_of(scheduler, "c") == "budget (nodes: 5 of 2 used)"
    assert list(open_requests(scheduler)) == ["budget"]
    assert answer_budget_request(scheduler, {"nodes": 1}) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["c"]
    assert list(open_requests(scheduler)) == ["budget#2"]
    assert answer_budget_request(scheduler, {"nodes": None}, "budget#2") is None
    assert ids_of(start_ready_tasks(scheduler)) == ["d"]
    scheduler.complete("a", 1, at=9.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["e"]
    scheduler = run_of(node("first"), budget=Budget({"nodes": 1}, "finish"))
    start_ready_tasks(scheduler)
    add_planned_nodes(scheduler, node("a"), node("b"), model_node("end", "a", "b", purpose="answer", join="all_done"))
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    assert statuses_of(scheduler) == {"first": "running", "a": "running", "b": "skipped", "end": "pending"}
    scheduler.complete("a", 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["end"]


def test_run_that_has_used_its_time_starts_no_node_until_a_person_adds_time_or_finishes_the_run() -> None:
    scheduler = run_of(node("a"), node("b", "a"), node("c", "b"), budget=Budget({"time": Decimal(10)}))
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    scheduler.complete("a", 1, at=9.0)
    assert ids_of(start_ready_tasks(scheduler, at=9.0)) == ["b"]
    scheduler.complete("b", 1, at=11.0)
    assert start_ready_tasks(scheduler, at=11.0) == []
    assert reason_of(scheduler, "c") == "budget (time: 11.0 s of 10.0 s used)"
    assert (scheduler.status().value, list(open_requests(scheduler))) == ("waiting", ["budget"])
    # The request stays open for a week of simulated time.
    assert answer_request(scheduler, "budget", {"data": {"time": "5s"}}, "ann", at=600_000.0) is None
    assert ids_of(start_ready_tasks(scheduler, at=600_000.0)) == ["c"]
    scheduler.complete("c", 1, at=600_001.0)
    assert (budget_of(scheduler).busy_time.seconds, scheduler.status().value) == (12.0, "completed")
    nodes = (node("a"), node("b", "a"), model_node("end", "b", purpose="answer", join="all_done"))
    scheduler = run_of(*nodes, budget=Budget({"time": Decimal(10)}, "finish"))
    start_ready_tasks(scheduler)
    scheduler.complete("a", 1, at=10.0)
    assert ids_of(start_ready_tasks(scheduler, at=10.0)) == ["end"]
    assert statuses_of(scheduler) == {"a": "completed", "b": "skipped", "end": "running"}


def test_while_a_request_is_open_time_counts_only_as_long_as_a_call_runs() -> None:
    scheduler = run_of(
        node("ask", human=HUMAN), node("a"), node("b", "ask"), budget=Budget({"time": Decimal(100)}, "finish")
    )
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    scheduler.complete("a", 1, at=90.0)
    assert start_ready_tasks(scheduler, at=90.0) == []
    successor = restored_scheduler(scheduler, max_in_flight=MAX_IN_FLIGHT)
    assert answer_request(successor, "ask", {"text": "this"}, "ann", at=1_000.0) is None
    assert ids_of(start_ready_tasks(successor, at=1_000.0)) == ["b"]
    successor.complete("b", 1, at=1_020.0)
    assert budget_of(successor).busy_time.seconds == 110.0


def test_lost_call_counts_with_its_estimate_and_unsent_call_does_not_count() -> None:
    nodes = (model_node("a", max_tokens=250), model_node("b", "a", join="all_done"))
    scheduler = run_of(*nodes, budget=Budget({"tokens": 390}))
    start_ready_tasks(scheduler)
    scheduler.task_cancelled("a", at=1.0)
    assert start_ready_tasks(scheduler) == []
    assert list(open_requests(scheduler)) == ["budget"]
    invalid_node = model_node("a")
    invalid_node["arguments"]["messages"] = ["\ud800"]
    scheduler = run_of(invalid_node, model_node("b"), budget=Budget({"calls": 1}))
    ready_call = next_call(scheduler, 1.0)
    assert (ready_call and ready_call.task.id, statuses_of(scheduler)) == ("b", {"a": "failed", "b": "running"})


def test_budget_request_closes_when_no_call_waits_and_request_ids_are_unique() -> None:
    scheduler = partly_spent_run(model_node("a"), model_node("b"), budget=Budget({"calls": 1}))
    assert apply_command(CancelNode("b"), scheduler, at=2.0) is None
    assert (open_requests(scheduler), scheduler.is_finished) == ({}, True)
    node_ids = ("budget", "budget#0", "budget#0#2")
    scheduler = run_of(*(model_node(node_id) for node_id in node_ids), budget=Budget({"tokens": 5}))
    assert start_ready_tasks(scheduler) == []
    assert list(open_requests(scheduler)) == ["budget#0#0"]
    assert answer_budget_request(scheduler, {"tokens": 1}, "budget#0#0") is None
    assert list(open_requests(scheduler)) == ["budget#0#0#2"]
    scheduler = partly_spent_run(model_node("a"), model_node("b"), budget=Budget({"calls": 1}))
    human_nodes = compiled_plan(plan_of(node("budget", human=HUMAN))).nodes
    add_nodes(scheduler, Extension(2, human_nodes), Actor("ann", None, "update"), at=2.0)
    requests = [(each.id, each.task) for each in open_requests(scheduler).values()]
    assert requests == [("budget", "~budget"), ("budget#2", "budget")]
    assert answer_budget_request(scheduler, {"calls": 5}) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]


_AMOUNT = "an amount of money over 0 and at most 1,000,000,000,000,000, such as 1.50"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "expected an object with some of tokens, money, calls, nodes, time"),
        ({"time": 30}, "time must be a duration such as 30m, not 30"),
        ({"time": "5m"}, "time is not limited in this run; the run limits tokens, calls"),
        ({"tokens": 0}, "tokens must be a whole number from 1 to 1,000,000,000,000,000, not 0"),
        ({"token": 5}, "did you mean 'tokens'?"),
        ({"money": "much"}, f"money must be {_AMOUNT}, not 'much'"),
        ({"finish": True, "tokens": 5}, "'finish' must be true and the only key"),
        ({"finish": False}, "'finish' must be true and the only key"),
    ],
)
def test_answer_that_adds_no_budget_is_rejected_with_the_reason(data: Any, problem: str) -> None:
    scheduler = run_of(model_node("a"), budget=Budget({"tokens": 5, "calls": 9}))
    start_ready_tasks(scheduler)
    assert problem in (answer_budget_request(scheduler, data) or "")
    assert list(open_requests(scheduler)) == ["budget"]


@pytest.mark.parametrize(
    "encoded",
    [None, [], {}, {"tokens": True}, {"tokens": 1.5}, {"money": "NaN"}, {"money": -1}, {"time": 5}, {"time": ""}],
)
def test_invalid_limits_are_rejected(encoded: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|must be"):
        limits_from_json(encoded)


def test_call_that_writes_the_answer_waits_until_a_person_finishes_the_run() -> None:
    scheduler = partly_spent_run(model_node("a"), model_node("end", "a", purpose="answer"), budget=Budget({"calls": 1}))
    assert start_ready_tasks(scheduler) == []
    assert statuses_of(scheduler) == {"a": "completed", "end": "waiting"}
    assert answer_budget_request(scheduler, {"finish": True}) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["end"]
    assert open_requests(scheduler) == {}


def test_many_waiting_calls_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    counts_by_method = Counter[str]()

    def count_calls(name: str) -> Callable[..., Any]:
        method = getattr(Budget, name)

        def count_call(*args: Any, **fields: Any) -> Any:
            counts_by_method[name] += 1
            return method(*args, **fields)

        return count_call

    for name in ("grant_waiting", "reasons_by_task", "describe"):
        monkeypatch.setattr(Budget, name, count_calls(name))
    scheduler = partly_spent_run(*(model_node(f"n{number}") for number in range(1_000)), budget=Budget({"calls": 1}))
    assert start_ready_tasks(scheduler) == []
    assert reason_of(scheduler, "n999") == "budget (calls: 1 of 1 used)"
    assert max(counts_by_method.values()) < 10


@pytest.mark.parametrize("is_child", [True, False])
def test_call_that_ends_and_is_requested_again_in_one_message_waits_again(is_child: bool) -> None:
    budget = Budget({} if is_child else {"calls": 1}, is_child=is_child)
    budget.apply_report("sub", BudgetReport({}, {"a": Usage(calls=1)}), added_count=0)
    budget.next_report()
    budget.apply_report("sub", BudgetReport({"a": 5}, {"a": NO_USAGE}), added_count=0)
    assert list(budget.waiting_calls) == [("sub", "a")]
    # `3` is the length of `sub`.
    assert budget.next_report() == (BudgetReport({"3:sub/a": 5}, {"3:sub/a": NO_USAGE}) if is_child else None)


def test_call_that_is_cancelled_before_it_starts_releases_its_reservation() -> None:
    scheduler = run_of(model_node("a"), model_node("b"), model_node("c"), budget=Budget({"calls": 1}))
    start_ready_tasks(scheduler)
    assert apply_command(Pause(), scheduler, at=1.0) is None
    scheduler.complete("a", 1, at=1.0, attempt=attempt_using(20))
    assert answer_budget_request(scheduler, {"calls": 1}) is None
    assert statuses_of(scheduler) == {"a": "completed", "b": "ready", "c": "waiting"}
    assert apply_command(CancelNode("b"), scheduler, at=2.0) is None
    assert apply_command(Resume(), scheduler, at=3.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["c"]


def test_reported_usage_of_a_grandchild_run_still_counts_after_the_child_run_ends() -> None:
    budget = Budget({"calls": 3})
    usage: dict[str, Usage | None] = {name: Usage(calls=1) for name in ("4:deep/turn1", "4:deep/turn2", "turn1")}
    budget.apply_report("sub", BudgetReport({}, usage), added_count=0)
    # The grandchild run `deep` sent no final report, so the final usage of the child run has only one of three calls.
    budget.end_child("sub", Usage(calls=1))
    assert budget.exceeded_limits(Reservation(1), run_usage=Usage(calls=1), added_count=0) == ["calls"]
    budget.raise_limits({"calls": 1})
    assert budget.exceeded_limits(Reservation(1), run_usage=Usage(calls=1), added_count=0) == []


def test_excessive_limit_becomes_the_largest_limit() -> None:
    budget = Budget({"tokens": 10, "money": Decimal(1), "time": Decimal(315_360_000)})
    budget.raise_limits({"tokens": 10**15, "money": Decimal(10**15), "time": Decimal(5)})
    assert budget_from_json(json.loads(json.dumps(budget.to_json()))) == budget
    assert budget.limits == {"tokens": 10**15, "money": 10**15, "time": 315_360_000}


def test_run_with_a_budget_ignores_grants_of_its_parent() -> None:
    scheduler = run_of(model_node("a"), model_node("b"), budget=Budget({"calls": 1}))
    start_ready_tasks(scheduler)
    scheduler.features.budget.handle_grant(["b"], finish_reason=None, at=1.0)
    scheduler.features.budget.handle_grant([], finish_reason="the parent run ends", at=1.0)
    assert statuses_of(scheduler) == {"a": "running", "b": "waiting"}


def test_estimate_of_a_call_includes_its_stored_conversation() -> None:
    arguments = {"config": {"max_tokens": 100}, "messages": [], "previous_conversation": "sha256:0"}
    second_turn = node("turn2", "turn1.1", tool="call_model", arguments=arguments)
    nodes = (model_node("turn1"), node("turn1.1", "turn1"), second_turn)
    budget = Budget({"tokens": 5_000})
    scheduler = run_of(*nodes, budget=budget)
    start_ready_tasks(scheduler)
    # Two attempts use 2,000 tokens together. The stored conversation has only the 1,000 tokens of the last attempt, so
    # the estimate of `turn2` is 1,000 tokens and its `max_tokens`.
    response_of_turn = {"usage": Usage(calls=1, prompt_tokens=900, completion_tokens=100).to_json()}
    scheduler.complete("turn1", response_of_turn, at=1.0, attempt=attempt_using(2_000))
    start_ready_tasks(scheduler)
    scheduler.complete("turn1.1", 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["turn2"]
    assert 1_100 <= budget.reservations["", "turn2"].tokens < 1_200


def test_child_run_requests_a_limited_number_of_calls_at_a_time_and_continues_in_order() -> None:
    budget = Budget(is_child=True)
    node_ids = [f"c{number}" for number in range(600)]
    for node_id in node_ids:
        assert not budget.reserve(("", node_id), Reservation(5), run_usage=NO_USAGE, added_count=0)
    first_report = budget.next_report()
    assert first_report is not None
    assert list(first_report.requested_tokens) == node_ids[:250]
    assert budget.next_report() is None
    budget.settle(("", "c3"), NO_USAGE)
    budget = budget_from_json(json.loads(json.dumps(budget.to_json())))
    budget.apply_grants(["c0", "c1"])
    next_report = budget.next_report()
    assert next_report is not None
    assert list(next_report.requested_tokens) == ["c250", "c251", "c252"]


def test_budget_reserves_one_call_for_a_tool_with_models_and_counts_its_usage() -> None:
    nodes = [node(node_id, tool="ask_model", arguments={"text": "x" * 300}) for node_id in ("a", "b")]
    budget = Budget({"tokens": 2_000})
    scheduler = run_of(*nodes, node("c"), budget=budget)
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "c"]
    assert budget.reservations["", "a"].tokens == 1_103
    scheduler.complete("a", 1, at=1.0, attempt=attempt_using(1_500))
    assert start_ready_tasks(scheduler) == []
    assert reason_of(scheduler, "b") == "budget (tokens: 1,500 of 2,000 used)"


def test_time_does_not_count_while_all_running_sub_plans_wait_for_people() -> None:
    sub_plan_nodes = [node(node_id, plan=plan_of(node("q", human=HUMAN))) for node_id in ("s", "t")]
    budget = Budget({"time": Decimal(100)})
    scheduler = run_of(*sub_plan_nodes, node("a", "s"), budget=budget)
    assert ids_of(start_ready_tasks(scheduler)) == ["s", "t"]
    scheduler.features.budget.handle_report("s", BudgetReport(is_idle=True), added_count=0, at=10.0)
    assert start_ready_tasks(scheduler, at=10.0) == []
    # The sub-plan `t` is still busy, so the time has not been paused.
    assert budget.busy_time.counted_s == 0.0
    scheduler.features.budget.handle_report("t", BudgetReport(is_idle=True), added_count=0, at=20.0)
    assert start_ready_tasks(scheduler, at=20.0) == []
    assert (budget.busy_time.resumed_at, budget.busy_time.seconds) == (None, 20.0)
    successor = restored_scheduler(scheduler, max_in_flight=MAX_IN_FLIGHT)
    successor.features.budget.handle_report("s", BudgetReport(is_idle=False), added_count=0, at=5_000.0)
    assert start_ready_tasks(successor, at=5_000.0) == []
    successor.complete("s", 1, at=5_010.0)
    assert ids_of(start_ready_tasks(successor, at=5_010.0)) == ["a"]
    assert budget_of(successor).busy_time.seconds == 30.0


def test_child_run_reports_that_it_is_idle_and_a_grant_of_its_parent_ends_the_idle_state() -> None:
    budget = Budget(is_child=True, is_timed=True)
    scheduler = run_of(model_node("a"), budget=budget)
    assert start_ready_tasks(scheduler) == []
    pending_report = budget.next_report()
    assert pending_report is not None
    assert (list(pending_report.requested_tokens), pending_report.is_idle) == (["a"], True)
    parent_budget = Budget({"calls": 0, "time": Decimal(5)})
    parent_budget.apply_report("sub", pending_report, added_count=0)
    assert list(parent_budget.busy_time.idle_children) == ["sub"]
    parent_budget.set_limits({"calls": 1})
    parent_budget.grant_waiting(run_usage=NO_USAGE, added_count=0)
    assert list(parent_budget.busy_time.idle_children) == []
    scheduler.features.budget.handle_grant(parent_budget.next_grants()["sub"], finish_reason=None, at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    assert budget.next_report() is None


def test_grant_for_a_withdrawn_request_is_not_applied_to_the_next_request_of_the_call() -> None:
    child_budget = Budget(is_child=True)

    def reserve_and_report() -> BudgetReport | None:
        child_budget.reserve(("", "a"), Reservation(5), run_usage=NO_USAGE, added_count=0)
        return child_budget.next_report()

    assert reserve_and_report() == BudgetReport(requested_tokens={"a": 5})
    child_budget.settle(("", "a"), NO_USAGE)
    assert reserve_and_report() == BudgetReport(requested_tokens={"~1:a": 5}, settled={"a": NO_USAGE})
    child_budget = budget_from_json(json.loads(json.dumps(child_budget.to_json())))
    child_budget.apply_grants(["a"])
    assert not child_budget.reservations
    child_budget.apply_grants(["~1:a"])
    assert [*child_budget.reservations] == [("", "a")]
    child_budget.settle(("", "a"), None)
    assert child_budget.next_report() == BudgetReport(settled={"~1:a": None})
