"""What a client is told of an error."""

from datetime import timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.forks import ForkRefused
from dagwright.client.runs import IdInUse
from dagwright.client.sessions import TurnNotTaken
from dagwright.client.starts import IdInvalid
from dagwright.core.model.document import Document
from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.validation import check_document
from dagwright.interfaces.http.errors import _OF_MODEL, told_as
from dagwright.planning.model_calls.calls import ModelError
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.protocol.sessions import SessionNameInvalid


def rpc(status: RPCStatusCode) -> RPCError:
    return RPCError("no", status, b"")


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (rpc(RPCStatusCode.UNAVAILABLE), 503, "unavailable", {"Retry-After": "2"}),
        (rpc(RPCStatusCode.RESOURCE_EXHAUSTED), 429, "server_busy", {"Retry-After": "2"}),
        (ForkRefused("x"), 400, "fork_refused", {}),
        (IdInUse("x"), 409, "idempotency_key_in_use", {"x-should-retry": "false"}),
        (TurnNotTaken("no_worker", "x"), 503, "unavailable", {"Retry-After": "2"}),
        (TurnNotTaken("session_ending", "x"), 409, "session_ending", {}),
        (PlanInvalid([Problem("too_large", "x")]), 400, "too_large", {}),
        (
            ModelFailure(ModelError.BUSY, "x", delay=timedelta(seconds=7)),
            429,
            "rate_limit_exceeded",
            {"Retry-After": "7"},
        ),
        (ModelFailure(ModelError.QUOTA_SPENT, "x"), 429, "insufficient_quota", {"x-should-retry": "false"}),
    ],
)
def test_error_has_a_status_a_code_and_what_clients_heed(
    error: Exception, status: int, code: str, headers: dict[str, str]
) -> None:
    told = told_as(error)
    assert told is not None
    assert (told.status, told.code, dict(told.headers)) == (status, code, headers)
    listed = {"errors"} if isinstance(error, PlanInvalid) else set()
    assert set(told.body()["error"]) == {"message", "type", "param", "code"} | listed


def test_wrong_id_of_a_run_is_not_told_as_that_of_a_session() -> None:
    run, session = told_as(IdInvalid("x")), told_as(SessionNameInvalid("x"))
    assert run is not None
    assert session is not None
    assert [(each.code, each.param) for each in (run, session)] == [
        ("invalid_run_id", None),
        ("invalid_session_id", "session_id"),
    ]


def test_every_failure_of_a_model_is_known() -> None:
    assert set(_OF_MODEL) == set(ModelError)


def test_what_nobody_expected_is_a_defect() -> None:
    assert told_as(ZeroDivisionError()) is None
    assert told_as(rpc(RPCStatusCode.INTERNAL)) is None


def test_what_commands_say_of_options_and_ids_is_told_in_words_of_the_api() -> None:
    fork = told_as(ForkRefused("--rerun zzz: the fork has no such node or item"))
    used = told_as(IdInUse("the id 'run-1' belongs to a run with another plan; choose another id"))
    assert fork is not None
    assert used is not None
    assert fork.message == "rerun zzz: the fork has no such node or item"
    belongs = "the id 'run-1' belongs to a run with another plan"
    assert used.message == f"{belongs}; send another request with another Idempotency-Key"


def test_hint_of_a_problem_is_shown_once() -> None:
    condition = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "when": "aa.result > 1"}]}
    with pytest.raises(PlanInvalid) as invalid:
        check_document(Document(condition), tools={"t": ToolDeclaration("t")})
    told = told_as(invalid.value)
    assert told is not None
    assert told.message == str(invalid.value) == "when: there is no node 'aa' (did you mean 'a'?)"
    assert [(each["message"], each["hint"]) for each in told.errors] == [
        ("when: there is no node 'aa'", "did you mean 'a'?")
    ]
