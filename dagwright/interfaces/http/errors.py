"""Errors of the API, all in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`.

`api_error` maps known exceptions to responses; any other exception is a bug, reported without details.
OpenAI's clients retry 408, 409, 429 and 5xx. If the code of the error is not retryable, the response has
`x-should-retry: false`, which these clients respect.
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

from dagwright.client.errors import (
    CommandRejected,
    FeedbackRejected,
    ForkRejected,
    OptionInvalid,
    RunIdInUse,
    RunIdInvalid,
    ServerRejected,
    SessionNotFound,
    TurnRejected,
)
from dagwright.core.errors import PlanInvalid
from dagwright.core.name_hints import cut_name
from dagwright.core.text import join_first
from dagwright.dialects.json_reader import MAX_DEPTH
from dagwright.history.executions import NodeNotFound, RunClosed, RunNotFound
from dagwright.interfaces.http.error_codes import INVALID_REQUEST_ERROR, ErrorCode
from dagwright.interfaces.http.examples import ERRORS
from dagwright.interfaces.http.headers import ASGI_REQUEST_ID, header_descriptions
from dagwright.interfaces.http.validation_errors import describe_errors
from dagwright.planner.goal_validation import GoalRejected
from dagwright.planning.model_calls.model_failure import ModelError, ModelFailure
from dagwright.protocol.sessions import SessionIdInvalid
from dagwright.server.errors import UNREACHABLE_STATUSES, ServerUnreachable
from dagwright.store import StoreError

CLIENT_CLOSED_REQUEST_STATUS = 499
"""Status for the access log: the client has disconnected and gets no response."""
RETRY_AFTER_S = 2
"""Seconds after which a client may retry if a dependency does not respond."""
NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}

_MESSAGES_FIELD = "messages"
_MESSAGE_PATHS = ("/v1/chat/", "/v1/responses")
"""Paths of requests that have messages."""
_FEEDBACK_SUFFIX = "/feedback"
_MAX_PROBLEMS_IN_MESSAGE = 5
_MAX_LISTED_PROBLEMS = 100
_RESTART_BY_COMMAND, _RESTART_BY_REQUEST = "start it again with `run`", "start it again"
"""Advice in the message of a rejected fork, and the same advice for clients of the API."""
_PARSING_FAILED = "There was an error parsing the body"
"""FastAPI's message for a body that Python's JSON parser cannot parse."""
_MESSAGE_TOO_LARGE = "larger than max"
"""Part of gRPC's error for a message that is too large; the error of a busy server has the same status."""
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.http")


@dataclass(eq=False)
class ApiError(Exception):
    """An error response.

    Args:
        code: machine-readable code; a plain string is the code of a failed run or of a plan problem.
        param: the invalid field of the request.
        run_fields: the run that the error is about, as in the object `dagwright` of an answer.
        errors: problems of an invalid plan, each with its JSON Pointer.
        status: HTTP status. An `ErrorCode` sets `status` and `type`.
    """

    code: ErrorCode | str | None
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    run_fields: Mapping[str, Any] | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    status: int = 400
    type: str = INVALID_REQUEST_ERROR

    def __post_init__(self) -> None:
        if isinstance(self.code, ErrorCode):
            self.status, self.type = self.code.status, self.code.type
            if self.code.forbids_retries:
                self.headers = {**self.headers, **NO_RETRY}

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """Return the response body."""
        error_body: dict[str, Any] = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": None if self.code is None else str(self.code),
            **({"errors": [dict(error) for error in self.errors]} if self.errors else {}),
        }
        return {
            "error": error_body,
            **({} if self.run_fields is None else {"dagwright": dict(self.run_fields)}),
        }

    def response(self) -> JSONResponse:
        """Return the response."""
        return JSONResponse(self.body(), self.status, headers=dict(self.headers))


class ErrorDetail(BaseModel):
    """The problem, and how to fix it."""

    message: str
    type: str
    # Not required, because FastAPI omits null values from examples.
    param: str | None = None
    code: str | None = None
    errors: list[dict[str, Any]] | None = Field(
        default=None,
        description="Problems of an invalid plan or invalid inputs, each with `code`, `pointer` and `message`; for a "
        "plan sent as text also with its `line`.",
    )


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail
    dagwright: dict[str, Any] | None = Field(default=None, description="The run that the error is about, if any.")


_STATUS_DESCRIPTIONS: Mapping[int, str] = {
    400: "The request is invalid.",
    401: "The key is missing or unknown.",
    403: "The key lacks a scope; or, without keys, the request comes from a page of another origin.",
    404: "The model, run, limit or path does not exist.",
    409: "The session waits for an answer, the run has ended, or the idempotency key belongs to another request.",
    413: "The body is too large.",
    422: "The run failed or was cancelled.",
    429: "The model service or the Temporal server is overloaded, or the caller exceeds a limit.",
    502: "The model service returned an invalid answer.",
    503: "The model service or Temporal does not respond.",
}
_STATUS_HEADERS: Mapping[int, Sequence[str]] = {
    409: ("x-should-retry",),
    422: ("X-Run-Id", "X-Session-Id", "x-should-retry"),
    429: ("Retry-After", "x-should-retry"),
    503: ("Retry-After", "x-should-retry"),
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "model": ErrorBody,
        "description": description,
        "content": {"application/json": {"example": dict(ERRORS[status])}},
        **({"headers": header_descriptions(*_STATUS_HEADERS[status])} if status in _STATUS_HEADERS else {}),
    }
    for status, description in _STATUS_DESCRIPTIONS.items()
}
"""Error responses for the OpenAPI document; `excluded_statuses` lists those that an operation cannot return."""
_ANSWER_PATHS = ("/v1/chat/completions", "/v1/responses")
"""Operations that return the answer of a model or of a run."""
_EXCLUDED_STATUSES: Mapping[str, Sequence[int]] = {
    "/v1/plans/check": (404, 409),
    "/v1/responses/{response_id}/cancel": (409,),
    "/v1/call-limits/{subject}": (409,),
}


def excluded_statuses(path: str, method: str) -> set[int]:
    """Return the error statuses that an operation cannot return.

    Args:
        path: the route, with the names of its parameters.
    """
    statuses = {*_EXCLUDED_STATUSES.get(path, ())}
    if method == "GET":
        return statuses | ({409, 413, 422, 502} if "{" in path else {404, 409, 413, 422, 502})
    if method == "DELETE":
        statuses |= {413}
    return statuses if path in _ANSWER_PATHS else statuses | {422, 502}


_MODEL_ERRORS: Mapping[ModelError, ErrorCode] = {
    ModelError.BUSY: ErrorCode.RATE_LIMIT_EXCEEDED,
    ModelError.QUOTA_EXCEEDED: ErrorCode.INSUFFICIENT_QUOTA,
    ModelError.UNAVAILABLE: ErrorCode.MODEL_UNAVAILABLE,
    ModelError.RESPONSE_INVALID: ErrorCode.MODEL_RESPONSE_INVALID,
    ModelError.OUTPUT_INVALID: ErrorCode.MODEL_OUTPUT_INVALID,
    ModelError.KEY_MISSING: ErrorCode.MODEL_KEY_MISSING,
    ModelError.KEY_REJECTED: ErrorCode.MODEL_KEY_REJECTED,
    ModelError.FORBIDDEN: ErrorCode.MODEL_FORBIDDEN,
    ModelError.ADDRESS_INVALID: ErrorCode.MODEL_ADDRESS_INVALID,
    ModelError.MODEL_NOT_SET: ErrorCode.MODEL_NOT_SET,
    ModelError.MODEL_UNKNOWN: ErrorCode.MODEL_NOT_FOUND,
    ModelError.CONTEXT_EXCEEDED: ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ModelError.REFUSED: ErrorCode.CONTENT_POLICY_VIOLATION,
    ModelError.FILTERED: ErrorCode.CONTENT_FILTER,
    ModelError.TRUNCATED: ErrorCode.MODEL_TRUNCATED,
    ModelError.REQUEST_INVALID: ErrorCode.MODEL_REQUEST_INVALID,
}
"""Error of a model call -> code. If the service rejects the gateway's key, the error is a server error."""


_CODES_OF_EXCEPTIONS: Sequence[tuple[type[Exception], ErrorCode, str | None]] = (
    (SessionIdInvalid, ErrorCode.INVALID_SESSION_ID, "session_id"),
    (OptionInvalid, ErrorCode.INVALID_VALUE, None),
    (RunIdInvalid, ErrorCode.INVALID_RUN_ID, None),
    (SessionNotFound, ErrorCode.NOT_FOUND, None),
    (RunNotFound, ErrorCode.NOT_FOUND, None),
    (NodeNotFound, ErrorCode.NOT_FOUND, "node_id"),
    (RunClosed, ErrorCode.RUN_ENDED, None),
    (ServerRejected, ErrorCode.SERVER_REJECTED, None),
    (CommandRejected, ErrorCode.COMMAND_REJECTED, None),
    (FeedbackRejected, ErrorCode.ANSWER_REJECTED, _MESSAGES_FIELD),
)
"""Exceptions whose messages are sent unchanged, with the code and field of their responses."""


def api_error(error: Exception) -> ApiError | None:
    """Return the response for an exception; `None` for a bug."""
    for kind, code, param in _CODES_OF_EXCEPTIONS:
        if isinstance(error, kind):
            return ApiError(code, str(error), param=param)
    match error:
        case ApiError():
            return error
        case RunIdInUse():
            # Clients of the gateway do not choose run IDs.
            message = str(error).replace("choose another id", "send another request with another Idempotency-Key")
            return ApiError(ErrorCode.IDEMPOTENCY_KEY_IN_USE, message)
        case ForkRejected():
            # Command-line options are request fields here.
            message = str(error).replace("--rerun", "rerun").replace("--plan", "plan")
            return ApiError(ErrorCode.FORK_REJECTED, message.replace(_RESTART_BY_COMMAND, _RESTART_BY_REQUEST))
        case ModelFailure():
            return _model_error(error)
        case GoalRejected():
            return ApiError(_code_of(error.code, default=ErrorCode.INVALID_VALUE), str(error), param=_MESSAGES_FIELD)
        case PlanInvalid():
            return plan_error(error)
        case TurnRejected():
            return _turn_error(error)
        case ServerUnreachable():
            return unavailable_error(str(error))
        case StoreError():
            return unavailable_error(str(error), code=ErrorCode.STORE_UNAVAILABLE)
        case RPCError():
            return _temporal_error(error)
    return None


def _temporal_error(error: RPCError) -> ApiError | None:
    if error.status in UNREACHABLE_STATUSES:
        return unavailable_error("the Temporal server does not respond; nothing was lost, try again")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED and _MESSAGE_TOO_LARGE in error.message:
        return ApiError(ErrorCode.REQUEST_TOO_LARGE, "the message to the run exceeds 4 MiB, the limit of Temporal")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        message, headers = "the Temporal server is overloaded; try again", {"Retry-After": str(RETRY_AFTER_S)}
        return ApiError(ErrorCode.SERVER_BUSY, message, headers=headers)
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return ApiError(ErrorCode.SERVER_REJECTED, f"the Temporal server rejected the request: {error.message}")
    return None


def unavailable_error(message: str, *, code: ErrorCode = ErrorCode.SERVER_UNAVAILABLE) -> ApiError:
    """Return the error for a dependency that does not respond."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(code, message, headers=headers)


def draining_error() -> ApiError:
    """Return the error of a gateway that is stopping."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    message = "the gateway is stopping; runs continue. Send the request again, to another gateway"
    return ApiError(ErrorCode.DRAINING, message, headers=headers)


def rate_limit_error(message: str, *, retry_after_s: float) -> ApiError:
    """Return the error of a caller that exceeds a limit.

    Args:
        retry_after_s: seconds until the limit allows another request.
    """
    headers = {"Retry-After": str(max(1, math.ceil(retry_after_s)))}
    return ApiError(ErrorCode.RATE_LIMIT_EXCEEDED, message, headers=headers)


def _model_error(failure: ModelFailure) -> ApiError:
    code = _MODEL_ERRORS[failure.error]
    headers = {}
    if failure.delay is not None:
        headers["Retry-After"] = str(max(1, round(failure.delay.total_seconds())))
    return ApiError(code, str(failure), param="model" if code.status == 404 else None, headers=headers)


def _code_of(value: str, *, default: ErrorCode) -> ErrorCode:
    return next((code for code in ErrorCode if code == value), default)


def plan_error(plan_invalid: PlanInvalid) -> ApiError:
    """Return the error for an invalid plan or invalid inputs."""
    texts = [problem.text for problem in plan_invalid.problems]
    code = plan_invalid.problems[0].code if plan_invalid.problems else "invalid"
    errors = [problem.to_json() for problem in plan_invalid.problems[:_MAX_LISTED_PROBLEMS]]
    message = join_first(texts, _MAX_PROBLEMS_IN_MESSAGE, separator="; ")
    return ApiError(code, message, param=_MESSAGES_FIELD, errors=errors)


def _turn_error(error: TurnRejected) -> ApiError:
    if error.code == "no_worker":
        return unavailable_error(str(error), code=ErrorCode.NO_WORKER)
    return ApiError(_code_of(error.code, default=ErrorCode.INVALID), str(error))


_KNOWN_ERRORS: Sequence[type[Exception]] = (
    RunIdInUse,
    ForkRejected,
    *(kind for kind, *_ in _CODES_OF_EXCEPTIONS),
    ApiError,
    ModelFailure,
    GoalRejected,
    PlanInvalid,
    TurnRejected,
    ServerUnreachable,
    StoreError,
    RPCError,
)


def install_error_handlers(app: FastAPI) -> None:
    """Make the application respond to all errors in OpenAI's format."""

    async def handle_error(request: Request, error: Exception) -> JSONResponse:
        return _error_of_request(error, request).response()

    async def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _validation_error(error, request).response()

    async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _http_error(error, request).response()

    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_error)
    for error_type in (*_KNOWN_ERRORS, Exception):
        app.add_exception_handler(error_type, handle_error)


def _error_of_request(error: Exception, request: Request) -> ApiError:
    """Return the response for an exception of a request; an unknown exception is logged."""
    path = request.url.path
    api_failure = api_error(error)
    if api_failure is None:
        _LOG.error("internal error", path=path, request_id=request.scope.get(ASGI_REQUEST_ID), exc_info=error)
        return ApiError(ErrorCode.DEFECT, "internal error of the gateway; its log has the details")
    if path.startswith(_MESSAGE_PATHS):
        return api_failure
    if api_failure.param == _MESSAGES_FIELD:
        # Only requests to `_MESSAGE_PATHS` have the field `messages`.
        api_failure = replace(api_failure, param=None)
    if isinstance(error, FeedbackRejected) and not path.endswith(_FEEDBACK_SUFFIX):
        api_failure = replace(api_failure, code=ErrorCode.COMMAND_REJECTED)
    return api_failure


def _validation_error(error: RequestValidationError, request: Request) -> ApiError:
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return ApiError(ErrorCode.INVALID_JSON, "the body of the request is not valid JSON")
    if tuple(problem["loc"]) == ("body",):
        message = "the body must be a JSON object, sent with Content-Type: application/json"
        return ApiError(ErrorCode.INVALID_JSON, message)
    field_name, message = describe_errors(error.errors(), error.body, _body_fields(request))
    return ApiError(ErrorCode.INVALID_VALUE, message, param=field_name or None)


def _body_fields(request: Request) -> Collection[str]:
    """Return the fields of the request body's model; an empty collection if the body has no model."""
    route = request.scope.get("route")
    field = route.body_field if isinstance(route, APIRoute) else None
    kind = None if field is None else field.field_info.annotation
    models = [model for model in (kind, *get_args(kind)) if isinstance(model, type) and issubclass(model, BaseModel)]
    return models[0].model_fields if models else ()


def _http_error(error: HTTPException, request: Request) -> ApiError:
    location = f"{request.method} {cut_name(request.url.path)}"
    message = {
        404: f"there is no {location}; GET /openapi.json lists all paths",
        405: f"{location} is not allowed; the Allow header lists the methods",
    }.get(error.status_code, str(error.detail))
    if error.status_code == 400 and error.detail == _PARSING_FAILED:
        message = f"the body of the request is not valid JSON, or is nested more than {MAX_DEPTH} deep"
        return ApiError(ErrorCode.INVALID_JSON, message)
    code = _FRAMEWORK_CODES.get(error.status_code)
    return ApiError(code, message, headers=error.headers or {}, status=error.status_code)


_FRAMEWORK_CODES: Mapping[int, ErrorCode] = {
    code.status: code for code in (ErrorCode.UNKNOWN_URL, ErrorCode.METHOD_NOT_ALLOWED, ErrorCode.REQUEST_TOO_LARGE)
}
"""Status of an error that FastAPI or Starlette raises -> code."""
