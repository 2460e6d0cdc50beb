"""Checks of the human requests of a plan before the run.

Parts of a request that depend on references are checked when the request is opened.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pydantic_core

from dagwright.core.model.answers import MAX_OPTIONS, QUESTION_BYTES, BadAnswer, default_answer
from dagwright.core.model.compiled import Binding
from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.plan import Human, Node, OnTimeout, OnTimeoutDefault, OnTimeoutEscalate
from dagwright.core.model.requests import Request

FieldProblem = tuple[tuple[str | int, ...], str, str | None]
"""Path in the node, message and hint."""

_FIELDS_WITHOUT_EFFECT = {
    "timeout": "it limits an attempt of a tool; the 'deadline' of the question limits the time for an answer",
    "retry": "there is no call to retry",
    "heartbeat": "there is no call that could send heartbeats",
}
"""Fields that have no effect on a human node -> reason."""


def problems_of_requests(
    node: Node, *, human_bindings: Sequence[Binding], approval_bindings: Sequence[Binding]
) -> Iterator[FieldProblem]:
    """Yield the problems that can be found before the run in the human request and the approval request of a node.

    Args:
        human_bindings, approval_bindings: bindings in the compiled forms of the two requests.
    """
    if node.human is not None:
        # The request is empty if the dialect could not parse the action of the node; the dialect reported that problem.
        yield from _problems_of_human_node(node) if node.human != Human() else ()
        for at, message, hint in problems_of_request(node.human, human_bindings):
            yield ("human", *at), message, hint
    if isinstance(node.approval, Human):
        if node.approval.type != "APPROVAL":
            yield ("approval", "type"), "the question of an approval must be of type APPROVAL", None
        for at, message, hint in problems_of_request(node.approval, approval_bindings):
            yield ("approval", *at), message, hint


def _problems_of_human_node(node: Node) -> Iterator[FieldProblem]:
    """Yield a problem for each field that a human node must not have."""
    for name, reason in _FIELDS_WITHOUT_EFFECT.items():
        if getattr(node, name) is not None:
            yield (name,), f"{name!r} has no effect on a question to a person: {reason}", f"omit {name!r}"
    if node.arguments:
        yield ("arguments",), "a question to a person takes no 'arguments'", "put them into 'human'"
    if node.on_error == "ask":
        message = "a question to a person cannot have 'on_error: ask'"
        yield ("on_error",), message, "use 'on_timeout' for a question that is not answered"
    if node.approval not in ("policy", "never"):
        yield ("approval",), "a question to a person needs no approval", "omit 'approval'"


def problems_of_request(human: Human, bindings: Sequence[Binding] = ()) -> Iterator[FieldProblem]:
    """Yield the problems in a request that do not depend on the values of its bindings."""
    bound_fields = {path[0] for path, _ in bindings}
    yield from _problems_of_request_fields(human)
    if human.type == "SELECTION":
        yield from _problems_of_options(human.options, bound_fields)
    if human.answer_schema is not None and "schema" not in bound_fields:
        try:
            validator_of(human.answer_schema)
        except ValueError as error:
            yield ("schema",), str(error), None
            return
    size = len(pydantic_core.to_json([human.answer_schema, human.options]))
    if size > QUESTION_BYTES:
        yield (), f"options and schema have {size:,} bytes as JSON; at most {QUESTION_BYTES:,} are allowed", None
    is_literal = not bound_fields & {"options", "schema", "on_timeout"}
    *_, (path, last_step) = _steps_of(human)
    has_known_options = human.type != "SELECTION" or isinstance(human.options, list)
    if isinstance(last_step, OnTimeoutDefault) and is_literal and has_known_options:
        yield from _problems_of_default(human, last_step, path)


def _problems_of_request_fields(human: Human) -> Iterator[FieldProblem]:
    if human.type != "SELECTION":
        if human.options is not None:
            yield ("options",), f"'options' belong to a SELECTION, and this request is of type {human.type}", None
        if human.multiple:
            yield ("multiple",), f"'multiple' belongs to a SELECTION, and this request is of type {human.type}", None
        if human.allow_text:
            yield (
                ("allow_text",),
                f"'allow_text' belongs to a SELECTION, and this request is of type {human.type}",
                None,
            )
    if human.answer_schema is not None and human.type != "INFORMATION":
        yield ("schema",), f"'schema' belongs to an INFORMATION, and this request is of type {human.type}", None
    if human.deadline is None and human.on_timeout != "fail":
        yield ("on_timeout",), "'on_timeout' has no effect without a 'deadline'", "add deadline: 2d"
    for path, step in _steps_of(human):
        if isinstance(step, OnTimeoutEscalate) and not step.escalate.strip():
            yield (*path, "escalate"), "expected the assignee to escalate to", None


def _steps_of(human: Human) -> Iterator[tuple[tuple[str, ...], OnTimeout]]:
    """Yield each step of the escalation chain, at least one, with its path."""
    path: tuple[str, ...] = ("on_timeout",)
    step: OnTimeout = human.on_timeout
    yield path, step
    while isinstance(step, OnTimeoutEscalate):
        path, step = (*path, "then"), step.then
        yield path, step


def _problems_of_options(options: Any, bound_fields: set[str | int]) -> Iterator[FieldProblem]:
    if options is None:
        yield ("options",), "a SELECTION needs 'options'", 'write options: [a, b], or "{{node.result.list}}"'
    elif isinstance(options, str):
        if "options" not in bound_fields:
            yield ("options",), "'options' must be a list or a reference to a list", None
    elif not 0 < len(options) <= MAX_OPTIONS:
        yield ("options",), f"a SELECTION has 1 to {MAX_OPTIONS:,} options, not {len(options):,}", None
    elif "options" not in bound_fields and len(set(map(pydantic_core.to_json, options))) < len(options):
        yield ("options",), "duplicate option", None


def _problems_of_default(human: Human, step: OnTimeoutDefault, path: tuple[str, ...]) -> Iterator[FieldProblem]:
    schema, options = human.answer_schema, human.options
    request = Request(
        id="",
        task="",
        purpose="answer",
        type=human.type,
        prompt="",
        opened_at=0.0,
        schema=schema,
        options=options if isinstance(options, list) else None,
        multiple=human.multiple,
        allow_text=human.allow_text,
        on_timeout={"default": step.default},
    )
    try:
        default_answer(request)
    except BadAnswer as error:
        yield (*path, "default"), f"the default does not fit the question: {error}", None
