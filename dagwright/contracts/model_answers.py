"""What a workflow reads of a model call that has ended: its answer, or why it failed for good."""

from dataclasses import dataclass, field

from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.contracts.limits import MESSAGE_LIMIT_BYTES, cut_text
from dagwright.contracts.model_calls import Action, as_said
from dagwright.contracts.outcomes import ResultInvalid, read_result
from dagwright.contracts.told_answers import ToldAnswer, told_answer
from dagwright.contracts.usage import Usage, usage_from_json


def read_answer(payload: Payload, *, name: str) -> ToldAnswer:
    """Returns the answer that `call_model` gave.

    Args:
        name: what the answer is called in messages.

    Raises:
        ResultInvalid: it is none.
    """
    value, _ = read_result(payload, name=name)
    try:
        return told_answer(value)
    except ValueError as error:
        raise ResultInvalid(f"{name} is no answer of a model: {error}") from None


@dataclass(frozen=True, slots=True)
class ModelCallFailed:
    """Why a model call failed for good.

    Args:
        code: one of `ModelError`, or a code of the worker's own, such as `store_unavailable`.
        action: what to do next; `retry` means that the attempts are used up.
        said: what the model had said, to be shown to it when it is asked again; or its reference, if it is long.
        usage: what the last attempt has used all the same.
    """

    code: str
    message: str
    action: Action
    said: str = ""
    said_ref: str | None = None
    usage: Usage = field(default_factory=Usage)


def read_model_failure(error: BaseException) -> ModelCallFailed:
    """Returns why a model call failed for good; one that was lost with its worker may be made again.

    Args:
        error: no cancellation: `outcomes.is_cancellation` tells those.
    """
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if not isinstance(cause, ApplicationError):
        words = getattr(cause, "message", None) or str(cause)
        return ModelCallFailed("model_call_lost", cut_text(words, max_bytes=MESSAGE_LIMIT_BYTES), Action.RETRY)
    told = cause.details[0] if cause.details and isinstance(cause.details[0], dict) else {}
    action = told.get("action")
    known = [each for each in Action if each == action]
    said, said_ref = as_said(told.get("said")), told.get("said_ref")
    try:
        usage = usage_from_json(told.get("usage", {}))
    except ValueError:
        usage = Usage()
    return ModelCallFailed(
        cause.type or "model_call_failed",
        cut_text(cause.message, max_bytes=MESSAGE_LIMIT_BYTES),
        known[0] if known else Action.GIVE_UP if cause.non_retryable else Action.RETRY,
        said=said if isinstance(said, str) else "",
        said_ref=said_ref if isinstance(said_ref, str) else None,
        usage=usage,
    )
