"""One place that says what a failed tool call is to Temporal: its code, whether to try again, and when.

The server keeps what is made here in the history of the run, so texts are cut and secrets are out.
"""

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import httpx
from temporalio.exceptions import ApplicationError

from activities.call_headers import Redaction
from dagwright.contracts.limits import FAILURE_TEXT_BYTES, MESSAGE_LIMIT_BYTES, cut_text
from dagwright.plan.tools import Effects
from dagwright.tools.errors import (
    AskPerson,
    GiveUp,
    InvalidArguments,
    InvalidResult,
    MissingPart,
    MissingSecret,
    NotStarted,
    ResultNotKept,
    ResultTooLarge,
    RetryLater,
    ToolError,
    ValueLost,
    ValueNotLoaded,
)
from dagwright.tools.results import json_bytes
from dagwright.tools.retry_after import capped, retry_after

TOOL_FAILED = "tool_failed"
INVALID_ARGUMENTS = "invalid_arguments"
INVALID_RESULT = "invalid_result"
TOO_LARGE = "too_large"
NOT_STARTED = "not_started"
MISSING_SECRET = "missing_secret"
MISSING_DATA = "missing_data"
VALUE_LOST = "value_lost"
STORE_UNAVAILABLE = "store_unavailable"
ASK_PERSON = "ask_person"
WORKER_STOPPED = "worker_stopped"

TRACE_LIMIT_BYTES = 14 * 1024
"""16 KiB less what the frames between the tool and Temporal's worker add."""

_FINAL_CODES: Mapping[type[Exception], str] = {
    InvalidArguments: INVALID_ARGUMENTS,
    InvalidResult: INVALID_RESULT,
    ResultTooLarge: TOO_LARGE,
    MissingSecret: MISSING_SECRET,
    MissingPart: MISSING_DATA,
    ValueLost: VALUE_LOST,
    AskPerson: ASK_PERSON,
}


class WorkerStopped(Exception):
    """The worker was shut down while the tool ran, so what became of the call is not known."""


@dataclass(frozen=True, slots=True)
class Posture:
    """What to do about a failure: `code` names it, `delay` is what a service asked for."""

    code: str
    is_final: bool
    delay: timedelta | None = None


def posture_of(error: BaseException, effects: Effects) -> Posture:
    """Returns what to do about `error`, raised by a tool of these effects.

    A `write` may be repeated only if its change is known not to have begun.
    """
    for kind, code in _FINAL_CODES.items():
        if isinstance(error, kind):
            return Posture(code, is_final=True)
    if isinstance(error, NotStarted | httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Posture(NOT_STARTED, is_final=False)
    if isinstance(error, ValueNotLoaded | ResultNotKept):
        is_lost = isinstance(error, ResultNotKept) and effects is Effects.WRITE
        return Posture(STORE_UNAVAILABLE, is_final=is_lost)
    if isinstance(error, RetryLater):
        return Posture(TOOL_FAILED, is_final=False, delay=None if error.after is None else capped(error.after))
    if isinstance(error, httpx.HTTPStatusError):
        return _posture_of_status(error.response, effects)
    if isinstance(error, ApplicationError):
        return Posture(error.type or TOOL_FAILED, is_final=error.non_retryable, delay=_capped(error.next_retry_delay))
    code = WORKER_STOPPED if isinstance(error, WorkerStopped) else TOOL_FAILED
    is_final = isinstance(error, GiveUp | ValueError | TypeError | httpx.InvalidURL | httpx.UnsupportedProtocol)
    return Posture(code, is_final=is_final or effects is Effects.WRITE)


def _posture_of_status(response: httpx.Response, effects: Effects) -> Posture:
    delay = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        # The service refused to begin, so even a `write` may come again.
        return Posture(TOOL_FAILED, is_final=False, delay=delay)
    passing = response.is_server_error or response.status_code in (
        httpx.codes.REQUEST_TIMEOUT,
        httpx.codes.TOO_EARLY,
    )
    return Posture(TOOL_FAILED, is_final=not passing or effects is Effects.WRITE, delay=delay)


def failure_of(
    error: BaseException, posture: Posture, *, details: Mapping[str, Any], redaction: Redaction
) -> ApplicationError:
    """Returns `error` as Temporal keeps it, with the end of its own traceback.

    Args:
        details: the one detail of the failure; `request` is added if the tool asks for a person.
    """
    told = dict(details)
    if isinstance(error, AskPerson):
        told["request"] = redaction.value(_request_of(error))
    failure = ApplicationError(
        cut_text(redaction.text(text_of(error)), max_bytes=MESSAGE_LIMIT_BYTES),
        told,
        type=posture.code,
        non_retryable=posture.is_final,
        next_retry_delay=posture.delay,
    )
    return failure.with_traceback(_end_of(error.__traceback__))


def _request_of(error: AskPerson) -> Any:
    """Returns what a person is asked for; words instead of what is no JSON, or the failure could not be told."""
    try:
        return json.loads(json_bytes(error.request))
    except (ValueError, RecursionError) as odd:
        return cut_text(f"The request cannot be read: {odd}", max_bytes=MESSAGE_LIMIT_BYTES)


def whole_of(error: BaseException, redaction: Redaction) -> dict[str, str] | None:
    """Returns the whole text of a failure and its traceback, up to 10 MB each; `None` if its message tells all."""
    text = redaction.text(text_of(error))
    if len(text) <= MESSAGE_LIMIT_BYTES // 4 or len(text.encode(errors="replace")) <= MESSAGE_LIMIT_BYTES:
        return None
    frames = "".join(traceback.format_tb(_own_frames(error.__traceback__)))
    told = {"message": text, "traceback": redaction.text(frames)}
    return {name: cut_text(part, max_bytes=FAILURE_TEXT_BYTES) for name, part in told.items()}


def text_of(error: BaseException) -> str:
    """Returns what `error` says, for every error: with its kind unless the words are meant for the reader."""
    said, kind = _said(error), type(error).__name__
    is_sentence = isinstance(error, ToolError | ApplicationError | WorkerStopped) or type(error) is ValueError
    text = said if said and is_sentence else f"{kind}: {said}" if said else kind
    cause = error.__cause__
    return text if cause is None else f"{text} (caused by {type(cause).__name__}: {_said(cause)})"


def _said(error: BaseException) -> str:
    try:
        return str(error.message if isinstance(error, ApplicationError) else error)
    # The text of an error is made by the user's code, which may fail in any way: with SystemExit too.
    except BaseException:
        return "its text could not be made"


def _capped(delay: timedelta | None) -> timedelta | None:
    return None if delay is None else capped(delay)


def _end_of(trace: TracebackType | None) -> TracebackType | None:
    """Returns the last frames that fit into the limit; the first is the wrapper's own and is left out."""
    frames: list[TracebackType] = []
    trace = _own_frames(trace)
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    size, kept = 0, None
    for frame in reversed(frames):
        size += sum(len(line.encode(errors="replace")) + 1 for line in traceback.format_tb(frame, limit=1))
        if size > TRACE_LIMIT_BYTES:
            break
        kept = frame
    return kept


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the wrapper's own frame."""
    return trace.tb_next if trace is not None else None
