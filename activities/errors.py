"""One place that says what a failed tool call is to Temporal: its code, whether to try again, and when.

The server keeps what is made here in the history of the run, so texts are cut and secrets are out.
"""

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any

import httpx
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary.limits import FAILURE_TEXT_BYTES, MESSAGE_LIMIT_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.boundary.wire import (
    ERROR_ASK_PERSON,
    ERROR_NOT_STARTED,
    ERROR_OUTCOME_UNKNOWN,
    ERROR_TOOL_PAUSED,
)
from dagwright.core.extras import MissingExtra
from dagwright.core.model.tools import Effects
from dagwright.planning.model_calls.calls import Action
from dagwright.planning.model_calls.failures import ModelFailure
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
    SecretRefused,
    ToolChanged,
    ToolError,
    ValueLost,
    ValueNotLoaded,
)
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import json_bytes
from dagwright.tools.retry_after import capped, requested_delay

TOOL_FAILED = "tool_failed"
INVALID_ARGUMENTS = "invalid_arguments"
INVALID_RESULT = "invalid_result"
TOOL_CHANGED = "tool_changed"
TOO_LARGE = "too_large"
MISSING_SECRET = "missing_secret"
SECRET_REFUSED = "secret_refused"
MISSING_DATA = "missing_data"
VALUE_LOST = "value_lost"
STORE_UNAVAILABLE = "store_unavailable"
WORKER_STOPPED = "worker_stopped"

QUESTION_LIMIT_BYTES = 64 * 1024
"""What a tool may ask, with its checkpoint: both stand in the run itself."""
_PAUSED_DELAY = timedelta(seconds=30)
"""Before the next attempt of a call of a parked tool that the server does not hold back."""
TRACE_LIMIT_BYTES = 14 * 1024
"""16 KiB less what the frames between the tool and Temporal's worker add."""

_FINAL_CODES: Mapping[type[Exception], str] = {
    InvalidArguments: INVALID_ARGUMENTS,
    InvalidResult: INVALID_RESULT,
    ToolChanged: TOOL_CHANGED,
    ResultTooLarge: TOO_LARGE,
    MissingSecret: MISSING_SECRET,
    SecretRefused: SECRET_REFUSED,
    MissingPart: MISSING_DATA,
    ValueLost: VALUE_LOST,
    AskPerson: ERROR_ASK_PERSON,
}


class WorkerStopped(Exception):
    """The worker was shut down while the tool ran, so what became of the call is not known."""


class ToolPaused(Exception):
    """The tool is paused, so nothing was done; the server holds the call back."""


class OutcomeUnknown(Exception):
    """An earlier attempt called a `write` and its worker died: the change may have been made."""


_SENTENCES = (ToolError, MissingExtra, ModelFailure, ApplicationError, WorkerStopped, ToolPaused, OutcomeUnknown)
"""Errors whose text is a sentence for the reader, without their kind."""
_MAY_PASS = (ToolError, ModelFailure, ApplicationError, WorkerStopped, ToolPaused, OSError, httpx.HTTPError)


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
        return Posture(ERROR_NOT_STARTED, is_final=False)
    if isinstance(error, ValueNotLoaded | ResultNotKept):
        is_lost = isinstance(error, ResultNotKept) and effects is Effects.WRITE
        return Posture(STORE_UNAVAILABLE, is_final=is_lost)
    if isinstance(error, OutcomeUnknown):
        return Posture(ERROR_OUTCOME_UNKNOWN, is_final=True)
    if isinstance(error, ToolPaused):
        # Only if the server cannot hold it back is it tried again by itself.
        return Posture(ERROR_TOOL_PAUSED, is_final=False, delay=_PAUSED_DELAY)
    if isinstance(error, RetryLater):
        return Posture(TOOL_FAILED, is_final=False, delay=capped(error.after))
    if isinstance(error, ModelFailure):
        is_final = error.action is not Action.RETRY or effects is Effects.WRITE
        return Posture(error.error, is_final=is_final, delay=error.delay)
    if isinstance(error, httpx.HTTPStatusError):
        return _posture_of_status(error.response, effects)
    if isinstance(error, ApplicationError):
        return Posture(error.type or TOOL_FAILED, is_final=error.non_retryable, delay=capped(error.next_retry_delay))
    code = WORKER_STOPPED if isinstance(error, WorkerStopped) else TOOL_FAILED
    is_final = isinstance(
        error, GiveUp | MissingExtra | ValueError | TypeError | httpx.InvalidURL | httpx.UnsupportedProtocol
    )
    return Posture(code, is_final=is_final or effects is Effects.WRITE)


def posture_of_worker(error: BaseException, effects: Effects) -> Posture:
    """Returns what to do about `error`, raised by a worker tool of these effects.

    It is tried again only for what says that it may pass, or has to do with a connection: all else is told to the
    planner at once, which may know another way.
    """
    posture = posture_of(error, effects)
    return posture if posture.is_final or isinstance(error, _MAY_PASS) else replace(posture, is_final=True)


def _posture_of_status(response: httpx.Response, effects: Effects) -> Posture:
    delay = requested_delay(response.headers)
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        # The service refused to begin, so even a `write` may come again.
        return Posture(TOOL_FAILED, is_final=False, delay=delay)
    passing = response.is_server_error or response.status_code in (
        httpx.codes.REQUEST_TIMEOUT,
        httpx.codes.TOO_EARLY,
    )
    return Posture(TOOL_FAILED, is_final=not passing or effects is Effects.WRITE, delay=delay)


def activity_failure_of(
    error: BaseException, posture: Posture, *, details: Mapping[str, Any], redaction: Redaction
) -> ApplicationError:
    """Returns `error` as Temporal keeps it, with the end of its own traceback.

    Args:
        details: the one detail of the failure.
    """
    failure = ApplicationError(
        cut_bytes(redaction.text(text_of(error)), max_bytes=MESSAGE_LIMIT_BYTES),
        dict(details),
        type=posture.code,
        non_retryable=posture.is_final,
        next_retry_delay=posture.delay,
    )
    return failure.with_traceback(_end_of(error.__traceback__))


def question_of(error: AskPerson) -> dict[str, Any]:
    """Returns what a person is asked for, and the checkpoint if there is one, as the details of a failure.

    Raises:
        InvalidResult: they are no JSON, or too large.
    """
    told = {"request": error.request}
    if error.checkpoint is not None:
        told["checkpoint"] = error.checkpoint
    try:
        encoded = json_bytes(told)
    except (InvalidResult, RecursionError) as odd:
        raise InvalidResult(f"What AskPerson was given is no JSON: {odd}") from None
    if len(encoded) > QUESTION_LIMIT_BYTES:
        what = f"request and checkpoint of AskPerson have {len(encoded):,} bytes as JSON"
        raise InvalidResult(f"{what}; at most {QUESTION_LIMIT_BYTES:,} can be asked")
    return dict(json.loads(encoded))


def whole_of(error: BaseException, redaction: Redaction) -> dict[str, str] | None:
    """Returns the whole text of a failure and its traceback, up to 10 MB each; `None` if its message tells all."""
    text = redaction.text(text_of(error))
    if len(text) <= MESSAGE_LIMIT_BYTES // 4 or len(text.encode(errors="replace")) <= MESSAGE_LIMIT_BYTES:
        return None
    frames = "".join(traceback.format_tb(_own_frames(error.__traceback__)))
    told = {"message": text, "traceback": redaction.text(frames)}
    return {name: cut_bytes(part, max_bytes=FAILURE_TEXT_BYTES) for name, part in told.items()}


def text_of(error: BaseException) -> str:
    """Returns what `error` says, for every error: with its kind unless the words are meant for the reader."""
    said, kind = _said(error), type(error).__name__
    is_sentence = isinstance(error, _SENTENCES) or type(error) is ValueError
    text = said if said and is_sentence else f"{kind}: {said}" if said else kind
    # What the client of models met stands in the words of its failure already.
    cause = error.__cause__ if not isinstance(error, ModelFailure) else None
    return text if cause is None else f"{text} (caused by {type(cause).__name__}: {_said(cause)})"


def _said(error: BaseException) -> str:
    try:
        return str(error.message if isinstance(error, ApplicationError) else error)
    # The text of an error is made by the user's code, which may fail in any way: with SystemExit too.
    except BaseException:
        return "its text could not be made"


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
