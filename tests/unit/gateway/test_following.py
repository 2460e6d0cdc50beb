"""What a client is told of a run that has answered."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.feed import RunView
from dagwright.gateway.callers import Caller
from dagwright.gateway.errors import ApiError
from dagwright.gateway.following import Moment, answer_text, outcome_of

VIEW = RunView("run-1", "first", "completed_with_failures", None, None, {}, None, None, is_closed=True)


async def _about(error: Any) -> Any:
    async def document(_: RunView) -> Any:
        return {"output": "Six.", "error": error}

    desk: Any = SimpleNamespace(runs=SimpleNamespace(document=document), caller=None)
    return (await outcome_of(cast(Any, desk), Moment(VIEW, (), []), session=None, words="")).about


async def test_answer_says_why_its_run_is_not_completed() -> None:
    about: dict[str, Any] = {"run_id": "run-1", "session_id": None, "status": "completed_with_failures", "nodes": {}}
    error = {"code": "max_rounds", "message": "all 2 rounds are used", "node": None}
    assert await _about(error) == {**about, "error": {"code": "max_rounds", "message": "all 2 rounds are used"}}
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
        await outcome_of(cast(Any, desk), Moment(view, (), []), session="ann:main", words="")
    return refused.value


async def test_run_that_was_cancelled_says_by_whom_and_why_and_nothing_of_an_output_that_is_not_there() -> None:
    note = {"code": "cancel", "node": None, "message": "cancelled by ann: wrong figures"}
    error = await _error("cancelled", notes=[note])
    assert str(error) == "the run 'run-1' was cancelled by ann: wrong figures; `dagwright why run-1` says more"
    assert str(await _error("cancelled")) == "the run 'run-1' was cancelled; `dagwright why run-1` says more"
    assert (error.status, error.code) == (422, "run_cancelled")


async def test_error_of_a_run_names_it_in_a_field_and_in_headers() -> None:
    error = await _error("failed", error={"code": "deadline", "message": "20m are over", "node": None})
    about = error.body()["dagwright"]
    assert (about["run_id"], about["session_id"], about["status"]) == ("run-1", "main", "failed")
    assert about["error"] == {"code": "deadline", "message": "20m are over"}
    named = {"X-Run-Id": "run-1", "X-Session-Id": "main", "x-should-retry": "false"}
    assert (error.headers, error.code) == (named, "deadline")
    assert "failed: deadline: 20m are over" in str(error)
