"""Convert errors of tool calls to Temporal failures: choose the error code, and whether and when to retry.

The server records these failures in the history of the run, so texts are truncated and secrets are redacted.
"""

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any

import httpx
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES, MAX_FAILURE_TEXT_BYTES
from dagwright.core.boundary.wire import (
    ERROR_ASK_PERSON,
    ERROR_DEFERRED,
    ERROR_NOT_STARTED,
    ERROR_OUTCOME_UNKNOWN,
    ERROR_TOOL_PAUSED,
)
from dagwright.core.extras import MissingExtra
from dagwright.core.model.tools import Effects
from dagwright.core.text import cut_bytes
from dagwright.planning.model_calls.model_failure import Action, ModelFailure
from dagwright.tools.errors import (
    ArgumentNotLoaded,
    AskPerson,
    GiveUp,
    InvalidArguments,
    InvalidResult,
    MissingPart,
    MissingSecret,
    NotStarted,
    ResultNotStored,
    ResultTooLarge,
    RetryLater,
    SecretNotAllowed,
    ToolChanged,
    ToolError,
    ValueLost,
)
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import json_bytes
from dagwright.tools.retry_after import cap_delay, requested_delay

TOOL_FAILED = "tool_failed"
INVALID_ARGUMENTS = "invalid_arguments"
INVALID_RESULT = "invalid_result"
TOOL_CHANGED = "tool_changed"
TOO_LARGE = "too_large"
MISSING_SECRET = "missing_secret"
SECRET_NOT_ALLOWED = "secret_not_allowed"
MISSING_DATA = "missing_data"
VALUE_LOST = "value_lost"
STORE_UNAVAILABLE = "store_unavailable"
WORKER_STOPPED = "worker_stopped"

PERSON_REQUEST_LIMIT_BYTES = 64 * 1024
"""Size limit of a tool's request to a person together with the checkpoint: the state of the run contains both."""
_PAUSED_DELAY = timedelta(seconds=30)
"""Retry delay while a tool is paused, if the server cannot pause the activity."""
_UNSPECIFIED = ApplicationErrorCategory.UNSPECIFIED
TRACE_LIMIT_BYTES = 14 * 1024
"""Size limit of a traceback: 16 KiB minus the frames between the tool and Temporal's worker."""

_FINAL_CODES: Mapping[type[Exception], str] = {
    InvalidArguments: INVALID_ARGUMENTS,
    InvalidResult: INVALID_RESULT,
    ToolChanged: TOOL_CHANGED,
    ResultTooLarge: TOO_LARGE,
    MissingSecret: MISSING_SECRET,
    SecretNotAllowed: SECRET_NOT_ALLOWED,
    MissingPart: MISSING_DATA,
    ValueLost: VALUE_LOST,
    AskPerson: ERROR_ASK_PERSON,
}


class WorkerStopped(Exception):
    """The worker was shut down while the tool ran, so the outcome of the call is unknown."""


class ToolPaused(Exception):
    """The tool is paused, so the attempt did not call the tool; the server pauses the call."""


class CallDeferred(Exception):
    """The call must not be made now; the server starts another attempt after the delay.

    Args:
        reason: why the node waits, shown to users.
        delay: time until the next attempt; the server waits at least one second.
        code: error code of the attempt.
        state: JSON for the next attempt of the call (`Heartbeats.deferred_state`).
    """

    def __init__(
        self, reason: str, delay: timedelta, *, code: str = ERROR_DEFERRED, state: dict[str, Any] | None = None
    ) -> None:
        super().__init__(reason)
        self.delay = delay
        self.code = code
        self.state = state


class OutcomeUnknown(Exception):
    """The worker died while an earlier attempt of a `write` call ran: the tool may have made its change."""


_READABLE_ERRORS = (
    *(ToolError, MissingExtra, ModelFailure, ApplicationError),
    *(WorkerStopped, ToolPaused, CallDeferred, OutcomeUnknown),
)
"""Errors whose text is a complete sentence, shown without the class name."""
_TRANSIENT_ERRORS = (
    *(ToolError, ModelFailure, ApplicationError),
    *(WorkerStopped, ToolPaused, CallDeferred, OSError, httpx.HTTPError),
)
"""Errors of worker tools that are retried unless `retry_decision` makes them final."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """How to handle a failure: the error code, whether the failure is final, and the delay that a service requested."""

    code: str
    is_final: bool
    delay: timedelta | None = None


def retry_decision(error: BaseException, effects: Effects) -> RetryDecision:
    """Return how to handle `error`, raised by a tool with these effects.

    A `write` call may be repeated only if the tool has certainly not started its change.
    """
    for kind, code in _FINAL_CODES.items():
        if isinstance(error, kind):
            return RetryDecision(code, is_final=True)
    if isinstance(error, NotStarted | httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return RetryDecision(ERROR_NOT_STARTED, is_final=False)
    if isinstance(error, ArgumentNotLoaded | ResultNotStored):
        is_write_result = isinstance(error, ResultNotStored) and effects is Effects.WRITE
        return RetryDecision(STORE_UNAVAILABLE, is_final=is_write_result)
    if isinstance(error, OutcomeUnknown):
        return RetryDecision(ERROR_OUTCOME_UNKNOWN, is_final=True)
    if isinstance(error, ToolPaused):
        # The call is retried only if the server cannot pause the call.
        return RetryDecision(ERROR_TOOL_PAUSED, is_final=False, delay=_PAUSED_DELAY)
    if isinstance(error, CallDeferred):
        return RetryDecision(error.code, is_final=False, delay=error.delay)
    if isinstance(error, RetryLater):
        return RetryDecision(TOOL_FAILED, is_final=False, delay=cap_delay(error.after))
    if isinstance(error, ModelFailure):
        is_final = error.action is not Action.RETRY or effects is Effects.WRITE
        return RetryDecision(error.error, is_final=is_final, delay=error.delay)
    if isinstance(error, httpx.HTTPStatusError):
        return _status_decision(error.response, effects)
    if isinstance(error, ApplicationError):
        return RetryDecision(
            error.type or TOOL_FAILED, is_final=error.non_retryable, delay=cap_delay(error.next_retry_delay)
        )
    code = WORKER_STOPPED if isinstance(error, WorkerStopped) else TOOL_FAILED
    is_final = isinstance(
        error, GiveUp | MissingExtra | ValueError | TypeError | httpx.InvalidURL | httpx.UnsupportedProtocol
    )
    return RetryDecision(code, is_final=is_final or effects is Effects.WRITE)


def worker_tool_retry_decision(error: BaseException, effects: Effects) -> RetryDecision:
    """Return how to handle `error`, raised by a worker tool with these effects.

    Only connection errors and errors that are marked as transient are retried. Every other error goes to the planner at
    once: the planner may find another way.
    """
    decision = retry_decision(error, effects)
    return decision if decision.is_final or isinstance(error, _TRANSIENT_ERRORS) else replace(decision, is_final=True)


def _status_decision(response: httpx.Response, effects: Effects) -> RetryDecision:
    delay = requested_delay(response.headers)
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        # The service rejected the request before doing anything, so even a `write` may be retried.
        return RetryDecision(TOOL_FAILED, is_final=False, delay=delay)
    is_transient = response.is_server_error or response.status_code in (
        httpx.codes.REQUEST_TIMEOUT,
        httpx.codes.TOO_EARLY,
    )
    return RetryDecision(TOOL_FAILED, is_final=not is_transient or effects is Effects.WRITE, delay=delay)


def activity_failure_of(
    error: BaseException, decision: RetryDecision, *, details: Mapping[str, Any], redaction: Redaction
) -> ApplicationError:
    """Return `error` as a Temporal failure, with the last frames of its traceback.

    Args:
        details: data of the failure, stored as the only element of Temporal's `details`.
    """
    failure = ApplicationError(
        cut_bytes(redaction.redact_text(error_text(error)), max_bytes=MAX_FAILURE_MESSAGE_BYTES),
        dict(details),
        type=decision.code,
        non_retryable=decision.is_final,
        next_retry_delay=decision.delay,
        # The SDK does not log benign failures.
        category=ApplicationErrorCategory.BENIGN if isinstance(error, CallDeferred) else _UNSPECIFIED,
    )
    return failure.with_traceback(_last_frames_of(error.__traceback__))


def request_details(error: AskPerson) -> dict[str, Any]:
    """Return a tool's request to a person, and its checkpoint if there is one, as failure details.

    Raises:
        InvalidResult: the request is not JSON or is too large.
    """
    document = {"request": error.request}
    if error.checkpoint is not None:
        document["checkpoint"] = error.checkpoint
    try:
        encoded = json_bytes(document)
    except (InvalidResult, RecursionError) as cause:
        raise InvalidResult(f"AskPerson: request and checkpoint must be JSON: {cause}") from None
    if len(encoded) > PERSON_REQUEST_LIMIT_BYTES:
        size_text = f"request and checkpoint of AskPerson have {len(encoded):,} bytes as JSON"
        raise InvalidResult(f"{size_text}, over the limit of {PERSON_REQUEST_LIMIT_BYTES:,}")
    return dict(json.loads(encoded))


def full_failure_text(error: BaseException, redaction: Redaction) -> dict[str, str] | None:
    """Return the full text and traceback of a failure, up to 10 MB each.

    Returns:
        `None` if the text fits into the failure message.
    """
    text = redaction.redact_text(error_text(error))
    if len(text) <= MAX_FAILURE_MESSAGE_BYTES // 4 or len(text.encode(errors="replace")) <= MAX_FAILURE_MESSAGE_BYTES:
        return None
    frames = "".join(traceback.format_tb(_skip_wrapper_frame(error.__traceback__)))
    document = {"message": text, "traceback": redaction.redact_text(frames)}
    return {name: cut_bytes(part, max_bytes=MAX_FAILURE_TEXT_BYTES) for name, part in document.items()}


def error_text(error: BaseException) -> str:
    """Return the text of any error, prefixed with the class name unless the text is a complete sentence."""
    message, kind = _message_of(error), type(error).__name__
    is_sentence = isinstance(error, _READABLE_ERRORS) or type(error) is ValueError
    text = message if message and is_sentence else f"{kind}: {message}" if message else kind
    # A model failure already includes the text of its cause.
    cause = error.__cause__ if not isinstance(error, ModelFailure) else None
    return text if cause is None else f"{text} (caused by {type(cause).__name__}: {_message_of(cause)})"


def _message_of(error: BaseException) -> str:
    try:
        return str(error.message if isinstance(error, ApplicationError) else error)
    # `str(error)` runs code of the user, which may raise anything, even SystemExit.
    except BaseException:
        return "its text could not be read"


def _last_frames_of(trace: TracebackType | None) -> TracebackType | None:
    """Return the last frames that fit into the limit, without the frame of the wrapper."""
    frames: list[TracebackType] = []
    trace = _skip_wrapper_frame(trace)
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    size, first_kept_frame = 0, None
    for frame in reversed(frames):
        size += sum(len(line.encode(errors="replace")) + 1 for line in traceback.format_tb(frame, limit=1))
        if size > TRACE_LIMIT_BYTES:
            break
        first_kept_frame = frame
    return first_kept_frame


def _skip_wrapper_frame(trace: TracebackType | None) -> TracebackType | None:
    return trace.tb_next if trace is not None else None
