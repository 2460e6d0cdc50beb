"""The five kinds of answers of people (docs/guides/questions.md), and the limits of questions and answers.

An answer that does not have the form of its kind is rejected: the author of the answer receives a message with the
expected form, and the request stays open. This module must not import the scheduler.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any

import pydantic_core

from dagwright.core.expressions.references import as_text
from dagwright.core.model.budget_limits import limits_from_json
from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.requests import Request, is_labelled
from dagwright.core.name_hints import suggestion
from dagwright.core.text import cut_characters

ANSWER_BYTES = 256 * 1024
"""Maximum size of an answer as JSON, because the answer is part of the state of the run."""
ARGUMENTS_CHARACTERS = 4 * 1024 + 1
"""Maximum length of changed call arguments in the lineage of an answer, including a `…` in place of the rest."""
MAX_OPTIONS = 1_000
"""Maximum number of options of one question."""
QUESTION_BYTES = 64 * 1024
"""Maximum size of the options and schema of one question as JSON, because they are part of the state of the run."""
ERROR_ACTIONS = ("retry", "value", "skip", "stop")
"""Actions for a failed node."""
_LABEL_CHARACTERS = 160
"""Longest label of an option in an error message."""
_MAX_PROBLEMS = 5
"""Maximum number of problems of one answer in an error message."""


class BadAnswer(Exception):
    """An answer does not fit its request. The message names the expected form."""


def size_problem(value: Any, limit_bytes: int = ANSWER_BYTES, *, value_name: str = "the answer") -> str | None:
    """Return why an answer or another value cannot be stored; `None` if it can be stored.

    Args:
        value_name: name of the value in the message.
    """
    try:
        size = len(pydantic_core.to_json(value))
    except ValueError:
        return f"{value_name} is not JSON that can be stored: it holds a lone surrogate, or is nested too deep"
    if size > limit_bytes:
        return f"{value_name} has {size:,} bytes as JSON; at most {limit_bytes:,} are allowed"
    return None


def shorten_arguments(arguments: Mapping[str, Any]) -> Any:
    """Return changed call arguments for the lineage of an answer; if they are long, the start of their JSON."""
    text = pydantic_core.to_json(arguments).decode()
    return arguments if len(text) <= ARGUMENTS_CHARACTERS else cut_characters(text, ARGUMENTS_CHARACTERS)


def normalize_answer(request: Request, answer: Any) -> Any:
    """Check the size of an answer, and return the answer with exactly the keys that this kind of answer has.

    Raises:
        BadAnswer: the answer does not fit.
    """
    if (problem := size_problem(answer)) is not None:
        raise BadAnswer(problem)
    return normalize_checked_answer(request, answer)


def normalize_checked_answer(request: Request, answer: Any) -> Any:
    """Return an answer with exactly the keys that this kind of answer has.

    The caller has checked the size with `size_problem`.

    Raises:
        BadAnswer: the answer does not fit.
    """
    if request.purpose == "error":
        return _normalize_error_action(answer)
    if request.purpose == "budget":
        return _normalize_budget_answer(request, answer)
    return _NORMALIZERS[request.type](request, answer)


def accepted_answers_key(request: Request) -> bytes:
    """Return a key that is equal for two requests if they accept the same answers."""
    return pydantic_core.to_json(
        [request.purpose, request.type, request.multiple, request.allow_text, request.schema, request.options]
    )


def _check_object(answer: Any, allowed_keys: Collection[str], example: str) -> Mapping[str, Any]:
    """Return the answer if it is an object with allowed keys only."""
    if not isinstance(answer, Mapping):
        raise BadAnswer(f"expected an object such as {example}, not {_short_json(answer)}")
    for name in answer:
        if name not in allowed_keys:
            hint = suggestion(str(name), allowed_keys)
            raise BadAnswer(f"unknown key {name!r}; expected {example}" + (f"; {hint}" if hint else ""))
    return answer


def _short_json(value: Any) -> str:
    text = pydantic_core.to_json(value).decode()
    return cut_characters(text, 80)


def _text_of(parts: Mapping[str, Any], name: str) -> str | None:
    value = parts.get(name)
    if value is not None and not isinstance(value, str):
        raise BadAnswer(f"{name!r} must be a text, not {_short_json(value)}")
    return value


def _normalize_approval(request: Request, answer: Any) -> dict[str, Any]:
    # A node of the plan can also request an APPROVAL; only the approval of a call has the purpose `approval`.
    is_call_approval = request.purpose == "approval"
    allowed_keys = ("approved", "reason", "arguments", "remember") if is_call_approval else ("approved", "reason")
    example = '{"approved": true, "reason": "…"}'
    if isinstance(answer, Mapping) and "selected" in answer:
        raise BadAnswer(f"the request is an APPROVAL, not a SELECTION: approve or reject; as JSON {example}")
    parts = _check_object(answer, allowed_keys, example)
    is_approved = parts.get("approved")
    if not isinstance(is_approved, bool):
        raise BadAnswer(f"'approved' must be true or false, not {_short_json(is_approved)}")
    normal_parts: dict[str, Any] = {"approved": is_approved, "reason": _text_of(parts, "reason")}
    arguments, remember = parts.get("arguments"), parts.get("remember", False)
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise BadAnswer(f"'arguments' must be an object, not {_short_json(arguments)}")
        if not is_approved:
            raise BadAnswer("'arguments' are only allowed with an approval, and this is a rejection")
        normal_parts["arguments"] = dict(arguments)
    if not isinstance(remember, bool) or (remember and not is_approved):
        raise BadAnswer("'remember' must be true or false, and is only allowed with an approval")
    return normal_parts | ({"remember": True} if remember else {})


def _normalize_selection(request: Request, answer: Any) -> dict[str, Any]:
    example = '{"selected": ["x"]}' + (' or {"text": "…"}' if request.allow_text else "")
    if isinstance(answer, Mapping) and "approved" in answer:
        option = next(iter(request.options or ()), "x")
        option_text = as_text(_id_of(option) or option)
        raise BadAnswer(
            f"the request is a SELECTION, not an APPROVAL: select an option, such as {option_text}; as JSON {example}"
        )
    parts = _check_object(answer, ("selected", "text") if request.allow_text else ("selected",), example)
    if "text" in parts:
        if "selected" in parts:
            raise BadAnswer(f"either 'selected' or 'text' is allowed, not both; expected {example}")
        return _normalize_text(request, answer)
    selected = parts.get("selected")
    values = selected if isinstance(selected, list) else [selected]
    if not values or "selected" not in parts:
        raise BadAnswer(f"nothing is selected; expected {example}")
    if len(values) > 1 and not request.multiple:
        raise BadAnswer(f"exactly one option can be selected, not {len(values)}")
    options = [_option_of(request, value) for value in values]
    if len(set(map(_key_of, options))) < len(options):
        raise BadAnswer("an option is selected twice")
    return {"selected": options}


def _option_of(request: Request, value: Any) -> Any:
    options = request.options or ()
    key = _key_of(value)
    for option in options:
        if _key_of(option) == key:
            return option
    # On the command line, numbers are written as text, and an option with an `id` is selected by its `id`.
    matching_options = [
        option for option in options if isinstance(value, str) and value in (as_text(option), _id_of(option))
    ]
    if len(matching_options) == 1:
        return matching_options[0]
    offered_texts = ", ".join(map(_format_option, islice(options, 20)))
    raise BadAnswer(
        f"{_short_json(value)} is not offered; the options are {offered_texts}" + (", …" if len(options) > 20 else "")
    )


def _id_of(option: Any) -> Any:
    """Return the `id` of an option `{"id": …, "label": …}`; `None` for any other option."""
    return option["id"] if is_labelled(option) else None


def _format_option(option: Any) -> str:
    """Return an option for an error message: its `id` with its label, because an id alone may be meaningless."""
    name = _id_of(option)
    if name is None:
        return _short_json(option)
    label = as_text(option["label"])
    if label == name:
        return _short_json(name)
    return f"{_short_json(name)} ({cut_characters(label, _LABEL_CHARACTERS)})"


def _key_of(value: Any) -> bytes:
    """Return a key that differs for different JSON values: `1` and `true` are not equal here."""
    return pydantic_core.to_json(value)


def _normalize_text(request: Request, answer: Any) -> dict[str, Any]:  # noqa: ARG001 - the signature of `_NORMALIZERS`
    parts = _check_object(answer, ("text",), '{"text": "…"}')
    text = _text_of(parts, "text")
    if not (text or "").strip():
        raise BadAnswer('the text is missing; expected {"text": "…"}')
    return {"text": text}


def _normalize_guidance(request: Request, answer: Any) -> dict[str, Any]:
    parts = _check_object(answer, ("text", "nodes", "tools"), '{"text": "…"} or {"text": "…", "nodes": […]}')
    nodes, tools = parts.get("nodes"), parts.get("tools")
    if not nodes:
        return _normalize_text(request, {name: part for name, part in parts.items() if name == "text"})
    if not isinstance(nodes, list):
        raise BadAnswer(f"'nodes' must be a list of nodes as in a plan, not {_short_json(nodes)}")
    return {"text": _text_of(parts, "text") or "", "nodes": nodes, "tools": tools}


def default_answer(request: Request) -> Any:
    """Return the answer that the plan sets for a request whose deadline passes.

    Raises:
        BadAnswer: the default does not fit the request.
    """
    assert isinstance(request.on_timeout, Mapping)
    answer = normalize_answer(request, request.on_timeout["default"])
    if adds_nodes(request, answer):
        raise BadAnswer("a default answer must not add nodes to a running plan; write the nodes into the plan document")
    return answer


def adds_nodes(request: Request, answer: Any) -> bool:
    """Return whether an answer in its normal form adds nodes to the plan.

    A retry with changed arguments adds a node: the new node replaces the failed node.
    """
    if request.purpose == "error":
        return "arguments" in answer
    return request.type == "GUIDANCE" and "nodes" in answer


def _normalize_information(request: Request, answer: Any) -> dict[str, Any]:
    parts = _check_object(answer, ("data",), '{"data": {…}}')
    if "data" not in parts:
        raise BadAnswer('the data is missing; expected {"data": {…}}')
    data = parts["data"]
    if request.schema is None:
        if not isinstance(data, Mapping):
            raise BadAnswer(f"'data' must be an object, not {_short_json(data)}")
        return {"data": data}
    errors = islice(validator_of(request.schema).iter_errors(data), _MAX_PROBLEMS)
    problems = ["/".join(["data", *map(str, error.instance_path)]) + f": {error.message}" for error in errors]
    if problems:
        raise BadAnswer("; ".join(problems))
    return {"data": data}


_NORMALIZERS: Mapping[str, Callable[[Request, Any], dict[str, Any]]] = {
    "APPROVAL": _normalize_approval,
    "SELECTION": _normalize_selection,
    "GUIDANCE": _normalize_guidance,
    "CLARIFICATION": _normalize_text,
    "INFORMATION": _normalize_information,
}


def _normalize_budget_answer(request: Request, answer: Any) -> dict[str, Any]:
    example = '{"data": {"finish": true}} or an increase such as {"data": {"tokens": 50000}}'
    data = _check_object(answer, ("data",), example).get("data")
    if isinstance(data, Mapping) and "finish" in data:
        if data["finish"] is not True or len(data) > 1:
            raise BadAnswer(f"'finish' must be true and the only key; expected {example}")
        return {"finish": True}
    try:
        increases = limits_from_json(data, allow_null=True)
    except ValueError as error:
        raise BadAnswer(f"{error}; expected {example}") from None
    limited_kinds = [name for name in (request.schema or {}).get("properties", {}) if name != "finish"]
    if unlimited_kinds := [kind for kind in increases if kind not in limited_kinds]:
        raise BadAnswer(f"{unlimited_kinds[0]} is not limited in this run; the run limits {', '.join(limited_kinds)}")
    return {"more": increases}


def _normalize_error_action(answer: Any) -> dict[str, Any]:
    example = '{"selected": ["retry"]}, {"selected": ["value"], "value": …}, {"selected": ["skip"]}'
    parts = _check_object(answer, ("selected", "action", "value", "arguments"), example)
    selected = parts.get("selected", parts.get("action"))
    action = selected[0] if isinstance(selected, list) and len(selected) == 1 else selected
    if not isinstance(action, str) or action not in ERROR_ACTIONS:
        raise BadAnswer(f"{_short_json(selected)} is not offered; select one of {', '.join(ERROR_ACTIONS)}")
    normal_parts: dict[str, Any] = {"action": action}
    for name, required_action in (("value", "value"), ("arguments", "retry")):
        if name in parts and action != required_action:
            raise BadAnswer(
                f"the key {name!r} is only allowed with the action {required_action!r}, but {action!r} is selected"
            )
    if action == "value":
        if "value" not in parts:
            raise BadAnswer('the value is missing; expected {"selected": ["value"], "value": …}')
        normal_parts["value"] = parts["value"]
    arguments = parts.get("arguments")
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise BadAnswer(f"'arguments' must be an object, not {_short_json(arguments)}")
        normal_parts["arguments"] = dict(arguments)
    return normal_parts
