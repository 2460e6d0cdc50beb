"""Requests to people: escalation, who may answer and how, and requests of a running tool."""

from typing import Any

import pytest

from dagwright.client.feedback.open_requests import Answer
from dagwright.core.model.requests import CLIENT_CHANNELS, Feedback, MessageSource, RaisedQuestion
from dagwright.features.explain.reasons import reason_of
from dagwright.features.explain.why import Chain, sentence
from dagwright.features.feedback.request_opening import MAX_CALL_ANSWERS_BYTES
from dagwright.features.run_scheduler import RunScheduler
from dagwright.interfaces.cli.node_text import closing_text
from dagwright.protocol.command_messages import feedback_from_json, feedback_to_json
from dagwright.protocol.documents import node_document
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.ready_calls import next_call
from tests.support.plan_building import (
    answer_request,
    early_answers,
    node,
    open_requests,
    plan_of,
    problems_of,
    raise_question,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    statuses_of,
    take_rejections,
)

_ESCALATIONS = {
    "escalate": "boss",
    "then": {"escalate": "ceo", "then": {"default": {"approved": False, "reason": "late"}}},
}


def _node_with_request(**fields: Any) -> dict[str, Any]:
    human = {"type": "APPROVAL", "prompt": "Publish?", "assignee": "ann", "deadline": "10s", "on_timeout": _ESCALATIONS}
    return node("ask", human=human | fields)


def _scheduler(**fields: Any) -> RunScheduler:
    return started_run(_node_with_request(**fields))


def _answers(scheduler: RunScheduler) -> list[dict[str, Any]]:
    number = scheduler.state.number_of("ask")
    assert number is not None
    plan_node, record = scheduler.plan.nodes[number], scheduler.records[number]
    answers: list[dict[str, Any]] = node_document(scheduler, "ask", node=plan_node, record=record)["lineage"]["answers"]
    return answers


def test_escalation_changes_the_assignee_and_ends_with_the_default() -> None:
    scheduler = _scheduler()
    assignees = []
    for at in (0.0, 10.0, 20.0):
        scheduler.advance(at)
        assignees.append(open_requests(scheduler)["ask"].assignee)
    assert assignees == ["ann", "boss", "ceo"]
    assert scheduler.next_timer == 30.0
    scheduler.advance(30.0)
    assert statuses_of(scheduler) == {"ask": "completed"}
    [answer] = _answers(scheduler)
    assert answer == {
        **{"request_id": "ask", "outcome": "answered", "answer": "rejected", "by": None},
        **{"source": "deadline", "note": None},
        "at": "1970-01-01T00:00:30.000Z",
        "requested_from": "ann",
        "requested_at": "1970-01-01T00:00:00.000Z",
        "escalations": [
            {"from": "ann", "to": "boss", "at": "1970-01-01T00:00:10.000Z"},
            {"from": "boss", "to": "ceo", "at": "1970-01-01T00:00:20.000Z"},
        ],
    }


def test_escalation_is_in_the_request_the_reason_and_the_text_of_the_answer() -> None:
    scheduler = _scheduler()
    scheduler.advance(10.0)
    request = open_requests(scheduler)["ask"].to_json("run-1")
    assert request["escalations"] == [{"from": "ann", "to": "boss", "at": "1970-01-01T00:00:10.000Z"}]
    reason = reason_of(scheduler, "ask")
    assert (reason.message, reason.since) == ("waits for boss", 10.0)
    assert sentence(Chain([reason]), reason, time_formatter=lambda at: f"{at:g} s") == (
        "ask waits for boss since 10 s until 20 s, requested from ann at 0 s, escalated to boss at 10 s (Publish?)"
    )
    # The next execution of the run has the escalation too.
    successor = restored_scheduler(scheduler)
    assert answer_request(successor, "ask", {"approved": True}, by="mallory", at=11.0) is None
    [answer] = _answers(successor)
    assert (answer["by"], answer["requested_from"], answer["escalations"]) == ("mallory", "ann", request["escalations"])
    text = closing_text(answer)
    assert "approved by mallory at " in text
    assert "; requested from ann at " in text
    assert ", escalated to boss at " in text


def test_last_escalation_expires_and_answer_to_an_unassigned_request_has_no_assignees() -> None:
    scheduler = _scheduler(on_timeout={"escalate": "boss"})
    scheduler.advance(10.0)
    scheduler.advance(20.0)
    assert statuses_of(scheduler) == {"ask": "failed"}
    assert scheduler.plan.nodes[0].arguments["on_timeout"] == {"escalate": "boss"}
    assert _answers(scheduler)[0]["outcome"] == "expired"
    scheduler = _scheduler(assignee=None)
    answer_request(scheduler, "ask", {"approved": True}, by="ann", at=1.0)
    assert {*_answers(scheduler)[0]} == {"request_id", "outcome", "answer", "by", "at", "source", "note"}


@pytest.mark.parametrize(
    ("on_timeout", "message"),
    [
        ({"escalate": "a", "then": {"default": {"text": "x"}}}, "the default does not fit the question"),
        ({"escalate": "a", "then": {"escalate": " "}}, "expected the assignee to escalate to"),
        (
            {"escalate": "a", "then": "wait"},
            "human.on_timeout: expected fail, {default: …} or {escalate: …, then: …}, not",
        ),
    ],
)
def test_invalid_escalation_step_is_a_problem_of_the_plan(on_timeout: Any, message: str) -> None:
    problem, *_ = problems_of(plan_of(_node_with_request(on_timeout=on_timeout)))
    assert message in problem.message
    assert problem.pointer.startswith("/nodes/0/human/on_timeout")


_YES = {"approved": True}
_INBOX_NODE = node("ask", human={"type": "CLARIFICATION", "prompt": "Which Acme?", "channel": "inbox"})
_INBOX_REJECTION = (
    "'ask' must be answered in the inbox: the plan rejects answers that arrive as a tool result or through MCP. "
    "Use `dagwright feedback`, the console, or POST /v1/runs/ID/feedback"
)


def test_api_key_answers_only_the_requests_that_its_permission_allows() -> None:
    scheduler = _scheduler()
    mallory_answer = Feedback("ask", _YES, by="mallory", may_answer="unassigned")
    boss_answer = Feedback("ask", _YES, by="boss", may_answer="unassigned")
    rejection = scheduler.features.feedback.answer(mallory_answer, 1.0) or ""
    assert rejection.startswith("'ask' waits for ann: only a key of the owner 'ann'")
    assert scheduler.features.feedback.rejection_of(boss_answer, 1.0) is not None
    # After the escalation, only the new assignee may answer.
    assert answer_request(scheduler, "ask", _YES, by="ann", may_answer="unassigned", at=10.0) is not None
    assert scheduler.features.feedback.answer(boss_answer, 10.0) is None
    assert statuses_of(scheduler) == {"ask": "completed"}
    scheduler = _scheduler(assignee=None)
    answer_for_assigned_requests = Feedback("ask", _YES, by="boss", may_answer="assigned")
    assert scheduler.features.feedback.answer(answer_for_assigned_requests, 1.0) == "'ask' is not assigned to boss"
    assert answer_request(scheduler, "ask", _YES, by="eve", may_answer="unassigned", at=1.0) is None


def test_early_answer_is_checked_when_its_node_asks() -> None:
    scheduler = started_run(node("first"), {**_node_with_request(), "depends_on": ["first"]})
    assert answer_request(scheduler, "ask", _YES, by="eve", may_answer="unassigned", at=0.5) is None
    scheduler.complete("first", None, at=1.0)
    assert [*open_requests(scheduler)] == ["ask"]
    [rejection] = take_rejections(scheduler)
    assert "'ask' waits for ann" in rejection
    human = {"type": "SELECTION", "prompt": "Which?", "options": "{{first.result}}", "channel": "inbox"}
    scheduler = started_run(node("first"), node("ask", human=human))
    answer = {"selected": ["a"]}
    assert answer_request(scheduler, "ask", answer, by="ann", source="tool_result", at=0.5) is None
    scheduler.complete("first", ["a", "b"], at=1.0)
    assert [*open_requests(scheduler)] == ["ask"]
    rejection = f"the early answer of ann to 'ask' is invalid: {_INBOX_REJECTION}"
    assert take_rejections(scheduler) == [rejection]


def test_answer_message_has_the_permission_of_the_api_key_if_one_is_set() -> None:
    message = Answer("yes", "ann", may_answer="unassigned").to_json("child/ask")
    feedback = feedback_from_json(message, source="update")
    assert (feedback.may_answer, feedback_to_json(feedback, request_id="ask")["may_answer"]) == ("unassigned",) * 2
    assert "may_answer" not in Answer("yes", "ann").to_json("ask")


def _feedback(source: MessageSource) -> Feedback:
    return Feedback("ask", {"text": "Acme Ltd"}, source=source)


@pytest.mark.parametrize("source", CLIENT_CHANNELS)
def test_plan_that_requires_the_inbox_rejects_answers_of_model_clients(source: MessageSource) -> None:
    scheduler = started_run(_INBOX_NODE)
    assert scheduler.features.feedback.rejection_of(_feedback(source), 1.0) == _INBOX_REJECTION
    assert scheduler.features.feedback.answer(_feedback(source), 1.0) == _INBOX_REJECTION
    # The next execution of the run rejects such answers too.
    successor = restored_scheduler(scheduler)
    assert successor.features.feedback.answer(_feedback(source), 1.0) == _INBOX_REJECTION
    assert successor.features.feedback.answer(_feedback("update"), 2.0) is None
    assert statuses_of(successor) == {"ask": "completed"}
    early_run = scheduler_of(node("first"), {**_INBOX_NODE, "depends_on": ["first"]})
    assert early_run.features.feedback.answer(_feedback(source), 0.5) == _INBOX_REJECTION
    assert early_answers(early_run) == {}


def test_lineage_has_the_channel_of_the_answer_and_request_has_its_required_channel() -> None:
    scheduler = started_run(node("ask", human={"type": "CLARIFICATION", "prompt": "Which?"}))
    assert scheduler.features.feedback.answer(_feedback("tool_result"), 1.0) is None
    assert scheduler.features.feedback.requests.closed["ask"].to_json()["source"] == "tool_result"
    scheduler = started_run(_INBOX_NODE, node("free", human={"type": "CLARIFICATION", "prompt": "Which?"}))
    channels = [request.to_json("run-1").get("channel") for request in open_requests(scheduler).values()]
    assert channels == ["inbox", None]
    problems = problems_of(plan_of(node("ask", human={"type": "APPROVAL", "prompt": "?", "channel": "phone"})))
    message = "human.channel: expected 'any' or 'inbox', not 'phone'"
    assert (problems[0].code, problems[0].message) == ("invalid_field", message)


def test_message_keeps_its_channel_when_it_is_forwarded_to_a_sub_plan() -> None:
    message = Answer("yes", "ann", source="tool_result").to_json("child/ask")
    assert message["source"] == "tool_result"
    feedback = feedback_from_json(message, source="update")
    assert (feedback.source, feedback_to_json(feedback, request_id="ask")["source"]) == ("tool_result", "tool_result")
    feedback = feedback_from_json(Answer("yes", "ann").to_json("ask"), source="signal")
    assert (feedback.source, "source" in feedback_to_json(feedback, request_id="ask")) == ("signal", False)
    with pytest.raises(MessageInvalid, match="'source' must be tool_result or mcp"):
        feedback_from_json({"request_id": "a", "answer": 1, "source": "deadline"}, source="signal")


def _ask_and_answer(scheduler: RunScheduler, text: str, *, checkpoint: Any = None) -> str | None:
    """Start the only node and answer its request. Return the error if no request could be opened."""
    start_ready_tasks(scheduler)
    problem = raise_question(scheduler, "n", RaisedQuestion("Go on?", checkpoint), at=1.0)
    if problem is None:
        [request_id] = open_requests(scheduler)
        assert answer_request(scheduler, request_id, {"text": text}, by="ann", at=2.0) is None
    return problem


def test_call_gets_all_its_answers_up_to_a_size_limit() -> None:
    scheduler = scheduler_of(node("n"))
    for number in range(3):
        assert _ask_and_answer(scheduler, f"answer {number}", checkpoint=number) is None
    [task] = start_ready_tasks(scheduler, at=3.0)
    assert list(task.answers) == [
        {"request_id": "n", "answer": {"text": "answer 0"}},
        {"request_id": "n#2", "answer": {"text": "answer 1"}},
        {"request_id": "n#3", "answer": {"text": "answer 2"}, "checkpoint": 2},
    ]
    scheduler = scheduler_of(node("n"))
    assert _ask_and_answer(scheduler, "x" * 10_000) is None
    ready_call = next_call(scheduler, 3.0)
    assert ready_call is not None
    assert ready_call.size_bytes > 10_000
    scheduler = scheduler_of(node("n"))
    text = "x" * 200_000
    expected = [*[None] * 3, f"its answers have over {MAX_CALL_ANSWERS_BYTES:,} bytes, and it asks again"]
    assert [_ask_and_answer(scheduler, text) for _ in range(4)] == expected
    assert statuses_of(scheduler) == {"n": "failed"}
