"""Errors of the API, all in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

One function maps whatever the parts below raise to a status; what it does not know is a defect, told without its
details. A client of OpenAI's tries 408, 409, 429 and 5xx again by itself, so what would only start the same work again
says `x-should-retry: false`, which those clients heed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.feedback import FeedbackRejected
from dagwright.client.forks import ForkRefused
from dagwright.client.runs import RunIdInUse
from dagwright.client.sessions import SessionNotFound, TurnNotTaken
from dagwright.client.starts import IdInvalid
from dagwright.client.steering import CommandRejected
from dagwright.core.expressions.references import cut_name
from dagwright.core.model.errors import PlanInvalid
from dagwright.dialects.json_reader import MAX_DEPTH
from dagwright.history.explaining import NodeUnknown
from dagwright.history.run_reader import RunClosed, RunNotFound
from dagwright.interfaces.http.body_problems import describe
from dagwright.interfaces.http.examples import ERRORS
from dagwright.interfaces.http.headers import header_descriptions
from dagwright.interfaces.http.request_ids import REQUEST_ID
from dagwright.planner import GoalRefused
from dagwright.planning.model_calls.calls import ModelError
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.process.health import DRAINING
from dagwright.protocol.sessions import SessionNameInvalid
from dagwright.server import NO_ANSWER, ServerUnreachable
from dagwright.store import StoreError

INVALID = "invalid_request_error"
SERVER = "server_error"
RUN_ERROR = "run_error"
"""A run that gives no answer. Clients retry a `server_error`, and a retry would start another run."""
CLIENT_GONE = 499
"""What is answered to nobody: the log of the server shows it."""
RETRY_AFTER_S = 2
"""After which a client may try again that met a Temporal server that did not answer."""
NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}

_MESSAGES = "messages"
_OF_MODELS = ("/v1/chat/", "/v1/responses")
"""Requests that have messages."""
_FEEDBACK = "/feedback"
_PROBLEMS_TOLD = 5
_PROBLEMS_LISTED = 100
_BY_COMMAND, _BY_REQUEST = "start it anew with `run`", "start it anew"
_UNREAD = "There was an error parsing the body"
"""What FastAPI says of a body that Python's reader gives up."""
_TOO_LARGE = "larger than max"
"""In the error of gRPC for a message that is too large; the status is that of a busy server."""
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.http")


@dataclass(eq=False)
class ApiError(Exception):
    """What a client is told in place of an answer.

    Args:
        param: the field of the request that is wrong.
        code: one word that programs may go by.
        about: the run that it is about, as the object `dagwright` of an answer.
        errors: problems of an invalid plan, each with its JSON Pointer.
    """

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] | None = None
    errors: Sequence[Mapping[str, Any]] = ()

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """Returns the body of the answer."""
        told: dict[str, Any] = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
            **({"errors": [dict(each) for each in self.errors]} if self.errors else {}),
        }
        return {"error": told, **({} if self.about is None else {"dagwright": dict(self.about)})}

    def response(self) -> JSONResponse:
        """Returns the answer."""
        return JSONResponse(self.body(), self.status, headers=dict(self.headers))


class ErrorFacts(BaseModel):
    """What went wrong, and what to do."""

    message: str
    type: str
    # FastAPI leaves nulls out of examples.
    param: str | None = None
    code: str | None = None
    errors: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of an invalid plan or invalid inputs: each problem with `code`, `pointer` and "
        "`message`; of a plan that is a text with its `line`.",
    )


class ErrorBody(BaseModel):
    """Every answer that is an error."""

    error: ErrorFacts
    dagwright: dict[str, Any] | None = Field(default=None, description="If it is about a run: which one.")


_STATUSES: Mapping[int, str] = {
    400: "What is wrong with the request.",
    401: "There is no key, or none that is known.",
    403: "The key may not do that; or without keys, the page of another site asks.",
    404: "There is no such model, run or address.",
    409: "The session waits for an answer, the run has ended, or the key is another request's.",
    413: "The body is too large.",
    422: "The run failed or was cancelled.",
    429: "The service, or the server, has too much to do, or the caller does too much.",
    502: "The service answered what is of no use.",
    503: "The service, or Temporal, does not answer.",
}
_HEADERS: Mapping[int, Sequence[str]] = {
    409: ("x-should-retry",),
    422: ("X-Run-Id", "X-Session-Id", "x-should-retry"),
    429: ("Retry-After", "x-should-retry"),
    503: ("Retry-After", "x-should-retry"),
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {
        "model": ErrorBody,
        "description": words,
        "content": {"application/json": {"example": dict(ERRORS[status])}},
        **({"headers": header_descriptions(*_HEADERS[status])} if status in _HEADERS else {}),
    }
    for status, words in _STATUSES.items()
}
"""Errors of the API, for its document; `never_given` says which an operation does without."""
_OF_RUNS = ("/v1/chat/completions", "/v1/responses")
"""What answers with what a model says, or with the end of a run."""
_NEVER: Mapping[str, Sequence[int]] = {"/v1/plans/check": (404, 409), "/v1/responses/{response_id}/cancel": (409,)}


def never_given(path: str, method: str) -> set[int]:
    """Returns those of the errors that an operation cannot give.

    Args:
        path: as it is routed, with the names of its parameters.
    """
    never = {*_NEVER.get(path, ())}
    if method == "GET":
        return never | ({409, 413, 422, 502} if "{" in path else {404, 409, 413, 422, 502})
    return never if path in _OF_RUNS else never | {422, 502}


_OF_MODEL: Mapping[ModelError, tuple[int, str, str]] = {
    ModelError.BUSY: (429, "rate_limit_error", "rate_limit_exceeded"),
    ModelError.QUOTA_SPENT: (429, "insufficient_quota", "insufficient_quota"),
    ModelError.UNAVAILABLE: (503, SERVER, "model_unavailable"),
    ModelError.ANSWER_BROKEN: (502, SERVER, "model_answer_broken"),
    ModelError.OUTPUT_INVALID: (502, SERVER, "model_output_invalid"),
    ModelError.KEY_MISSING: (503, SERVER, "no_key"),
    ModelError.KEY_REFUSED: (503, SERVER, "key_refused"),
    ModelError.FORBIDDEN: (503, SERVER, "key_forbidden"),
    ModelError.ADDRESS_WRONG: (503, SERVER, "address_wrong"),
    ModelError.MODEL_MISSING: (400, INVALID, "model_missing"),
    ModelError.MODEL_UNKNOWN: (404, INVALID, "model_not_found"),
    ModelError.CONTEXT_EXCEEDED: (400, INVALID, "context_length_exceeded"),
    ModelError.REFUSED: (400, INVALID, "content_policy_violation"),
    ModelError.FILTERED: (400, INVALID, "content_filter"),
    ModelError.CUT_OFF: (400, INVALID, "max_tokens"),
    ModelError.REQUEST_INVALID: (400, INVALID, "invalid_request"),
}
"""Failure of a model call -> status, type and code. A key that is refused is the gateway's, and not the client's."""
_LASTING = (
    ModelError.QUOTA_SPENT,
    ModelError.KEY_MISSING,
    ModelError.KEY_REFUSED,
    ModelError.FORBIDDEN,
    ModelError.ADDRESS_WRONG,
)
"""Failures that the same request would meet again."""


_PLAIN: Sequence[tuple[type[Exception], int, str | None, str, Mapping[str, str]]] = (
    (SessionNameInvalid, 400, "session_id", "invalid_session_id", {}),
    (IdInvalid, 400, None, "invalid_run_id", {}),
    (SessionNotFound, 404, None, "not_found", {}),
    (RunNotFound, 404, None, "not_found", {}),
    (NodeUnknown, 404, "node", "not_found", {}),
    (RunClosed, 409, None, "run_ended", NO_RETRY),
    (CommandRejected, 400, None, "refused", {}),
    (FeedbackRejected, 400, _MESSAGES, "answer_refused", {}),
)
"""Errors whose text is what to tell -> status, field, code and headers."""


def told_as(error: Exception) -> ApiError | None:
    """Returns how a client is told of an error; `None` of one that is a defect."""
    for kind, status, param, code, headers in _PLAIN:
        if isinstance(error, kind):
            return ApiError(status, str(error), param=param, code=code, headers=headers)
    match error:
        case ApiError():
            return error
        case RunIdInUse():
            # Nobody chooses the ids of runs here.
            words = str(error).replace("choose another id", "send another request with another Idempotency-Key")
            return ApiError(409, words, code="idempotency_key_in_use", headers=NO_RETRY)
        case ForkRefused():
            # Options of the command are fields here.
            words = str(error).replace("--rerun", "rerun").replace("--plan", "plan").replace(_BY_COMMAND, _BY_REQUEST)
            return ApiError(400, words, code="fork_refused")
        case ModelFailure():
            return _of_model(error)
        case GoalRefused():
            return ApiError(400, str(error), param=_MESSAGES, code=error.code)
        case PlanInvalid():
            return of_plan(error)
        case TurnNotTaken():
            return _of_turn(error)
        case ServerUnreachable() | StoreError():
            return unavailable(str(error))
        case RPCError():
            return _of_temporal(error)
    return None


def _of_temporal(error: RPCError) -> ApiError | None:
    if error.status in NO_ANSWER:
        return unavailable("the Temporal server does not answer; nothing was lost, try again")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in error.message:
        return ApiError(413, "what is sent to the run has over 4 MiB, the limit of Temporal", code="request_too_large")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        words, headers = "the Temporal server has too much to do; try again", {"Retry-After": str(RETRY_AFTER_S)}
        return ApiError(429, words, "rate_limit_error", code="server_busy", headers=headers)
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return ApiError(400, f"the Temporal server does not take it: {error.message}", code="refused")
    return None


def unavailable(message: str) -> ApiError:
    """Returns what a client is told while something that the gateway needs does not answer."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(503, message, SERVER, code="unavailable", headers=headers)


def draining() -> ApiError:
    """Return the error of a gateway that was requested to stop."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    words = "the gateway is draining: it stops, and runs continue; send the request again, to another gateway"
    return ApiError(503, words, SERVER, code=DRAINING, headers=headers)


def too_many(words: str, *, retry_after_s: float) -> ApiError:
    """Returns what a client is told that does too much.

    Args:
        retry_after_s: seconds after which there is room.
    """
    headers = {"Retry-After": str(max(1, math.ceil(retry_after_s)))}
    return ApiError(429, words, "rate_limit_error", code="rate_limit_exceeded", headers=headers)


def _of_model(failure: ModelFailure) -> ApiError:
    status, kind, code = _OF_MODEL[failure.error]
    headers = dict(NO_RETRY) if failure.error in _LASTING else {}
    if failure.delay is not None:
        headers["Retry-After"] = str(max(1, round(failure.delay.total_seconds())))
    return ApiError(status, str(failure), kind, param="model" if status == 404 else None, code=code, headers=headers)


def of_plan(invalid: PlanInvalid) -> ApiError:
    """Returns what a client is told of a plan, or of inputs, that are wrong."""
    told = [problem.text for problem in invalid.problems]
    more = f"; and {len(told) - _PROBLEMS_TOLD:,} more" if len(told) > _PROBLEMS_TOLD else ""
    code = invalid.problems[0].code if invalid.problems else "invalid"
    errors = [problem.to_json() for problem in invalid.problems[:_PROBLEMS_LISTED]]
    return ApiError(400, "; ".join(told[:_PROBLEMS_TOLD]) + more, param=_MESSAGES, code=code, errors=errors)


def _of_turn(refused: TurnNotTaken) -> ApiError:
    if refused.code == "no_worker":
        return unavailable(str(refused))
    if refused.code in ("invalid", "too_large"):
        return ApiError(400, str(refused), code=refused.code)
    return ApiError(409, str(refused), code=refused.code)


_KNOWN: Sequence[type[Exception]] = (
    RunIdInUse,
    ForkRefused,
    *(kind for kind, *_ in _PLAIN),
    ApiError,
    ModelFailure,
    GoalRefused,
    PlanInvalid,
    TurnNotTaken,
    ServerUnreachable,
    StoreError,
    RPCError,
)


def install_errors(app: FastAPI) -> None:
    """Has an app tell all errors in OpenAI's shape."""

    async def known(request: Request, error: Exception) -> JSONResponse:
        told = told_as(error)
        if told is not None and told.param == _MESSAGES and not request.url.path.startswith(_OF_MODELS):
            # Other requests have no messages.
            told = replace(told, param=None)
        if told is not None and isinstance(error, FeedbackRejected) and not request.url.path.startswith(_OF_MODELS):
            is_answer = request.url.path.endswith(_FEEDBACK)
            told = replace(told, code=told.code if is_answer else "refused")
        if told is None:
            request_id = request.scope.get(REQUEST_ID)
            _LOG.error("a defect of Dagwright", path=request.url.path, request_id=request_id, exc_info=error)
            told = ApiError(500, "a defect of Dagwright; its log has the details", SERVER, code="defect")
        return told.response()

    async def wrong_body(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _of_validation(error, request).response()

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _of_http(error, request).response()

    app.add_exception_handler(RequestValidationError, wrong_body)
    app.add_exception_handler(HTTPException, http)
    for kind in _KNOWN:
        app.add_exception_handler(kind, known)
    app.add_exception_handler(Exception, known)


def _of_validation(error: RequestValidationError, request: Request) -> ApiError:
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return ApiError(400, "the body of the request is no JSON", code="invalid_json")
    if tuple(problem["loc"]) == ("body",):
        words = "the body must be a JSON object, sent with Content-Type: application/json"
        return ApiError(400, words, code="invalid_json")
    place, words = describe(error.errors(), error.body, _body_fields(request))
    return ApiError(400, words, param=place or None, code="invalid_value")


def _body_fields(request: Request) -> Collection[str]:
    """Return the fields that the body of a request may have; none if it has no model."""
    route = request.scope.get("route")
    field = route.body_field if isinstance(route, APIRoute) else None
    kind = None if field is None else field.field_info.annotation
    models = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, BaseModel)]
    return models[0].model_fields if models else ()


def _of_http(error: HTTPException, request: Request) -> ApiError:
    where = f"{request.method} {cut_name(request.url.path)}"
    words = {
        404: f"there is no {where}; GET /openapi.json lists what there is",
        405: f"{where} is not taken; the header Allow lists what is",
    }.get(error.status_code, str(error.detail))
    if error.status_code == 400 and error.detail == _UNREAD:
        words = f"the body of the request is no JSON, or nests lists and objects more than {MAX_DEPTH} deep"
        return ApiError(400, words, code="invalid_json")
    codes = {404: "unknown_url", 405: "method_not_allowed", 413: "request_too_large"}
    return ApiError(error.status_code, words, code=codes.get(error.status_code), headers=error.headers or {})
