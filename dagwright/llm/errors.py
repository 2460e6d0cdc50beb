"""Errors of model calls: classify every failure, and add advice for the user.

Servers report the same failure in different ways. The error bodies that are parsed here follow the documentation and
source of OpenAI, Azure, vLLM, Ollama, OpenRouter, Groq and LiteLLM's proxy.

    Exception
    ├── ServiceError      failure of the transport or the response parser, before it is classified
    └── ModelFailure      failure as raised to callers: `planning.model_calls.model_failure`
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.text import cut_bytes, one_line
from dagwright.planning.model_calls.model_failure import Action, ModelError, ModelFailure
from dagwright.tools.retry_after import requested_delay, requesting_service

Kind = Literal["status", "stream", "connection", "timeout", "broken", "classified"]

_HIDDEN = "***"
_MIN_REDACTED_CHARACTERS = 6
"""Minimum length of a key to redact: a shorter key is not secret, and may be part of ordinary words."""
_SERVER_MESSAGE_BYTES = 2_000


class ServiceError(Exception):
    """Unclassified failure of a call.

    Args:
        kind: `connection`; `timeout`; `status`: an HTTP error; `stream`: an error inside a stream; `broken`: a response
            that violates the protocol; `classified`: a failure with `error`, such as a call that cannot be made, or a
            valid response that cannot be used.
        description: the failure, as the end of a sentence about the endpoint, such as `returned an empty answer`.
        status: HTTP status, or the status that a server reported inside a stream.
        body: content of the error body.
        headers: response headers with names in lower case.
        error: classification of the failure, if the code that raises this exception knows the classification.

    Attributes:
        partial: text that the model wrote before the failure.
        usage: usage of the failed call.
    """

    def __init__(
        self,
        kind: Kind,
        description: str,
        *,
        status: int | None = None,
        body: "ErrorContent | None" = None,
        headers: Mapping[str, str] | None = None,
        error: ModelError | None = None,
    ) -> None:
        super().__init__(description)
        self.kind = kind
        self.description = description
        self.status = status
        self.body = body or ErrorContent()
        self.headers = headers or {}
        self.error = error
        self.partial = ""
        self.usage = Usage()


@dataclass(frozen=True, slots=True)
class ErrorContent:
    """Content of an error body, independent of its format."""

    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""
    text: str = ""
    """The whole body."""


@dataclass(frozen=True, slots=True)
class CallTarget:
    """Endpoint and options of a call, for the error message.

    Args:
        api_key: redacted in all messages of the server.
    """

    base_url: str
    model: str = ""
    max_tokens: int | None = None
    api_key: str = field(default="", repr=False)


_WORKER_ENVIRONMENT = "for the worker (`dagwright up` passes its environment to the workers that it starts)"
_ADVICE: Mapping[ModelError, str] = {
    ModelError.QUOTA_EXCEEDED: "add credit or raise the limit of the account at {base_url}, then try again",
    ModelError.KEY_MISSING: f"set OPENAI_API_KEY {_WORKER_ENVIRONMENT}, or "
    "OPENAI_BASE_URL for a service that needs no key",
    ModelError.KEY_REJECTED: "set OPENAI_API_KEY for the worker to a key that {base_url} accepts",
    ModelError.FORBIDDEN: "the key may not do this at {base_url}: use another key or another model",
    ModelError.MODEL_NOT_SET: f"name a model in the request, or set DAGWRIGHT_MODEL {_WORKER_ENVIRONMENT}",
    ModelError.MODEL_UNKNOWN: "use a model of {base_url}; GET {base_url}/models lists them",
    ModelError.ADDRESS_INVALID: "check OPENAI_BASE_URL, now {base_url}; it usually ends in /v1",
    ModelError.CONTEXT_EXCEEDED: "shorten the messages to {model}, or choose a model with a larger context",
    ModelError.REFUSED: "rephrase the request, or do this step without a model",
    ModelError.FILTERED: "rephrase the request, or change the filter of the service at {base_url}",
    ModelError.TRUNCATED: "raise max_tokens{max_tokens}, or split the request",
    ModelError.REQUEST_INVALID: "remove or change the field that the service names, or choose a model that accepts it",
}


UNEXPECTED_CALL = "unexpected_call"
"""Error code of a scripted model that has no answer for the request. Another form of the request would not help."""


def to_model_failure(service_error: ServiceError, target: CallTarget, *, now: datetime) -> ModelFailure:
    """Convert a service error to the error for callers. This is the only place that maps failures to actions."""
    model_error = model_error_of(service_error)
    description = cut_bytes(_message(service_error, model_error, target), max_bytes=MAX_FAILURE_MESSAGE_BYTES // 2)
    limit_text = "" if target.max_tokens is None else f" (now {target.max_tokens:,})"
    advice = "" if service_error.body.code == UNEXPECTED_CALL else _ADVICE.get(model_error, "")
    advice = advice.format(base_url=target.base_url, model=target.model, max_tokens=limit_text)
    delay = requested_delay(service_error.headers, now=now) if model_error.action is Action.RETRY else None
    failure = ModelFailure(model_error, description, advice=advice, delay=delay)
    failure.partial, failure.usage = service_error.partial, service_error.usage
    failure.model = target.model
    if delay is not None:
        failure.requested_by = requesting_service(
            service_error.status, urlsplit(target.base_url).hostname or target.base_url
        )
    return failure


def model_error_of(service_error: ServiceError) -> ModelError:
    """Classify a service error."""
    if service_error.error is not None:
        return service_error.error
    match service_error.kind:
        case "connection" | "timeout":
            return ModelError.UNAVAILABLE
        case "broken" | "classified":
            return ModelError.RESPONSE_INVALID
    return _classify_body(service_error) or _classify_status(service_error.status)


_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "budget_exceeded"})
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
_CONTEXT_CODES = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_UNKNOWN_MODEL_CODES = frozenset({"model_not_found", "deploymentnotfound"})
_KEY_CODES = frozenset({"invalid_api_key", "token_not_found_in_db", "no_db_connection"})
"""LiteLLM's proxy without a database returns `no_db_connection` for every key except its master key."""
_BAD_OUTPUT_CODES = frozenset({"json_validate_failed", "tool_use_failed"})

_QUOTA = re.compile(
    r"exceeded your current quota|budget has been exceeded|exceeded budget|insufficient (credits|balance)"
)
_FILTER = re.compile(r"content management policy|contentpolicyviolation|usage policy|flagged as potentially violating")
_CONTEXT = re.compile(
    r"context length|context window|contextwindowexceeded|maximum context|exceeds the (available )?context|"
    r"(prompt|input|request) is too (long|large)|request too large|reduce the length"
)
_UNKNOWN_MODEL = re.compile(
    r"(model|deployment)\b.{0,240}?(does not exist|doesn't exist|not found|not a valid model)|"
    r"(invalid|unknown|no such) model",
    re.DOTALL,
)


def _classify_body(service_error: ServiceError) -> ModelError | None:
    """Classify an error by its body, which is more specific than the status and more consistent between servers."""
    body = service_error.body
    codes = {body.code.lower(), body.type.lower()}
    server_text = f"{body.message or body.text}".lower()[:10_000]
    status = service_error.status or 0
    if codes & _QUOTA_CODES or status == 402 or _QUOTA.search(server_text):
        return ModelError.QUOTA_EXCEEDED
    if codes & _CONTEXT_CODES or status == 413 or (status < 500 and _CONTEXT.search(server_text)):
        return ModelError.CONTEXT_EXCEEDED
    if codes & _FILTER_CODES or (status < 500 and _FILTER.search(server_text)):
        return ModelError.FILTERED
    if codes & _UNKNOWN_MODEL_CODES or (status in (400, 404) and _UNKNOWN_MODEL.search(server_text)):
        return ModelError.MODEL_UNKNOWN
    if codes & _KEY_CODES:
        return ModelError.KEY_REJECTED
    if codes & _BAD_OUTPUT_CODES:
        return ModelError.OUTPUT_INVALID
    return None


def _classify_status(status: int | None) -> ModelError:
    match status:
        case 401:
            return ModelError.KEY_REJECTED
        case 403:
            return ModelError.FORBIDDEN
        case 404 | 405:
            return ModelError.ADDRESS_INVALID
        case 429:
            return ModelError.BUSY
        case None | 408 | 409 | 425:
            return ModelError.UNAVAILABLE
        case 501:
            return ModelError.REQUEST_INVALID
    return ModelError.UNAVAILABLE if status >= 500 else ModelError.REQUEST_INVALID


def _message(service_error: ServiceError, model_error: ModelError, target: CallTarget) -> str:
    server_text = service_error.body.message or service_error.body.text
    server_text = _without_key(cut_bytes(one_line(server_text), max_bytes=_SERVER_MESSAGE_BYTES), target)
    endpoint = f"{target.model or 'the model'} at {target.base_url}"
    if service_error.kind in ("status", "stream"):
        status_text = f" {service_error.status}" if service_error.status is not None else ""
        problem = (
            f"{endpoint} answered{status_text}"
            if service_error.kind == "status"
            else f"{endpoint} broke off its answer"
        )
        return f"{problem}: {server_text}" if server_text else problem
    if model_error in (ModelError.KEY_MISSING, ModelError.MODEL_NOT_SET):
        return service_error.description
    return f"{endpoint} {_without_key(service_error.description, target)}"


def _without_key(text: str, target: CallTarget) -> str:
    return text.replace(target.api_key, _HIDDEN) if len(target.api_key) >= _MIN_REDACTED_CHARACTERS else text


def parse_error_body(content: Any, text: str) -> ErrorContent:
    """Parse an error body.

    Args:
        content: JSON of the body, with or without the enclosing `error`; `None` or a string if the body is not JSON.
        text: the whole body as received.
    """
    if isinstance(content, Mapping):
        nested_error = content.get("error")
        error_fields: Mapping[str, Any] = nested_error if isinstance(nested_error, Mapping) else content
        message = error_fields.get("message", error_fields.get("detail", nested_error))
        return ErrorContent(
            message=message if isinstance(message, str) else "",
            code=_code_text(error_fields.get("code")),
            type=_code_text(error_fields.get("type")),
            param=_code_text(error_fields.get("param")),
            text=text,
        )
    return ErrorContent(
        message=content if isinstance(content, str) and not content.lstrip().startswith("<") else "", text=text
    )


def _code_text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
