"""Asks a person at the terminal for the inputs that a plan still needs."""

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs
from pydantic import JsonValue

from dagwright.core.model.argument_checks import refuse_remote
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import one_line, terminal_text
from dagwright.interfaces.cli.plans import typed_value, value_as_text

YES = frozenset({"y", "yes", "approve", "a"})
NO = frozenset({"n", "no", "reject", "r"})


def ask_inputs(declared: Mapping[str, Mapping[str, Any]], given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns the given inputs with what the person answers, if one is missing: for those that have a default too.

    Raises:
        CommandRefused: the person ends the input instead.
    """
    values = dict(given)
    missing = [name for name, schema in declared.items() if name not in values and "default" not in schema]
    if len(missing) > 1:
        _show(f"The plan needs {len(missing)} inputs: {', '.join(map(one_line, missing))}")
    for name, schema in declared.items() if missing else ():
        if name not in values:
            values[name] = _ask(name, schema)
    return values


def ask_leave(words: str) -> bool:
    """Shows a plan and returns whether the person lets it run; one who ends the input does not."""
    _show(terminal_text(words))
    while True:
        try:
            said = input("May it run? (yes or no): ").strip().lower()
        except UnicodeDecodeError:
            continue
        except EOFError:
            return False
        if said in YES:
            return True
        if said in NO:
            return False


def _ask(name: str, schema: Mapping[str, Any]) -> JsonValue:
    has_default = "default" in schema
    question = question_of(name, schema, stands=default_words(schema) if has_default else "")
    while True:
        try:
            text = input(question)
        except UnicodeDecodeError:
            _show("that is no UTF-8")
            continue
        except EOFError:
            message = f"the input {name!r} is missing"
            raise CommandRefused(message, status="missing_input", code=ExitCode.REFUSED) from None
        if has_default and not text.strip():
            return cast("JsonValue", schema["default"])
        try:
            return value_of(schema, text)
        except ValueError as error:
            _show(one_line(str(error)))


def _show(text: str) -> None:
    print(text)  # noqa: T201 -- part of the conversation


def question_of(name: str, schema: Mapping[str, Any], *, stands: str = "") -> str:
    """Returns what to ask for a value of a JSON Schema: its prompt, with choices or what to type.

    Args:
        stands: what an empty line stands for.
    """
    words = one_line(str(schema.get("prompt") or schema.get("description") or name))
    if choices := schema.get("enum"):
        words += f" [{one_line(' | '.join(value_as_text(choice) for choice in choices))}]"
    facts = [] if choices else [_KINDS.get(str(schema.get("type")), "")]
    told = ", ".join(filter(None, [*facts, stands]))
    return f"{words} ({told}): " if told else f"{words}: "


def default_words(schema: Mapping[str, Any]) -> str:
    """Returns how a question says what its default is."""
    return f"empty: {one_line(value_as_text(schema['default']))}"


_KINDS = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list, commas between",
    "object": "an object, as JSON",
}
"""Type of a value -> what a person types for it."""
_YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def value_of(schema: Mapping[str, Any], text: str) -> JsonValue:
    """Returns the value of a JSON Schema that somebody typed.

    Raises:
        ValueError: it is none; the message says what to type.
    """
    said, kind = text.strip(), schema.get("type")
    if choices := schema.get("enum"):
        for choice in choices:
            if value_as_text(choice).lower() == said.lower():
                return cast("JsonValue", choice)
        raise ValueError(f"choose one of {', '.join(value_as_text(choice) for choice in choices)}")
    if kind == "boolean":
        if said.lower() not in _YES_OR_NO:
            raise ValueError("answer yes or no")
        return _YES_OR_NO[said.lower()]
    try:
        if kind == "array" and not said.startswith("["):
            items = schema.get("items")
            of_each = items if isinstance(items, Mapping) else {}
            value: JsonValue = [value_of(of_each, part) for part in said.split(",") if part.strip()]
        else:
            value = typed_value(schema, text if kind == "string" else said)
    except ValueError as error:
        if kind == "array" or str(kind) not in _KINDS:
            raise
        raise ValueError(f"type {_KINDS[str(kind)]}, not {said!r:.80}") from error
    return checked_value(schema, value)


def checked_value(schema: Mapping[str, Any], value: JsonValue) -> JsonValue:
    """Returns a value that a schema takes.

    Raises:
        ValueError: it does not take it.
    """
    plain = {key: part for key, part in schema.items() if key not in ("prompt", "default")}
    for error in jsonschema_rs.Draft202012Validator(plain, retriever=refuse_remote).iter_errors(value):
        raise ValueError(error.message)
    return value
