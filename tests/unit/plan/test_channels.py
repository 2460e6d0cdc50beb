"""Which way an answer came: model clients relay answers, and a plan may require one from the inbox."""

import pytest

from dagwright.contracts.feedback_messages import feedback_from_json, feedback_to_json
from dagwright.contracts.messages import MessageInvalid
from dagwright.people import Answer
from dagwright.plan.carry import carry_of, restore
from dagwright.plan.requests import CLIENT_CHANNELS, Feedback, Through
from tests.unit.plan.building import node, plan_of, problems_of, scheduler_of, started, states

_ASKING = node("ask", human={"type": "CLARIFICATION", "prompt": "Which Acme?", "channel": "inbox"})
_REJECTED = (
    "'ask' must be answered in the inbox: the plan rejects answers that arrive as a tool result or through MCP. "
    "Use `dagwright feedback`, the console, or POST /v1/runs/ID/feedback"
)


def _said(through: Through) -> Feedback:
    return Feedback("ask", {"text": "Acme Ltd"}, through=through)


@pytest.mark.parametrize("through", CLIENT_CHANNELS)
def test_plan_that_requires_the_inbox_rejects_what_a_model_client_relays(through: Through) -> None:
    scheduler = scheduler_of(_ASKING)
    started(scheduler)
    assert scheduler.refusal_of(_said(through), 1.0) == _REJECTED
    assert scheduler.answer(_said(through), 1.0) == _REJECTED
    # The next execution of the run knows it too.
    moved = scheduler_of(_ASKING)
    restore(moved, carry_of(scheduler))
    assert moved.answer(_said(through), 1.0) == _REJECTED
    assert moved.answer(_said("update"), 2.0) is None
    assert states(moved) == {"ask": "completed"}


@pytest.mark.parametrize("through", CLIENT_CHANNELS)
def test_early_answer_that_a_model_client_relays_is_rejected_too(through: Through) -> None:
    scheduler = scheduler_of(node("first"), {**_ASKING, "depends_on": ["first"]})
    assert scheduler.answer(_said(through), 0.5) == _REJECTED
    assert scheduler.requests.early == {}


def test_early_answer_is_rejected_when_its_node_asks_if_the_plan_did_not_show_the_question_before() -> None:
    human = {"type": "SELECTION", "prompt": "Which?", "options": "{{first.result}}", "channel": "inbox"}
    scheduler = scheduler_of(node("first"), node("ask", human=human))
    started(scheduler)
    early = Feedback("ask", {"selected": ["a"]}, by="ann", through="tool_result")
    assert scheduler.answer(early, 0.5) is None
    scheduler.complete("first", ["a", "b"], at=1.0)
    assert [*scheduler.requests.open] == ["ask"]
    assert scheduler.requests.take_refusals() == [f"the early answer of ann to 'ask' does not fit: {_REJECTED}"]


def test_lineage_tells_that_an_answer_came_as_a_tool_result() -> None:
    scheduler = scheduler_of(node("ask", human={"type": "CLARIFICATION", "prompt": "Which?"}))
    started(scheduler)
    assert scheduler.answer(_said("tool_result"), 1.0) is None
    assert scheduler.requests.closed["ask"].to_json()["through"] == "tool_result"


def test_document_of_a_request_names_its_channel_only_if_it_is_restricted() -> None:
    scheduler = scheduler_of(_ASKING, node("free", human={"type": "CLARIFICATION", "prompt": "Which?"}))
    started(scheduler)
    told = [request.to_json("run-1").get("channel") for request in scheduler.requests.open.values()]
    assert told == ["inbox", None]


def test_unknown_channel_is_a_problem_of_the_plan() -> None:
    problems = problems_of(plan_of(node("ask", human={"type": "APPROVAL", "prompt": "?", "channel": "phone"})))
    message = "human.channel: expected 'any' or 'inbox', not 'phone'"
    assert (problems[0].code, problems[0].message) == ("invalid_field", message)


def test_message_declares_the_channel_and_keeps_it_on_the_way_to_a_sub_plan() -> None:
    message = Answer("yes", "ann", through="tool_result").to_json("below/ask")
    assert message["through"] == "tool_result"
    feedback = feedback_from_json(message, through="update")
    assert (feedback.through, feedback_to_json(feedback, request="ask")["through"]) == ("tool_result", "tool_result")
    plain = feedback_from_json(Answer("yes", "ann").to_json("ask"), through="signal")
    assert (plain.through, "through" in feedback_to_json(plain, request="ask")) == ("signal", False)


def test_message_cannot_declare_another_channel() -> None:
    with pytest.raises(MessageInvalid, match="'through' must be tool_result or mcp"):
        feedback_from_json({"request": "a", "answer": 1, "through": "deadline"}, through="signal")
