"""Errors as the API reports them."""

from datetime import timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.forks import ForkRejected
from dagwright.client.runs import RunIdInUse
from dagwright.client.sessions import TurnRejected
from dagwright.client.starts import RunIdInvalid
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.validation import check_document
from dagwright.interfaces.http.errors import _MODEL_ERRORS, ApiError, api_error
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.planning.model_calls.model_requests import ModelError
from dagwright.protocol.sessions import SessionNameInvalid


def rpc(status: RPCStatusCode) -> RPCError:
    return RPCError("no", status, b"")


def reported(error: Exception) -> ApiError:
    result = api_error(error)
    assert result is not None
    return result


FORK = "rerun 'zzz': the fork has no such node or item"
USED = "the id 'run-1' belongs to a run with another plan"
SEVEN_S = timedelta(seconds=7)
FINAL = {"x-should-retry": "false"}


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (rpc(RPCStatusCode.UNAVAILABLE), 503, "unavailable", {"Retry-After": "2"}),
        (rpc(RPCStatusCode.RESOURCE_EXHAUSTED), 429, "server_busy", {"Retry-After": "2"}),
        (ForkRejected("x"), 400, "fork_refused", {}),
        (RunIdInUse("x"), 409, "idempotency_key_in_use", FINAL),
        (TurnRejected("no_worker", "x"), 503, "unavailable", {"Retry-After": "2"}),
        (TurnRejected("session_ending", "x"), 409, "session_ending", {}),
        (PlanInvalid([Problem("too_large", "x")]), 400, "too_large", {}),
        (ModelFailure(ModelError.BUSY, "x", delay=SEVEN_S), 429, "rate_limit_exceeded", {"Retry-After": "7"}),
        (ModelFailure(ModelError.QUOTA_SPENT, "x"), 429, "insufficient_quota", FINAL),
    ],
)
def test_error_has_status_code_and_headers(error: Exception, status: int, code: str, headers: dict[str, str]) -> None:
    result = reported(error)
    assert (result.status, result.code, dict(result.headers)) == (status, code, headers)
    listed = {"errors"} if isinstance(error, PlanInvalid) else set()
    assert set(result.body()["error"]) == {"message", "type", "param", "code"} | listed


def test_ids_options_and_defects_are_reported_in_terms_of_the_api() -> None:
    ids = [reported(error) for error in (RunIdInvalid("x"), SessionNameInvalid("x"))]
    assert [(each.code, each.param) for each in ids] == [("invalid_run_id", None), ("invalid_session_id", "session_id")]
    assert reported(ForkRejected(FORK)).message == FORK.removeprefix("--")
    used = reported(RunIdInUse(f"{USED}; choose another id"))
    assert used.message == f"{USED}; send another request with another Idempotency-Key"
    assert set(_MODEL_ERRORS) == set(ModelError)
    assert [api_error(error) for error in (ZeroDivisionError(), rpc(RPCStatusCode.INTERNAL))] == [None, None]


def test_hint_of_a_problem_is_shown_once() -> None:
    condition = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "when": "aa.result > 1"}]}
    with pytest.raises(PlanInvalid) as invalid:
        check_document(Document(condition), tools={"t": ToolDeclaration("t")})
    result = reported(invalid.value)
    assert result.message == str(invalid.value) == "when: there is no node 'aa' (did you mean 'a'?)"
    (problem,) = result.errors
    assert (problem["message"], problem["hint"]) == ("when: there is no node 'aa'", "did you mean 'a'?")
