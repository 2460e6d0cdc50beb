"""Answers that clients send to runs: responses, required scopes, and rejected answers."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.http.callers import Caller, KeyScope
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.conversation import FeedbackAnswer
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.run_models import AnswerBody
from dagwright.interfaces.http.run_outcome import deliver_answers
from dagwright.interfaces.http.run_steering import answer_run_request

CLARIFICATION = {"request_id": "find", "type": "CLARIFICATION", "prompt": "Which Anna?"}
APPROVAL = {"request_id": "check", "node_id": "check", "type": "APPROVAL", "prompt": "Publish?"}
GUIDANCE = {"request_id": "hint", "type": "GUIDANCE", "prompt": "What next?", "assignee": "bob", "opened_at": "now"}
NODES = [{"id": "steal", "tool": "http", "arguments": {"url": "https://example.com"}}]


class FakeFeedback:
    """Fake feedback client with one open request.

    Args:
        error: error of each answer; `None` if answers are accepted.
        next_request: request that follows the answer.
    """

    def __init__(self, request: Any, *, error: Exception | None = None, next_request: Any = None) -> None:
        self._request, self._error, self._next_request = request, error, next_request
        self.answers: list[Answer] = []

    async def requests_of(self, run_id: str) -> list[OpenRequest]:
        request_id = self._request["request_id"]
        return [OpenRequest(self._request, RequestRef(run_id, request_id), request_id, "")]

    async def request_ref_of(self, run_id: str, request_id: str) -> RequestRef:
        return RequestRef(run_id, request_id)

    async def answer(self, request_ref: RequestRef, answer: Answer) -> str:
        if self._error is not None:
            raise self._error
        self.answers.append(answer)
        return f"{request_ref.request_id!r} is answered"

    async def request_after(self, request_ref: RequestRef) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self._next_request)


def gateway_context(fake_feedback: FakeFeedback, caller_name: str, *scopes: KeyScope) -> GatewayContext:
    """Return the context of the gateway for a caller. The run belongs to ann."""

    async def visible_run(run_id: str) -> str:
        if caller_name != "ann":
            raise RunNotFound(run_id)
        return run_id

    caller = Caller(caller_name, frozenset(scopes), key_id="5f0c")
    runs = SimpleNamespace(feedback=fake_feedback)
    return cast(GatewayContext, SimpleNamespace(runs=runs, caller=caller, visible_run=visible_run))


@pytest.mark.parametrize(
    ("next_request", "message_suffix"),
    [
        (None, ""),
        ({"request_id": "find#2", "prompt": "Which Anna?"}, "; there is another request: find#2: Which Anna?"),
    ],
)
async def test_answer_is_reported_with_the_request_that_follows_it(next_request: Any, message_suffix: str) -> None:
    fake_feedback = FakeFeedback(CLARIFICATION, next_request=next_request)
    body = AnswerBody(request_id="find", answer="Anna", by="bob")
    response = await answer_run_request(gateway_context(fake_feedback, "ann"), "run-1", body)
    assert response == {"run_id": "run-1", "ok": True, "message": f"'find' is answered{message_suffix}"}
    assert [answer.by for answer in fake_feedback.answers] == ["ann"]


@pytest.mark.parametrize(
    ("caller_name", "scopes", "message"),
    [
        ("bob", (KeyScope.ANSWER,), "run of another owner"),
        ("bob", (*KeyScope,), "run of another owner"),
        ("ann", (KeyScope.RUN, KeyScope.ANSWER), "lacks the scope 'operate'"),
    ],
)
@pytest.mark.parametrize("request_id", [None, "hint"])
async def test_answer_with_nodes_needs_the_right_to_operate_the_run(
    caller_name: str, scopes: tuple[KeyScope, ...], message: str, request_id: str | None
) -> None:
    fake_feedback = FakeFeedback(GUIDANCE)
    body = AnswerBody(request_id=request_id, answer={"text": "see below", "nodes": NODES})
    with pytest.raises(ApiError, match=message) as error:
        await answer_run_request(gateway_context(fake_feedback, caller_name, *scopes), "run-1", body)
    assert (error.value.status, error.value.code, error.value.param) == (403, "insufficient_scope", "answer")
    assert fake_feedback.answers == []


async def test_answer_with_nodes_in_a_tool_result_needs_the_scope_operate() -> None:
    fake_feedback, text = FakeFeedback(GUIDANCE), json.dumps({"text": "see below", "nodes": NODES})
    answer = FeedbackAnswer(call_id(GUIDANCE, run_id="run-1"), "run-1", text)
    with pytest.raises(ApiError, match="lacks the scope 'operate'") as error:
        await deliver_answers(gateway_context(fake_feedback, "ann", KeyScope.RUN, KeyScope.ANSWER), [answer], by="ann")
    assert (error.value.status, error.value.code, fake_feedback.answers) == (403, "insufficient_scope", [])


@pytest.mark.parametrize(
    ("request_id", "answer", "param", "code"),
    [
        ("check", {"approved": 1}, "answer", ErrorCode.ANSWER_REJECTED),
        ("chekc", {"approved": True}, "request_id", ErrorCode.ANSWER_REJECTED),
        ("chekc", "yes", "request_id", ErrorCode.NO_OPEN_REQUEST),
    ],
)
async def test_rejected_answer_names_the_field_that_is_wrong(
    request_id: str, answer: Any, param: str, code: ErrorCode
) -> None:
    context = gateway_context(FakeFeedback(APPROVAL, error=FeedbackRejected("refused")), "ann")
    with pytest.raises(ApiError) as error:
        await answer_run_request(context, "run-1", AnswerBody(request_id=request_id, answer=answer))
    assert (error.value.code, error.value.param) == (code, param)
