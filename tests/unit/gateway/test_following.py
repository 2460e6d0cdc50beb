"""What a client is told of a run that has answered."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.feedback import Answer, AnswerRefused, OpenRequest, Place
from dagwright.client.following import RunMoment
from dagwright.history.run_reader import RunClosed, RunView
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.conversation import GivenAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.following import answer_text, give_answers, outcome_of

VIEW = RunView("run-1", "first", "completed_with_failures", None, None, {}, None, None, is_closed=True)


async def _about(error: Any) -> Any:
    async def document(_: RunView) -> Any:
        return {"output": "Six.", "error": error}

    desk: Any = SimpleNamespace(runs=SimpleNamespace(document=document), caller=None)
    return (await outcome_of(cast(Any, desk), RunMoment(VIEW, (), []), session=None)).about


async def test_answer_says_why_its_run_is_not_completed() -> None:
    about: dict[str, Any] = {"run_id": "run-1", "session_id": None, "status": "completed_with_failures", "nodes": {}}
    error = {"code": "max_rounds", "message": "all 2 rounds are used", "node": None}
    assert await _about(error) == {**about, "error": error}
    assert await _about(None) == about


async def test_answer_without_words_is_told_as_json_for_a_chat_would_show_nothing() -> None:
    document: dict[str, Any] = {
        "workflow_id": "run-1",
        "status": "completed",
        "output": None,
        "error": None,
        "nodes": {},
    }
    assert answer_text(VIEW, document) == "null"
    assert answer_text(VIEW, {**document, "output": {}}) == "{}"


async def _error(status: str, **document: Any) -> ApiError:
    told = {"workflow_id": "run-1", "status": status, "output": "done null", "error": None, "notes": [], **document}

    async def read(_: RunView) -> Any:
        return told

    async def settled(_: str, __: str) -> None:
        return

    view = RunView("run-1", "first", status, None, None, {}, None, None, is_closed=True)
    runs, sessions = SimpleNamespace(document=read), SimpleNamespace(settled=settled)
    desk: Any = SimpleNamespace(runs=runs, sessions=sessions, caller=Caller("ann"))
    with pytest.raises(ApiError) as refused:
        await outcome_of(cast(Any, desk), RunMoment(view, (), []), session="ann:main")
    return refused.value


async def test_run_that_was_cancelled_says_by_whom_and_why_and_nothing_of_an_output_that_is_not_there() -> None:
    note = {"code": "cancel", "node": None, "message": "cancelled by ann: wrong figures"}
    error = await _error("cancelled", notes=[note])
    more = "`dagwright why run-1` or GET /v1/runs/run-1/why has the details"
    assert str(error) == f"the run 'run-1' was cancelled by ann: wrong figures; {more}"
    assert str(await _error("cancelled")) == f"the run 'run-1' was cancelled; {more}"
    assert (error.status, error.code) == (422, "run_cancelled")


async def test_error_of_a_run_names_it_in_a_field_and_in_headers() -> None:
    error = await _error("failed", error={"code": "deadline", "message": "20m are over", "node": None})
    about = error.body()["dagwright"]
    assert (about["run_id"], about["session_id"], about["status"]) == ("run-1", "main", "failed")
    assert about["error"] == {"code": "deadline", "message": "20m are over", "node": None}
    named = {"X-Run-Id": "run-1", "X-Session-Id": "main", "x-should-retry": "false"}
    assert (error.headers, error.code) == (named, "deadline")
    assert "failed: deadline: 20m are over" in str(error)
    # Clients retry a `server_error`, and a retry would start another run.
    assert error.type == "run_error"


class Asking:
    """People of a run that asks one thing, and an answer that comes between the look and the other answers.

    Args:
        refusal: what those are told then.
        is_taken: whether that answer fits.
    """

    def __init__(self, refusal: Exception, *, is_taken: bool) -> None:
        document = {"id": "check", "type": "APPROVAL", "opened_at": "2026-01-01T00:00:00Z"}
        self.asked = [OpenRequest(document, Place("run-1", "check"), "check")]
        self._refusal = refusal
        self._is_taken = is_taken

    async def requests_of(self, _: str) -> list[OpenRequest]:
        return [*self.asked]

    async def answer(self, _: Place, __: Answer) -> str:
        if self._is_taken:
            self.asked.clear()
        raise self._refusal

    async def given(self) -> set[tuple[str, str]]:
        desk: Any = SimpleNamespace(runs=SimpleNamespace(people=self), caller=Caller())
        answer = GivenAnswer(call_id(self.asked[0].document, run="run-1"), "run-1", "yes")
        return await give_answers(desk, [answer], by=None)


@pytest.mark.parametrize("refusal", [AnswerRefused("'check' was answered by ann"), RunClosed("it has ended")])
async def test_what_somebody_else_answers_at_the_same_time_is_answered(refusal: Exception) -> None:
    # The run may not be seen to ask no more for a moment, so the client would be asked again.
    assert await Asking(refusal, is_taken=True).given() == {("check", "2026-01-01T00:00:00Z")}


async def test_answer_that_is_refused_while_the_question_stays_is_told_so() -> None:
    with pytest.raises(AnswerRefused, match="must be"):
        await Asking(AnswerRefused("it must be one of three"), is_taken=False).given()
