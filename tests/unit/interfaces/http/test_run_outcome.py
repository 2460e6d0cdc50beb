"""The answer of a run as clients receive it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.client.run_follower import RunMoment
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.history.run_view import RunView
from dagwright.history.text_stream import PartialText
from dagwright.interfaces.http import completions
from dagwright.interfaces.http.answer_stream import ANSWER_RESTARTS, NEXT_TURN, ReceivedAnswer
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.conversation import FeedbackAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.request_fields import StreamProgress
from dagwright.interfaces.http.run_outcome import RunOutcome, answer_text, deliver_answers, outcome_of
from dagwright.interfaces.http.run_requests import RunBackedRequest

VIEW = RunView("run-1", "first", "completed_with_failures", None, None, {}, None, None, is_closed=True)


def _context(document: Any, **fields: Any) -> Any:
    async def read(_: RunView) -> Any:
        return document

    return SimpleNamespace(runs=SimpleNamespace(document=read), **fields)


async def _run_fields(error: Any) -> Any:
    context = _context({"output": "Six.", "error": error}, caller=None)
    return (await outcome_of(context, RunMoment(VIEW, (), []), session_name=None)).run_fields


async def test_answer_has_the_error_of_its_run() -> None:
    run_fields: dict[str, Any] = {
        "run_id": "run-1",
        "session_id": None,
        "status": "completed_with_failures",
        "node_counts": {},
    }
    error = {"code": "max_rounds", "message": "all 2 rounds are used", "node_id": None}
    assert await _run_fields(error) == {**run_fields, "error": error}
    assert await _run_fields(None) == run_fields


async def test_answer_without_text_is_json_because_a_chat_would_show_nothing() -> None:
    document: dict[str, Any] = {"run_id": "run-1", "status": "completed", "error": None, "nodes": {}}
    outputs: list[Any] = [None, {}]
    assert [answer_text(VIEW, {**document, "output": output}) for output in outputs] == ["null", "{}"]


async def _error_of_run(status: str, **document: Any) -> ApiError:
    async def wait_for_turn_end(_: str, __: str) -> None:
        return

    fields = {"run_id": "run-1", "status": status, "output": "done null", "error": None, "notes": [], **document}
    context = _context(fields, sessions=SimpleNamespace(wait_for_turn_end=wait_for_turn_end), caller=Caller("ann"))
    with pytest.raises(ApiError) as error:
        await outcome_of(context, RunMoment(replace(VIEW, status=status), (), []), session_name="ann:main")
    return error.value


async def test_error_of_a_cancelled_run_names_actor_and_reason() -> None:
    note = {"code": "cancel", "node_id": None, "message": "cancelled by ann: wrong figures"}
    error = await _error_of_run("cancelled", notes=[note])
    details_hint = "`dagwright explain run-1` or GET /v1/runs/run-1/explain has the details"
    assert str(error) == f"the run 'run-1' was cancelled by ann: wrong figures; {details_hint}"
    assert str(await _error_of_run("cancelled")) == f"the run 'run-1' was cancelled; {details_hint}"
    assert (error.status, error.code) == (422, "run_cancelled")


async def test_error_of_a_run_names_the_run_in_a_field_and_in_headers() -> None:
    error = await _error_of_run("failed", error={"code": "deadline", "message": "20m are over", "node_id": None})
    run_fields = error.body()["dagwright"]
    expected = ("run-1", "main", "failed")
    assert (run_fields["run_id"], run_fields["session_id"], run_fields["status"]) == expected
    assert run_fields["error"] == {"code": "deadline", "message": "20m are over", "node_id": None}
    headers = {"X-Run-Id": "run-1", "X-Session-Id": "main", "x-should-retry": "false"}
    assert (error.headers, error.code) == (headers, "deadline")
    assert "failed: deadline: 20m are over" in str(error)
    # Clients retry a `server_error`, and a retry would start another run.
    assert error.type == "run_error"


class FakeRunWithRequest:
    """Fake run with one request, which another client may answer before the answer of this client arrives.

    Args:
        answer_error: error of the answer of this client.
        is_answered: whether the answer of the other client was accepted.
    """

    def __init__(self, answer_error: Exception, *, is_answered: bool) -> None:
        document = {"request_id": "check", "type": "APPROVAL", "opened_at": "2026-01-01T00:00:00Z"}
        self.requests = [OpenRequest(document, RequestRef("run-1", "check"), "check")]
        self._answer_error, self._is_answered = answer_error, is_answered

    async def requests_of(self, _: str) -> list[OpenRequest]:
        return [*self.requests]

    async def answer(self, _: RequestRef, __: Answer) -> str:
        if self._is_answered:
            self.requests.clear()
        raise self._answer_error

    async def deliver(self) -> set[tuple[str, str]]:
        context: Any = SimpleNamespace(runs=SimpleNamespace(feedback=self), caller=Caller())
        answer = FeedbackAnswer(call_id(self.requests[0].document, run_id="run-1"), "run-1", "yes")
        return await deliver_answers(context, [answer], by=None)


@pytest.mark.parametrize("answer_error", [FeedbackRejected("'check' was answered by ann"), RunClosed("it has ended")])
async def test_request_answered_by_another_client_counts_as_answered(answer_error: Exception) -> None:
    # Otherwise, the client could get the request again, because the run may still list it for a moment.
    assert await FakeRunWithRequest(answer_error, is_answered=True).deliver() == {("check", "2026-01-01T00:00:00Z")}


async def test_rejected_answer_is_reported_while_the_question_stays_open() -> None:
    with pytest.raises(FeedbackRejected, match="must be"):
        await FakeRunWithRequest(FeedbackRejected("it must be one of three"), is_answered=False).deliver()


def _received_text(*polls: tuple[str, int, str], final_text: str, request_count: int = 0) -> str:
    """Return the text that a client receives.

    Args:
        polls: node, attempt and text of each poll.
        final_text: the answer, or the text of the requests.
        request_count: number of requests at the end.
    """
    received_answer, text = ReceivedAnswer(), ""
    for node_id, attempt, polled_text in polls:
        part = received_answer.delivered_text.next_part(PartialText(node_id, attempt, polled_text))
        text += received_answer.text_for(part) if part is not None else ""
    return text + received_answer.remaining_text(RunOutcome(final_text, [{"request_id": "q"}] * request_count, {}, {}))


ANSWER, TURN = "answer", "turn1"


@pytest.mark.parametrize(
    ("polls", "final_text", "expected"),
    [
        ([], "Four.", "Four."),
        ([], "", ""),
        ([(ANSWER, 1, "Fo")], "Four.", "Four."),
        ([(ANSWER, 1, "Fo"), (ANSWER, 2, "Fo")], "Four.", "Four."),
        ([(ANSWER, 1, "Five"), (ANSWER, 2, "Four")], "Four.", f"Five{ANSWER_RESTARTS}Four."),
        ([("answer", 1, "Some"), ("answer#2", 1, "Four")], "Four.", f"Some{ANSWER_RESTARTS}Four."),
        ([(ANSWER, 1, "Five")], "Four.", f"Five{ANSWER_RESTARTS}Four."),
        ([("it/turn1", 1, "Let me add."), ("it/turn2", 1, "Fo")], "Four.", f"Let me add.{NEXT_TURN}Four."),
        ([(TURN, 1, "Let me add.")], "Four.", f"Let me add.{NEXT_TURN}Four."),
        ([(TURN, 1, "Five"), ("turn1#2", 1, "Four")], "Four.", f"Five{ANSWER_RESTARTS}Four."),
    ],
)
def test_each_word_is_sent_once_with_restarts_marked(
    polls: list[tuple[str, int, str]], final_text: str, expected: str
) -> None:
    assert _received_text(*polls, final_text=final_text) == expected


def test_request_follows_the_text_before_it() -> None:
    assert _received_text(final_text="Which?", request_count=1) == "Which?"
    text = _received_text((TURN, 1, "I found two."), final_text="Which?", request_count=1)
    assert text == f"I found two.{NEXT_TURN}Which?"


async def test_key_without_scopes_may_follow_the_answer_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed_requests: list[tuple[RunBackedRequest, bool]] = []

    async def stream_run(_: GatewayContext, run_request: RunBackedRequest, *, with_usage: bool) -> Response:
        streamed_requests.append((run_request, with_usage))
        return Response()

    async def visible_run(run_id: str) -> str:
        return run_id

    async def session_name_of(run_id: str) -> str:
        if run_id != "run-1":
            raise RunNotFound(run_id)
        return "ann:main"

    monkeypatch.setattr(completions, "_respond_with_stream", stream_run)
    fields = {"caller": Caller("ann", frozenset()), "reserve_stream": lambda: None, "active_starts": []}
    context: Any = SimpleNamespace(
        visible_run=visible_run, runs=SimpleNamespace(session_name_of=session_name_of), **fields
    )
    request = Request({"type": "http", "headers": []})
    with pytest.raises(RunNotFound):
        await completions.stream_answer("run-2", request, context, stream_progress=StreamProgress.PROGRESS)
    await completions.stream_answer("run-1", request, context, stream_progress=StreamProgress.PROGRESS)
    ((run_request, with_usage),) = streamed_requests
    options = run_request.options
    assert (run_request.run_id, run_request.session_name, run_request.session_id) == ("run-1", "ann:main", "main")
    assert (options.stream_progress, options.cancel_on_disconnect) == (StreamProgress.PROGRESS, False)
    assert (run_request.start, [*run_request.conversation.answers], with_usage) == (None, [], True)
