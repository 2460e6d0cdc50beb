"""Creation of the request for a question whose bindings have been filled in.

This module must not import the scheduler.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pydantic_core

from dagwright.core.errors import NodeError
from dagwright.core.expressions.reference_resolution import as_text
from dagwright.core.expressions.stored_values import StoredValue, ValueRef, WorkerText, is_whole
from dagwright.core.expressions.value_refs import ref_for_display, with_refs_formatted
from dagwright.core.model.answer_forms import BadAnswer, default_answer
from dagwright.core.model.argument_checks import validator_of
from dagwright.core.model.requests import Purpose, Request
from dagwright.core.text import cut_characters

PROMPT_CHARACTERS = 8_000
"""Longest prompt; the rest is cut."""
OPTIONS = 1_000
QUESTION_BYTES = 64 * 1024
"""Options and schema of one question as JSON: they are part of the state of the run, also after continue-as-new."""


class BadQuestion(Exception):
    """A question is invalid because of the values of its references."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.error = NodeError("invalid_question", message)


def request_of(
    question: Mapping[str, Any], request_id: str, *, task: str, purpose: Purpose, tool: str = "", at: float
) -> Request:
    """Return the request for a question.

    Args:
        question: as in `CompiledNode.arguments` of a human node, with every binding filled.
        request_id: its id, and `task` the id of the node or item that asks.
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
    _check(request)
    return request


def _prompt_of(prompt: Any, name: str) -> str:
    if prompt is None or prompt == "":
        return f"Approve {name!r}?" if name else ""
    shown = prompt if is_whole(prompt) else with_refs_formatted(prompt, _ref_text)
    text = as_text(shown)
    return cut_characters(text, PROMPT_CHARACTERS)


def _ref_text(part: ValueRef) -> Any:
    """Return the text that a person sees in place of a stored value."""
    if isinstance(part, WorkerText):
        return "".join(each if isinstance(each, str) else _beginning_of(each) for each in part.parts)
    return _beginning_of(part)


def _beginning_of(part: Any) -> str:
    if isinstance(part, StoredValue) and part.shape is not None:
        return f"{part.shape.preview}… ({part.shape.size_bytes:,} bytes)"
    return str(ref_for_display(part)) if isinstance(part, StoredValue | WorkerText) else as_text(part)


def _check(request: Request) -> None:
    parts = [request.schema, request.options, request.on_timeout]
    if not is_whole(parts) or len(pydantic_core.to_json(parts)) > QUESTION_BYTES:
        raise BadQuestion(f"options and schema of a question may have {QUESTION_BYTES:,} bytes as JSON, not more")
    if request.assignee is not None and not isinstance(request.assignee, str):
        raise BadQuestion(f"assignee: expected the name of a user, not {request.assignee!r:.80}")
    # The value of a reference may have any type.
    last: Any = request.on_timeout
    while isinstance(last, Mapping) and "escalate" in last:
        if not isinstance(last["escalate"], str):
            raise BadQuestion(f"on_timeout: expected the assignee to escalate to, not {last['escalate']!r:.80}")
        last = last.get("then", "fail")
    if request.type == "SELECTION" and not (isinstance(request.options, list) and 0 < len(request.options) <= OPTIONS):
        raise BadQuestion(f"options: expected a list of 1 to {OPTIONS:,} options, not {request.options!r:.80}")
    if request.schema is not None:
        try:
            validator_of(request.schema)
        except ValueError as error:
            raise BadQuestion(f"schema: {error}") from None
    if isinstance(last, Mapping) and "default" in last:
        try:
            default_answer(replace(request, on_timeout=last))
        except BadAnswer as error:
            raise BadQuestion(f"on_timeout: the default does not fit the question: {error}") from None
