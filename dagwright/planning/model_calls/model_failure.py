"""Reasons of failed model calls, each with the action to take, and the error that callers receive."""

from datetime import timedelta
from enum import StrEnum
from typing import Self

from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.error_codes import DescribedCode
from dagwright.core.errors import DagwrightError


class Action(StrEnum):
    """Action to take after a failed model call."""

    RETRY = "retry"
    """The same call may succeed later."""
    FIX = "fix"
    """The model wrote an invalid answer: repeat the call with the problem."""
    ASK_PERSON = "ask_person"
    """A person has to act, for example to pay; then the same call may be retried."""
    GIVE_UP = "give_up"
    """The same call never succeeds; the advice names an alternative."""


class ModelError(DescribedCode):
    """Reason of a failed model call: the error code of the node, and `ApplicationError.type` of the activity.

    The reference page of the error codes is generated from the members.
    """

    action: Action

    def __new__(cls, code: str, action: Action, meaning: str, remedy: str) -> Self:
        return cls.create_member(code, action=action, meaning=meaning, remedy=remedy)

    BUSY = (
        "model_busy",
        Action.RETRY,
        "Too many requests (429).",
        "Wait; a [limit](../guides/limits.md) of the model spreads the calls.",
    )
    UNAVAILABLE = (
        "model_unavailable",
        Action.RETRY,
        "The service responds with 5xx, too late or not at all, or closes the connection.",
        "Wait, or correct `OPENAI_BASE_URL`.",
    )
    RESPONSE_INVALID = (
        "model_response_invalid",
        Action.RETRY,
        "The answer is empty, ends too early, or is not a valid response, such as an HTML page.",
        "See the message; correct `OPENAI_BASE_URL` if it happens each time.",
    )
    OUTPUT_INVALID = (
        "model_output_invalid",
        Action.FIX,
        "The JSON of the answer is missing, too long, or does not match its schema.",
        "Use a larger model, or a simpler schema.",
    )
    QUOTA_EXCEEDED = (
        "model_quota_exceeded",
        Action.ASK_PERSON,
        "The credit of the account is used up (402, `insufficient_quota`).",
        "Add credit, then retry the node.",
    )
    KEY_MISSING = ("model_key_missing", Action.GIVE_UP, "The worker has no key.", "Set `OPENAI_API_KEY` of the worker.")
    KEY_REJECTED = (
        "model_key_rejected",
        Action.GIVE_UP,
        "The service does not accept the key (401).",
        "Correct `OPENAI_API_KEY` of the worker.",
    )
    FORBIDDEN = (
        "model_forbidden",
        Action.GIVE_UP,
        "The key may not do this (403).",
        "Use another key or another model.",
    )
    MODEL_NOT_SET = (
        "model_not_set",
        Action.GIVE_UP,
        "No model is set.",
        "Use `--model`, or set `DAGWRIGHT_MODEL` of the worker.",
    )
    MODEL_UNKNOWN = (
        "model_unknown",
        Action.GIVE_UP,
        "The service does not have the model.",
        "Use a model of the service.",
    )
    ADDRESS_INVALID = (
        "model_address_invalid",
        Action.GIVE_UP,
        "The address of the service is wrong (404, 405).",
        "Correct `OPENAI_BASE_URL` of the worker; it usually ends in `/v1`.",
    )
    CONTEXT_EXCEEDED = (
        "model_context_exceeded",
        Action.GIVE_UP,
        "The request exceeds the context window of the model.",
        "Send less, or choose a model with a larger context.",
    )
    REFUSED = ("model_refused", Action.GIVE_UP, "The model declined the request.", "Rephrase the request.")
    FILTERED = (
        "model_filtered",
        Action.GIVE_UP,
        "A content filter blocked the request or the answer.",
        "Rephrase the request, or change the filter of the service.",
    )
    TRUNCATED = (
        "model_truncated",
        Action.GIVE_UP,
        "The answer is longer than `max_tokens`.",
        "Raise `max_tokens`, or split the request.",
    )
    REQUEST_INVALID = (
        "model_request_invalid",
        Action.GIVE_UP,
        "Any other error that the service attributes to the request.",
        "See the message, which quotes the service.",
    )


class ModelFailure(DagwrightError):
    """A model call failed. `action` is the next step of the caller.

    Args:
        delay: delay after which the same call may be retried, if the server sent one.

    Attributes:
        requested_by: service that requested the delay, such as `429 from api.example.org`; `None` if the status of the
            response is not a request to wait.
        model: name of the model; empty if it is not known.
        partial: text that the model wrote before the failure.
        usage: usage of the failed call.
    """

    def __init__(self, error: ModelError, message: str, *, advice: str = "", delay: timedelta | None = None) -> None:
        super().__init__(f"{message.removesuffix('.')}; {advice}" if advice else message)
        self.error = error
        self.action = error.action
        self.advice = advice
        self.delay = delay
        self.requested_by: str | None = None
        self.model = ""
        self.partial = ""
        self.usage = Usage()
