"""Check questions after their references have been resolved, and create the requests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pydantic_core
from pydantic import ValidationError

from dagwright.core.expressions.references import as_text
from dagwright.core.expressions.stored_values import DeferredText, StoredValue, ValueRef, is_inline_value
from dagwright.core.expressions.value_refs import format_value_refs, ref_for_display
from dagwright.core.model.answers import MAX_OPTIONS, QUESTION_BYTES, BadAnswer, default_answer
from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.plan import Human, question_of
from dagwright.core.model.requests import Purpose, Request
from dagwright.core.model.states import NodeError
from dagwright.core.name_hints import suggestion
from dagwright.core.text import cut_characters
from dagwright.core.validation.human_fields import problems_of_request

MAX_PROMPT_CHARACTERS = 8_000
"""Maximum length of a prompt; the rest is cut."""
_MAX_REPORTED_PROBLEMS = 3


class BadQuestion(Exception):
    """A question of a node or a running tool is invalid."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.error = NodeError("invalid_human_request", message)


def _field_problem(path: tuple[str | int, ...], kind: str, message: str) -> str:
    label = ".".join(map(str, path))
    if kind != "extra_forbidden":
        return f"{label}: {message}".lstrip(": ")
    known_names = [field.alias or name for name, field in Human.model_fields.items()]
    return "; ".join(filter(None, [f"unknown field {label!r}", suggestion(str(path[-1]), known_names)]))


def validate_question_fields(question: Any) -> dict[str, Any]:
    """Validate the question of a running tool or agent, and return the compiled form of the question.

    Args:
        question: a text, or an object with the fields of `human`.

    Raises:
        BadQuestion: the question is invalid.
    """
    fields = {"type": "CLARIFICATION", "prompt": question} if isinstance(question, str) else question
    try:
        human = Human.model_validate(fields)
    except ValidationError as error:
        problems = [_field_problem(details["loc"], details["type"], details["msg"]) for details in error.errors()]
        raise BadQuestion(f"invalid question: {'; '.join(problems[:_MAX_REPORTED_PROBLEMS])}") from None
    for path, message, _ in problems_of_request(human):
        raise BadQuestion(f"invalid question: {'.'.join(map(str, path))}: {message}")
    return question_of(human)


def request_of(
    question: Mapping[str, Any], request_id: str, *, task: str, purpose: Purpose, tool: str = "", at: float
) -> Request:
    """Return the request for a question.

    Args:
        question: arguments of a human node, with all references resolved.
        request_id: id of the request.
        task: id of the node or item that asks.
        at: seconds since the epoch.

    Raises:
        BadQuestion: the question is invalid.
    """
    deadline_s, reminder_s = question.get("deadline_s"), question.get("reminder_s")
    request = Request(
        id=request_id,
        task=task,
        purpose=purpose,
        type=question.get("type", "APPROVAL"),
        prompt=_prompt_of(question.get("prompt"), tool or task),
        opened_at=at,
        schema=question.get("schema"),
        options=question.get("options"),
        multiple=question.get("multiple", False),
        allow_text=question.get("allow_text", False),
        assignee=question.get("assignee"),
        channel=question.get("channel", "any"),
        deadline_s=deadline_s,
        deadline_at=None if deadline_s is None else at + deadline_s,
        reminder_s=reminder_s,
        next_reminder_at=None if reminder_s is None else at + reminder_s,
        on_timeout=question.get("on_timeout", "fail"),
        tool=tool,
    )
    _check_request(request)
    return request


def _prompt_of(prompt: Any, subject: str) -> str:
    if prompt is None or prompt == "":
        return f"Approve {subject!r}?" if subject else ""
    display_value = prompt if is_inline_value(prompt) else format_value_refs(prompt, _ref_text)
    text = as_text(display_value)
    return cut_characters(text, MAX_PROMPT_CHARACTERS)


def _ref_text(part: ValueRef) -> Any:
    """Return the text that a person sees in place of a stored value."""
    if isinstance(part, DeferredText):
        return "".join(inner if isinstance(inner, str) else _preview_of(inner) for inner in part.parts)
    return _preview_of(part)


def _preview_of(part: Any) -> str:
    if isinstance(part, StoredValue) and part.shape is not None:
        return f"{part.shape.preview}… ({part.shape.size_bytes:,} bytes)"
    return str(ref_for_display(part)) if isinstance(part, StoredValue | DeferredText) else as_text(part)


def _check_request(request: Request) -> None:
    parts = [request.schema, request.options, request.on_timeout]
    if not is_inline_value(parts) or len(pydantic_core.to_json(parts)) > QUESTION_BYTES:
        raise BadQuestion(f"options and schema of a question may have at most {QUESTION_BYTES:,} bytes as JSON")
    if request.assignee is not None and not isinstance(request.assignee, str):
        raise BadQuestion(f"assignee: expected the name of a user, not {request.assignee!r:.80}")
    # The value of a reference may have any type.
    final_step: Any = request.on_timeout
    while isinstance(final_step, Mapping) and "escalate" in final_step:
        if not isinstance(final_step["escalate"], str):
            raise BadQuestion(f"on_timeout: expected the assignee to escalate to, not {final_step['escalate']!r:.80}")
        final_step = final_step.get("then", "fail")
    if request.type == "SELECTION" and not (
        isinstance(request.options, list) and 0 < len(request.options) <= MAX_OPTIONS
    ):
        raise BadQuestion(f"options: expected a list of 1 to {MAX_OPTIONS:,} options, not {request.options!r:.80}")
    if request.schema is not None:
        try:
            validator_of(request.schema)
        except ValueError as error:
            raise BadQuestion(f"schema: {error}") from None
    if isinstance(final_step, Mapping) and "default" in final_step:
        try:
            default_answer(replace(request, on_timeout=final_step))
        except BadAnswer as error:
            raise BadQuestion(f"on_timeout: the default does not fit the question: {error}") from None
