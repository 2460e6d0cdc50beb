"""The tables of the failures of nodes and runs, and of failed model calls.

Whether a failure is retryable follows from the source code: from `retry_decision` for errors of tool calls, from the
`ApplicationError`s of activities, and from the `NodeError`s that the engine creates.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from datetime import timedelta

import httpx

from activities import errors as call_errors
from dagwright.core.error_codes import FailureCode
from dagwright.core.model.tools import Effects
from dagwright.planning.model_calls.model_failure import Action, ModelError
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
    ValueLost,
)
from scripts.reference.markdown import code, table
from scripts.reference.sources import calls_of, members_of, texts_of

_INTERNAL_CODES = frozenset(
    {
        "PlanFailed",
        "Rejected",
        "UnknownWorkflowType",
        "batch_lost",
        "not_sent",
        "store_retry",
        "tool_missing",
        "tool_paused",
    }
)
"""Codes that are never the error of a node or run, such as codes of attempts that the run repeats."""

_MODEL_RETRIES = {
    Action.RETRY: "yes",
    Action.FIX: "with the errors, which the model corrects",
    Action.ASK_PERSON: "no",
    Action.GIVE_UP: "no",
}

_TOOL_ERRORS: tuple[BaseException, ...] = (
    AskPerson("?"),
    GiveUp("?"),
    InvalidArguments("?"),
    InvalidResult("?"),
    MissingPart("?"),
    MissingSecret("?"),
    NotStarted("?"),
    ResultNotStored("?"),
    ResultTooLarge("?"),
    RetryLater("?", after=timedelta(seconds=1)),
    SecretNotAllowed("?"),
    ToolChanged("?"),
    ValueLost("?"),
    ArgumentNotLoaded("?"),
    RuntimeError("?"),
    httpx.ConnectError("?"),
    call_errors.OutcomeUnknown("?"),
    call_errors.WorkerStopped("?"),
)


def failures_table() -> str:
    """Return a row for each code: meaning, whether the failure is retryable, and the remedy."""
    values = _retryable_values()
    texts = {frozenset({True}): "yes", frozenset({True, False}): "depends on the cause"}
    rows = [
        (code(each), each.meaning, texts.get(frozenset(values.get(each, set())), "no"), each.remedy)
        for each in sorted(FailureCode, key=lambda each: each.lower())
    ]
    return table(("Code", "Meaning", "Retryable", "Remedy"), rows)


def model_failures_table() -> str:
    """Return a row for each code of a failed model call."""
    rows = [(code(error), error.meaning, _MODEL_RETRIES[error.action], error.remedy) for error in sorted(ModelError)]
    return table(("Code", "Meaning", "Retried", "Remedy"), rows)


def used_failure_codes() -> set[str]:
    """Return the codes that nodes and runs can fail with, without those of model calls."""
    members = {FailureCode[name].value for name in members_of("FailureCode")}
    return (set(_retryable_values()) | members) - _INTERNAL_CODES


def _retryable_values() -> Mapping[str, Set[bool]]:
    """Return the values that `retryable` can have for each code."""
    values: dict[str, set[bool]] = defaultdict(set)
    for failure_code, is_retryable in [*_codes_of_tool_calls(), *_codes_of_engine(), *_codes_of_activities()]:
        values[failure_code].add(is_retryable)
    return values


def _codes_of_tool_calls() -> Iterator[tuple[str, bool]]:
    for error in _TOOL_ERRORS:
        for effects in (Effects.READ, Effects.WRITE):
            decision = call_errors.retry_decision(error, effects)
            yield decision.code, not decision.is_final


def _codes_of_engine() -> Iterator[tuple[str, bool]]:
    for call in calls_of("NodeError"):
        arguments = [keyword.value for keyword in call.keywords if keyword.arg == "retryable"] or call.args[2:3]
        retryable = arguments[0] if arguments else ast.Constant(False)
        constant = retryable.value if isinstance(retryable, ast.Constant) else None
        for name in texts_of(call.args[0]) if call.args else ():
            yield from ((name, value) for value in ((True, False) if constant is None else (bool(constant),)))


def _codes_of_activities() -> Iterator[tuple[str, bool]]:
    for call in calls_of("ApplicationError"):
        arguments = {keyword.arg: keyword.value for keyword in call.keywords}
        is_final = isinstance(arguments.get("non_retryable"), ast.Constant)
        for name in texts_of(arguments["type"]) if "type" in arguments else ():
            yield name, not is_final
    for call in calls_of("error_json"):
        yield from ((name, False) for name in texts_of(call.args[0]))
