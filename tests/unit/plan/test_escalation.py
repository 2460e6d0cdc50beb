"""Escalation: chains of it, what is recorded, and who may answer where the sender proves who it is."""

from typing import Any

import pytest

from dagwright.cli.wording import closing_words
from dagwright.contracts.documents import node_document
from dagwright.contracts.feedback_messages import feedback_from_json, feedback_to_json, may_await
from dagwright.people import Answer
from dagwright.plan.carry import carry_of, restore
from dagwright.plan.reasons import reason_of
from dagwright.plan.requests import Feedback
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.why import Chain, sentence
from tests.unit.plan.building import node, plan_of, problems_of, scheduler_of, started, states

_CHAIN = {"escalate": "boss", "then": {"escalate": "ceo", "then": {"default": {"approved": False, "reason": "late"}}}}


def _asking(**fields: Any) -> dict[str, Any]:
    human = {"type": "APPROVAL", "prompt": "Publish?", "assignee": "ann", "deadline": "10s", "on_timeout": _CHAIN}
    return node("ask", human=human | fields)


def _scheduler(**fields: Any) -> Scheduler:
    scheduler = scheduler_of(_asking(**fields))
    started(scheduler)
    return scheduler


def _answers(scheduler: Scheduler) -> list[dict[str, Any]]:
    number = scheduler.number_of("ask")
    assert number is not None
    plan_node, record = scheduler.plan.nodes[number], scheduler.records[number]
    found: list[dict[str, Any]] = node_document(scheduler, "ask", node=plan_node, record=record)["lineage"]["answers"]
    return found


def test_chain_asks_one_after_the_other_and_ends_with_the_default() -> None:
    scheduler = _scheduler()
    asked = []
    for at in (0.0, 10.0, 20.0):
        scheduler.advance(at)
        asked.append(scheduler.requests.open["ask"].assignee)
    assert asked == ["ann", "boss", "ceo"]
    assert scheduler.next_alarm == 30.0
    scheduler.advance(30.0)
    assert states(scheduler) == {"ask": "completed"}
    [answer] = _answers(scheduler)
    assert answer == {
        "request": "ask",
        "how": "answered",
        "what": "rejected",
        "by": None,
        "at": "1970-01-01T00:00:30.000Z",
        "through": "deadline",
        "note": None,
        "requested_from": "ann",
        "requested_at": "1970-01-01T00:00:00.000Z",
        "escalations": [
            {"from": "ann", "to": "boss", "at": "1970-01-01T00:00:10.000Z"},
            {"from": "boss", "to": "ceo", "at": "1970-01-01T00:00:20.000Z"},
        ],
    }


def test_escalation_is_in_the_request_the_reason_and_the_words_of_the_answer() -> None:
    scheduler = _scheduler()
    scheduler.advance(10.0)
    request = scheduler.requests.open["ask"].to_json("run-1")
    assert request["escalations"] == [{"from": "ann", "to": "boss", "at": "1970-01-01T00:00:10.000Z"}]
    reason = reason_of(scheduler, "ask")
    assert (reason.message, reason.since) == ("waits for boss", 10.0)
    assert sentence(Chain([reason]), reason, clock=lambda at: f"{at:g} s") == (
        "ask waits for boss since 10 s until 20 s, requested from ann at 0 s, escalated to boss at 10 s (Publish?)"
    )
    # The next execution of the run knows it too.
    moved = scheduler_of(_asking())
    restore(moved, carry_of(scheduler))
    assert moved.answer(Feedback("ask", {"approved": True}, by="mallory"), 11.0) is None
    [answer] = _answers(moved)
    assert (answer["by"], answer["requested_from"], answer["escalations"]) == ("mallory", "ann", request["escalations"])
    words = closing_words(answer)
    assert "approved by mallory at " in words
    assert "; requested from ann at " in words
    assert ", escalated to boss at " in words


def test_escalation_without_a_next_step_fails_as_before() -> None:
    scheduler = _scheduler(on_timeout={"escalate": "boss"})
    scheduler.advance(10.0)
    scheduler.advance(20.0)
    assert states(scheduler) == {"ask": "failed"}
    assert scheduler.plan.nodes[0].arguments["on_timeout"] == {"escalate": "boss"}
    assert _answers(scheduler)[0]["how"] == "expired"


def test_answer_to_a_request_that_names_nobody_has_no_more_fields_than_before() -> None:
    scheduler = _scheduler(assignee=None)
    scheduler.answer(Feedback("ask", {"approved": True}, by="ann"), 1.0)
    assert {*_answers(scheduler)[0]} == {"request", "how", "what", "by", "at", "through", "note"}


@pytest.mark.parametrize(
    ("on_timeout", "message"),
    [
        ({"escalate": "a", "then": {"default": {"text": "x"}}}, "the default does not fit the question"),
        ({"escalate": "a", "then": {"escalate": " "}}, "expected the assignee to escalate to"),
    ],
)
def test_wrong_step_of_a_chain_is_a_problem_of_the_plan(on_timeout: Any, message: str) -> None:
    [problem] = problems_of(plan_of(_asking(on_timeout=on_timeout)))
    assert message in problem.message
    assert problem.pointer.startswith("/nodes/0/human/on_timeout/then/")


def test_unknown_step_of_a_chain_is_a_problem_of_the_plan() -> None:
    problem, *_ = problems_of(plan_of(_asking(on_timeout={"escalate": "a", "then": "wait"})))
    assert "human.on_timeout: expected fail, {default: …} or {escalate: …, then: …}, not" in problem.message


_YES = {"approved": True}


def test_key_may_answer_only_what_is_assigned_to_its_owner_or_to_nobody() -> None:
    scheduler = _scheduler()
    mallory = Feedback("ask", _YES, by="mallory", may_answer="unassigned")
    boss = Feedback("ask", _YES, by="boss", may_answer="unassigned")
    refusal = scheduler.answer(mallory, 1.0)
    assert refusal is not None
    assert refusal.startswith("'ask' waits for ann: only a key of the owner 'ann'")
    assert scheduler.refusal_of(boss, 1.0) is not None
    # After the escalation it is the other way round.
    assert scheduler.answer(Feedback("ask", _YES, by="ann", may_answer="unassigned"), 10.0) is not None
    assert scheduler.answer(boss, 10.0) is None
    assert states(scheduler) == {"ask": "completed"}


def test_key_of_another_owner_may_not_answer_what_is_assigned_to_nobody() -> None:
    scheduler = _scheduler(assignee=None)
    other = Feedback("ask", _YES, by="boss", may_answer="assigned")
    assert scheduler.answer(other, 1.0) == "'ask' is not assigned to boss"
    assert scheduler.answer(Feedback("ask", _YES, by="eve", may_answer="unassigned"), 1.0) is None


def test_early_answer_of_a_key_is_rejected_when_the_request_names_another() -> None:
    scheduler = scheduler_of(node("first"), {**_asking(), "depends_on": ["first"]})
    started(scheduler)
    assert scheduler.answer(Feedback("ask", _YES, by="eve", may_answer="unassigned"), 0.5) is None
    scheduler.complete("first", None, at=1.0)
    assert [*scheduler.requests.open] == ["ask"]
    [refusal] = scheduler.requests.take_refusals()
    assert "'ask' waits for ann" in refusal


def test_limit_of_an_author_travels_with_the_answer() -> None:
    message = Answer("yes", "ann", may_answer="unassigned").to_json("below/ask")
    feedback = feedback_from_json(message, through="update")
    assert (feedback.may_answer, feedback_to_json(feedback, request="ask")["may_answer"]) == ("unassigned",) * 2
    assert "may_answer" not in Answer("yes", "ann").to_json("ask")


def test_list_of_names_that_may_be_cut_may_await_anybody() -> None:
    assert [may_await(names, "boss") for names in (["ann"], ["ann", "boss"], ["x" * 100] * 12)] == [False, True, True]
