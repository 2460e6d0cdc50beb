"""Requests to people, without a server: when they are opened, and the effect of an answer."""

import json
from typing import Any

import pytest

from dagwright.core.expressions.compute_budget import MAX_WORK
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.policy import Policy, Rule
from dagwright.core.model.requests import Feedback, RaisedQuestion
from dagwright.core.model.states import NodeError, NodeStatus, RunStatus
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler import run_state
from dagwright.core.scheduler.extension import Extension
from dagwright.features.commands.node_commands import AddNodes, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import RunCommand, apply_command
from dagwright.features.explain.reasons import reason_of
from dagwright.features.feedback.feedback_state import MAX_HINTS_PER_ACTIVATION
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.support.plan_building import (
    TOOLS,
    answer_request,
    compiled_plan,
    early_answers,
    ids_of,
    node,
    open_requests,
    plan_of,
    raise_question,
    record_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    statuses_of,
    take_rejections,
    tool_error,
)

QUESTION = RaisedQuestion("Which one?")


def _unapproved_run() -> RunScheduler:
    scheduler = create_scheduler(compiled_plan(plan_of(node("a"), node("b", "a"), node("c"))), {})
    scheduler.features.feedback.run_requests.ask_for_approval(0.0)
    return scheduler


def test_unapproved_run_rejects_commands_and_cancelled_nodes_never_start() -> None:
    scheduler = _unapproved_run()
    extension = Extension(3, (CompiledNode("x", tool="any"),))
    commands: tuple[RunCommand, ...] = (CancelNode("a"), RetryNode("a"), SetResult("a", 1), AddNodes(extension))
    rejections = {apply_command(command, scheduler, at=1.0) for command in commands}
    assert rejections == {"the run has not started: answer 'plan' first"}
    assert ids_of(start_ready_tasks(scheduler)) == []
    assert statuses_of(scheduler) == {"a": "pending", "b": "pending", "c": "pending"}
    assert answer_request(scheduler, "plan", {"approved": True}, at=2.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["a", "c"]
    assert apply_command(CancelNode("b"), scheduler, at=3.0) is None
    scheduler = create_scheduler(compiled_plan(plan_of(node("a"), node("b"))), {})
    apply_command(CancelNode("a"), scheduler, at=0.0)
    scheduler.start(1.0)
    assert (ids_of(start_ready_tasks(scheduler)), statuses_of(scheduler)) == (["b"], {"a": "cancelled", "b": "running"})


def test_stopped_calls_open_no_requests() -> None:
    scheduler = started_run(node("a"), node("b"), on_failure="fail_fast")
    scheduler.fail("b", tool_error(), at=1.0)
    assert raise_question(scheduler, "a", QUESTION, at=2.0) is None
    assert (statuses_of(scheduler), open_requests(scheduler)) == ({"a": "cancelled", "b": "failed"}, {})
    assert (scheduler.is_finished, scheduler.in_flight, scheduler.status()) == (True, 0, RunStatus.FAILED)
    scheduler = started_run(node("a"), node("b", "a"), node("independent"))
    apply_command(CancelNode("a"), scheduler, at=1.0)
    assert raise_question(scheduler, "a", QUESTION, at=2.0) is None
    assert statuses_of(scheduler) == {"a": "cancelled", "b": "blocked", "independent": "running"}
    assert open_requests(scheduler) == {}
    assert (scheduler.state.cancel_deadlines, scheduler.in_flight) == ({}, 1)
    scheduler = started_run(node("a", on_error="ask"), node("m", for_each=["x"], key="{{item}}", on_error="ask"))
    for name in ("a", "m"):
        apply_command(CancelNode(name), scheduler, at=1.0)
    for name in ("a", "m[x]"):
        scheduler.fail(name, NodeError("tool_failed", "broken"), at=2.0)
    assert (statuses_of(scheduler), open_requests(scheduler)) == ({"a": "failed", "m": "failed"}, {})
    assert (scheduler.state.cancel_deadlines, scheduler.is_finished) == ({}, True)


_TO_ALL_SCHEMA = {"type": "object", "properties": {"to": {"const": "all"}}, "required": ["to"]}
_POLICY = Policy((Rule("deny", arguments=_TO_ALL_SCHEMA), Rule("ask")))


def _scheduler_with_policy(*nodes: dict[str, Any], policy: Policy = _POLICY) -> RunScheduler:
    return started_scheduler(compiled_plan(plan_of(*nodes)), policy=policy)


def test_approval_with_arguments_that_the_policy_denies_is_rejected_and_the_request_stays_open() -> None:
    scheduler = _scheduler_with_policy(node("a", arguments={"to": "ann"}))
    state_before = state_to_json(scheduler)
    answer = {"approved": True, "arguments": {"to": "all"}}
    rejection = "'a': the policy of the run denies this call of 'any'"
    assert scheduler.features.feedback.rejection_of(Feedback("a", answer), 1.0) == rejection
    assert answer_request(scheduler, "a", answer, at=1.0) == rejection
    assert state_to_json(scheduler) == state_before
    assert answer_request(scheduler, "a", {"approved": True, "arguments": {"to": "bob"}}, at=2.0) is None
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"to": "bob"}]


_FIELDS = {"to": {"type": "string"}, "amount": {"type": "integer"}}
_SCHEMA = {"type": "object", "properties": _FIELDS, "required": ["to"], "additionalProperties": False}
_PAY_TOOL = ToolDeclaration("pay", Effects.WRITE, _SCHEMA)
_INVALID_PAYMENT = {"to": "bob", "amount": "many"}
_AMOUNT_MESSAGE = """arguments/amount: "many" is not of type "integer\""""


def _payment_run(**fields: Any) -> RunScheduler:
    """Return a run in which a map of three payments depends on the node `first`."""
    pay = node("p", "first", tool="pay", for_each=["x", "y", "z"], arguments={"to": "{{item}}"}, **fields)
    return scheduler_of(node("first"), pay, tools={**TOOLS, "pay": _PAY_TOOL})


def _payment_run_after_its_first_node(**fields: Any) -> RunScheduler:
    scheduler = _payment_run(**fields)
    start_ready_tasks(scheduler)
    scheduler.complete("first", None, at=1.0)
    return scheduler


def test_invalid_arguments_leave_the_request_open() -> None:
    scheduler = _payment_run_after_its_first_node(approval="required")
    state_before = state_to_json(scheduler)
    for arguments, message in (
        (_INVALID_PAYMENT, _AMOUNT_MESSAGE),
        ({"to": "bob", "amuont": 1}, "arguments/amuont: unknown argument 'amuont'; did you mean 'amount'?"),
        ({}, 'arguments: "to" is a required property'),
    ):
        answer = {"approved": True, "arguments": arguments}
        assert answer_request(scheduler, "p", answer, at=2.0) == f"'p[0]': {message}"
        assert answer_request(scheduler, "p[1]", answer, at=2.0) == f"'p[1]': {message}"
    assert state_to_json(scheduler) == state_before
    assert answer_request(scheduler, "p", {"approved": True, "arguments": {"to": "bob"}}, at=3.0) is None
    assert [task.arguments for task in start_ready_tasks(scheduler)] == [{"to": "bob"}] * 3
    scheduler = _payment_run(approval="required")
    early_answer = {"approved": True, "arguments": _INVALID_PAYMENT}
    assert answer_request(scheduler, "p[0]", early_answer, by="ann", at=0.5) is None
    start_ready_tasks(scheduler)
    scheduler.complete("first", None, at=1.0)
    assert [*open_requests(scheduler)] == ["p[0]", "p[1]", "p[2]"]
    rejection = f"the early answer of ann to 'p[0]' is invalid: {_AMOUNT_MESSAGE}"
    assert take_rejections(scheduler) == [rejection]
    scheduler = _payment_run_after_its_first_node(on_error="ask")
    start_ready_tasks(scheduler)
    scheduler.fail("p[0]", tool_error(), at=2.0)
    retry = {"selected": ["retry"], "arguments": _INVALID_PAYMENT}
    assert answer_request(scheduler, "p[0]", retry, at=3.0) == f"'p[0]': {_AMOUNT_MESSAGE}"
    assert [*open_requests(scheduler)] == ["p[0]"]


def test_lineage_and_why_report_the_arguments_that_were_given_with_an_approval() -> None:
    scheduler = _payment_run_after_its_first_node(approval="required")
    arguments = {"to": "eve", "amount": 9}
    assert scheduler.features.feedback.open_request_count("p") == 3
    answer_request(scheduler, "p[0]", {"approved": True, "arguments": arguments}, by="ann", at=2.0)
    answer_request(scheduler, "p", {"approved": True, "arguments": {"to": "x" * 9_000}}, at=2.0)
    assert scheduler.features.feedback.open_request_count("p") == 0
    closed_requests = scheduler.features.feedback.requests.closed
    assert closed_requests["p[0]"].to_json() == {
        **{"outcome": "answered", "answer": "approved", "by": "ann", "at": "1970-01-01T00:00:02.000Z"},
        **{"source": "signal", "note": None, "arguments": arguments},
    }
    assert closed_requests["p[1]"].to_json()["arguments"] == f'{{"to":"{"x" * 4_089}…'
    for task in start_ready_tasks(scheduler):
        scheduler.complete(task.id, 1, at=3.0)
    [answer] = reason_of(scheduler, "p[0]").to_json()["answers"]
    assert (answer["answer"], answer["by"], answer["arguments"]) == ("approved", "ann", arguments)


def test_answer_to_a_node_that_can_never_ask_is_rejected() -> None:
    scheduler = scheduler_of(
        node("first"),
        node("pure", "first", tool="typed", arguments={"name": "ann"}),
        node("child", "first", plan=plan_of(node("x"))),
    )
    approval = {"approved": True}
    assert answer_request(scheduler, "pure", approval, at=1.0) == "'pure' never asks: it calls a `pure` tool"
    rejection = "'child' never asks: answer the node of its sub-plan, such as child/check"
    assert answer_request(scheduler, "child", approval, at=1.0) == rejection
    assert early_answers(scheduler) == {}


@pytest.mark.parametrize("retry", [RetryNode("a", {"to": "all"}), None])
def test_policy_denies_a_call_with_arguments_from_a_person(retry: RetryNode | None) -> None:
    on_error = "ask" if retry is None else "block"
    scheduler = _scheduler_with_policy(node("a", arguments={"to": "ann"}, on_error=on_error), node("independent"))
    for name in ("a", "independent"):
        answer_request(scheduler, name, {"approved": True}, at=1.0)
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error(), at=2.0)
    if retry is None:
        answer = {"action": "retry", "arguments": {"to": "all"}}
        assert answer_request(scheduler, "a#2", answer, at=3.0) is None
    else:
        assert apply_command(retry, scheduler, at=3.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == []
    error = NodeError("not_allowed", "the policy of the run denies this call of 'any'")
    assert record_of(scheduler, "a#2" if retry else "a#3").error == error


def test_retry_of_an_approved_node_with_new_arguments_needs_no_approval() -> None:
    nodes = (node("a", approval="required"), node("independent"))
    scheduler = _scheduler_with_policy(*nodes, policy=Policy((Rule("ask"),)))
    for name in ("a", "independent"):
        answer_request(scheduler, name, {"approved": True}, at=1.0)
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error(), at=2.0)
    assert apply_command(RetryNode("a", {"to": "bob"}), scheduler, at=3.0) is None
    assert (ids_of(start_ready_tasks(scheduler)), open_requests(scheduler)) == (["a#2"], {})


def test_answer_for_all_items_must_be_an_option_of_each_item() -> None:
    human = {"type": "SELECTION", "prompt": "Which?", "options": "{{item}}"}
    scheduler = scheduler_of(node("m", for_each=[["x", "y"], ["x", "z"]], human=human))
    rejection = '\'m[1]\': "y" is not offered; the options are "x", "z"'
    assert answer_request(scheduler, "m", {"selected": ["y"]}, at=1.0) == rejection
    assert answer_request(scheduler, "m", {"selected": ["x"]}, at=1.0) is None
    assert scheduler.records[0].result == [{"selected": ["x"]}] * 2


def test_answers_to_unknown_or_answered_requests_are_rejected_with_reasons() -> None:
    human = {"type": "CLARIFICATION", "prompt": "What?"}
    scheduler = scheduler_of(node("check", human=human))
    answer_to_misspelt_id = Feedback("chek", {"text": "so"})
    rejections = [
        scheduler.features.feedback.answer(answer_to_misspelt_id, 1.0) for _ in range(MAX_HINTS_PER_ACTIVATION + 2)
    ]
    rejection_with_hint = "there is no request 'chek'; did you mean 'check'?"
    assert rejections == [rejection_with_hint] * MAX_HINTS_PER_ACTIVATION + ["there is no request 'chek'"] * 2
    assert scheduler.features.feedback.answer(answer_to_misspelt_id, 2.0) == rejection_with_hint
    scheduler = scheduler_of(node("check", human={"prompt": "?"}))
    assert answer_request(scheduler, "check", {"approved": True}, by="ann", at=1.0) is None
    second_rejection = answer_request(scheduler, "check", {"approved": False}, by="ben", at=1.0)
    assert second_rejection == "'check' was answered by ann at 1970-01-01T00:00:01.000Z (approved, through signal)"


def test_commands_that_rebuild_records_are_rejected_if_the_plan_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WORK // run_state.WORK_OF_REBUILD == 150_000
    monkeypatch.setattr(run_state, "MAX_WORK", 1_000 * run_state.WORK_OF_REBUILD)
    scheduler = started_scheduler(CompiledPlan([CompiledNode(f"n{number}", tool="any") for number in range(1_001)]))
    start_ready_tasks(scheduler)
    scheduler.fail("n0", tool_error(), at=1.0)
    extension = Extension(1_001, (CompiledNode("x", tool="any"),))
    retries = (RetryNode("n0"), RetryNode("n0", {"a": 1}))
    commands: tuple[RunCommand, ...] = (*retries, SetResult("n0", 1), AddNodes(extension))
    assert {command.rejection_of(scheduler, at=2.0) for command in commands} == {
        "the run has 1,001 nodes and 0 edges; retrying nodes, setting results and adding nodes requires at most "
        "1,000 nodes and edges in total"
    }
    assert CancelNode("n7").rejection_of(scheduler, at=2.0) is None


def test_default_at_a_deadline_and_manual_values_are_reported() -> None:
    default = {"approved": False, "reason": "no approval"}
    human = {"type": "APPROVAL", "prompt": "Go?", "deadline": "1h", "on_timeout": {"default": default}}
    scheduler = scheduler_of(node("check", human=human), node("gate", approval=human))
    scheduler.advance(3600.0)
    default_text = "passed at 1970-01-01T01:00:00.000Z, and the default of the plan was used (rejected)"
    for name in ("check", "gate"):
        late_answer = Feedback(name, {"approved": True}, "ann")
        assert scheduler.features.feedback.answer(late_answer, 3601.0) == f"the deadline of {name!r} {default_text}"
    record = record_of(scheduler, "gate")
    message = "not answered in time, so the plan rejects it: no approval"
    assert (record.status, record.error) == (NodeStatus.FAILED, NodeError("rejected", message))
    scheduler = started_run(node("a", on_error="ask"))
    scheduler.fail("a", tool_error(), at=1.0)
    answer_request(scheduler, "a", {"selected": ["value"], "value": 7}, "ann", at=2.0)
    reason = reason_of(scheduler, "a")
    assert (reason.message, reason.detail) == ("failed and was given a value manually", "broken")


def test_request_opens_with_secret_arguments_but_not_with_invalid_arguments() -> None:
    pay_node = node(
        "pay", "first", tool="pay", approval="required", arguments={"to": "bob", "amount": "{{first.result}}"}
    )
    scheduler = started_run(node("first"), pay_node, tools={**TOOLS, "pay": _PAY_TOOL})
    scheduler.complete("first", "many", at=1.0)
    record = record_of(scheduler, "pay")
    assert (record.status, record.error) == ("failed", NodeError("invalid_arguments", _AMOUNT_MESSAGE))
    assert (open_requests(scheduler), scheduler.features.feedback.requests.closed) == ({}, {})
    pay_node = node("pay", tool="pay", approval="required", arguments={"to": "bob", "amount": "{{secret.SUM}}"})
    scheduler = scheduler_of(pay_node, tools={**TOOLS, "pay": _PAY_TOOL})
    assert [*open_requests(scheduler)] == ["pay"]


_LABELLED_OPTIONS = [{"id": "p_1", "label": "Ann (LU)"}, {"id": "p_2", "label": "B" * 200}, {"id": "no", "label": "no"}]
_NOT_AN_OPTION = f'"2" is not offered; the options are "p_1" (Ann (LU)), "p_2" ({"B" * 159}…), "no"'
_NOT_A_SELECTION = (
    'the request is an APPROVAL, not a SELECTION: approve or reject; as JSON {"approved": true, "reason": "…"}'
)
_NOT_AN_APPROVAL = (
    'the request is a SELECTION, not an APPROVAL: select an option, such as red; as JSON {"selected": ["x"]}'
)


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        ({"type": "APPROVAL"}, 17, 'expected an object such as {"approved": true, "reason": "…"}, not 17'),
        ({"type": "APPROVAL"}, {"selected": ["yes"]}, _NOT_A_SELECTION),
        ({"type": "CLARIFICATION"}, {"data": {}}, 'unknown key \'data\'; expected {"text": "…"}'),
        ({"type": "SELECTION", "options": ["red", "blue"]}, {"approved": True}, _NOT_AN_APPROVAL),
        ({"type": "SELECTION", "options": ["x"]}, {"selected": ["y"]}, '"y" is not offered; the options are "x"'),
        ({"type": "SELECTION", "options": _LABELLED_OPTIONS}, {"selected": ["2"]}, _NOT_AN_OPTION),
    ],
)
def test_early_answer_that_does_not_fit_the_question_is_not_stored(
    question: dict[str, Any], answer: Any, problem: str
) -> None:
    human_node = node("ask", "first", human={"prompt": "Go on, {{first.result}}?", **question})
    scheduler = scheduler_of(node("first"), human_node)
    rejection = answer_request(scheduler, "ask", answer, by="ann", at=0.5)
    assert rejection == f"'ask' has not asked yet, and its question does not accept this: {problem}"
    assert early_answers(scheduler) == {}


def test_early_answer_that_is_never_needed_is_reported_when_its_node_ends() -> None:
    scheduler = started_run(node("a"), node("m", for_each=["x", "y"], key="{{item}}"), node("independent"))
    for name in ("a", "m[x]", "m[y]#2", "independent"):
        assert answer_request(scheduler, name, {"text": "so"}, "ann", at=1.0) is None
    scheduler = restored_scheduler(scheduler)
    message = "{!r} was never requested: the early answer of ann is not needed"
    scheduler.complete("m[x]", 1, at=2.0)
    assert take_rejections(scheduler) == [message.format("m[x]")]
    scheduler.complete("a", 1, at=3.0)
    assert take_rejections(scheduler) == [message.format("a")]
    scheduler.cancel(4.0)
    for name in ("m[y]", "independent"):
        scheduler.task_cancelled(name, at=5.0)
    assert take_rejections(scheduler) == [message.format("m[y]#2"), message.format("independent")]
    assert (early_answers(scheduler), scheduler.features.feedback.requests.early_ids_by_node) == ({}, {})
    scheduler = scheduler_of(node("l"), node("m", "l", for_each="{{l.result}}", key="{{item}}"), node("independent"))
    assert answer_request(scheduler, "m[z]", {"text": "so"}, at=1.0) is None
    start_ready_tasks(scheduler)
    scheduler.complete("l", ["x"], at=2.0)
    scheduler = restored_scheduler(scheduler)
    assert ids_of(start_ready_tasks(scheduler)) == ["m[x]"]
    scheduler.complete("m[x]", 1, at=3.0)
    message = "'m[z]' was never requested: the early answer of a user without a name is not needed"
    assert take_rejections(scheduler) == [message]


def test_answers_of_a_run_have_a_total_limit_but_short_answers_are_always_accepted() -> None:
    human = {"type": "CLARIFICATION", "prompt": "What?"}
    nodes = [node(f"n{number}", human=human) for number in range(40)]
    scheduler = scheduler_of(*nodes, node("m", for_each=[*range(99)], human=human))
    long_answer = {"text": "x" * 250_000}
    rejections = [answer_request(scheduler, f"n{number}", long_answer, at=1.0) for number in range(33)]
    assert rejections == [None] * 33
    state_before = state_to_json(scheduler)
    scheduler = restored_scheduler(scheduler)
    assert json.dumps(state_to_json(scheduler)) == json.dumps(state_before)
    rejection = (
        "an answer of 250,011 bytes is too much: people may send 8,388,608 bytes to a run in total, and 8,250,363 are "
        "stored; answers of at most 1,024 bytes, such as a file name, are always accepted"
    )
    assert answer_request(scheduler, "n33", long_answer, at=1.0) == rejection
    answer = Feedback("m", {"text": "x" * 2_000})
    rejection = scheduler.features.feedback.rejection_of(answer, 1.0) or ""
    assert rejection.startswith("an answer of 2,011 bytes to 99 requests is too much")
    assert answer_request(scheduler, "m", {"text": "x" * 900}, at=1.0) is None
    assert answer_request(scheduler, "n33", {"text": "see x.txt"}, at=1.0) is None


def test_form_for_missing_inputs_includes_inputs_with_a_default() -> None:
    input_schemas = {
        "count": {"type": "integer", "prompt": "How many?"},
        "quarter": {"enum": ["Q1", "Q2"], "default": "Q1"},
        "given": {"type": "string", "default": "x"},
    }
    scheduler = create_scheduler(compiled_plan(plan_of(node("a"), inputs=input_schemas)), {"given": "y"})
    scheduler.features.feedback.run_requests.start_or_request_inputs(0.0)
    [request] = open_requests(scheduler).values()
    assert request.prompt == "The plan needs count"
    assert request.schema == {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "description": "How many?"},
            "quarter": {"type": "string", "enum": ["Q1", "Q2"], "default": "Q1"},
        },
        "required": ["count"],
        "additionalProperties": False,
    }
    assert answer_request(scheduler, "inputs", {"data": {"count": 3, "quarter": "Q2"}}, at=1.0) is None
    assert scheduler.state.inputs == {"count": 3, "quarter": "Q2", "given": "y"}
    input_schemas = {"quarter": {"type": "string", "default": "Q1"}}
    scheduler = create_scheduler(compiled_plan(plan_of(node("a"), inputs=input_schemas)), {})
    scheduler.features.feedback.run_requests.start_or_request_inputs(0.0)
    assert (open_requests(scheduler), ids_of(start_ready_tasks(scheduler))) == ({}, ["a"])
    assert answer_request(scheduler, "inputs", {"data": {}}, at=1.0) == "there is no request 'inputs'"


def test_early_answer_for_the_inputs_is_kept_until_the_plan_is_approved_or_rejected() -> None:
    def unapproved_run(plan: CompiledPlan, data: Any) -> RunScheduler:
        scheduler = create_scheduler(plan, {})
        scheduler.features.feedback.run_requests.ask_for_approval(0.0)
        answer = Feedback("inputs", {"data": data}, by="ann")
        assert scheduler.features.feedback.answer(answer, 1.0) is None
        rejection = "'inputs' has not asked yet, and an answer of ann is stored already"
        assert scheduler.features.feedback.answer(answer, 1.0) == rejection
        return scheduler

    plan = compiled_plan(plan_of(node("a", arguments={"n": "{{PLACEHOLDER_n}}"})))
    approved_run = unapproved_run(plan, {"n": 3})
    assert answer_request(approved_run, "plan", {"approved": True}, at=2.0) is None
    [task] = start_ready_tasks(approved_run)
    requests = approved_run.features.feedback.requests
    assert (task.arguments, requests.open, requests.early_answers) == ({"n": 3}, {}, {})

    rejected_run = unapproved_run(plan, {"n": 3})
    answer_request(rejected_run, "plan", {"approved": False}, at=2.0)
    message = "'inputs' was never requested: the early answer of ann is not needed"
    assert take_rejections(rejected_run) == [message]

    plan = compiled_plan(plan_of(node("a"), inputs={"n": {"type": "integer"}}))
    run_with_invalid_input = unapproved_run(plan, {"n": "x"})
    answer_request(run_with_invalid_input, "plan", {"approved": True}, at=2.0)
    assert ([*open_requests(run_with_invalid_input)], len(take_rejections(run_with_invalid_input))) == (["inputs"], 1)
