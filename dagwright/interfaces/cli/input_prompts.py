"""Ask the user at the terminal for missing inputs of a plan."""

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs
from pydantic import JsonValue

from dagwright.core.model.json_schemas import reject_remote
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.output import one_line, terminal_text
from dagwright.interfaces.cli.plan_input import convert_value, value_as_text

YES = frozenset({"y", "yes", "approve", "a"})
NO = frozenset({"n", "no", "reject", "r"})


def ask_inputs(
    input_schemas: Mapping[str, Mapping[str, Any]], known_values: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the known inputs and the inputs that the user enters.

    If an input without a default is missing, the user is asked for every unknown input.

    Raises:
        CommandError: standard input ended.
    """
    values = dict(known_values)
    missing_names = [name for name, schema in input_schemas.items() if name not in values and "default" not in schema]
    if len(missing_names) > 1:
        _show(f"The plan needs {len(missing_names)} inputs: {', '.join(map(one_line, missing_names))}")
    for name, schema in input_schemas.items() if missing_names else ():
        if name not in values:
            values[name] = _ask_input(name, schema)
    return values


def ask_approval(text: str) -> bool:
    """Show a plan and return whether the user approves it; the end of standard input counts as no."""
    _show(terminal_text(text))
    while True:
        try:
            reply = input("Run this plan? (yes or no): ").strip().lower()
        except UnicodeDecodeError:
            continue
        except EOFError:
            return False
        if reply in YES:
            return True
        if reply in NO:
            return False


def _ask_input(name: str, schema: Mapping[str, Any]) -> JsonValue:
    has_default = "default" in schema
    question = input_question(name, schema, empty_line_hint=default_text(schema) if has_default else "")
    while True:
        try:
            text = input(question)
        except UnicodeDecodeError:
            _show("invalid UTF-8")
            continue
        except EOFError:
            message = f"the input {name!r} is missing"
            raise CommandError(message, code=CommandErrorCode.MISSING_INPUT) from None
        if has_default and not text.strip():
            return cast("JsonValue", schema["default"])
        try:
            return parse_value(schema, text)
        except ValueError as error:
            _show(one_line(str(error)))


def _show(text: str) -> None:
    print(text)  # noqa: T201 -- part of the dialog


def input_question(name: str, schema: Mapping[str, Any], *, empty_line_hint: str = "") -> str:
    """Return the question for a value: the prompt of its JSON Schema, with the choices or the expected type.

    Args:
        empty_line_hint: text about the meaning of an empty line.
    """
    prompt = one_line(str(schema.get("prompt") or schema.get("description") or name))
    if choices := schema.get("enum"):
        prompt += f" [{one_line(' | '.join(value_as_text(choice) for choice in choices))}]"
    type_texts = [] if choices else [_TYPE_TEXTS.get(str(schema.get("type")), "")]
    hints = ", ".join(filter(None, [*type_texts, empty_line_hint]))
    return f"{prompt} ({hints}): " if hints else f"{prompt}: "


def default_text(schema: Mapping[str, Any]) -> str:
    """Return the part of a question that names the default."""
    return f"empty: {one_line(value_as_text(schema['default']))}"


_TYPE_TEXTS = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list, separated by commas",
    "object": "a JSON object",
}
"""Type of a value -> description of its text form."""
_YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def parse_value(schema: Mapping[str, Any], text: str) -> JsonValue:
    """Parse a text that the user typed, according to a JSON Schema.

    Raises:
        ValueError: the text is invalid; the message names the valid texts.
    """
    stripped_text, value_type = text.strip(), schema.get("type")
    if choices := schema.get("enum"):
        for choice in choices:
            if value_as_text(choice).lower() == stripped_text.lower():
                return cast("JsonValue", choice)
        raise ValueError(f"choose one of {', '.join(value_as_text(choice) for choice in choices)}")
    if value_type == "boolean":
        if stripped_text.lower() not in _YES_OR_NO:
            raise ValueError("answer yes or no")
        return _YES_OR_NO[stripped_text.lower()]
    try:
        if value_type == "array" and not stripped_text.startswith("["):
            items = schema.get("items")
            item_schema = items if isinstance(items, Mapping) else {}
            value: JsonValue = [parse_value(item_schema, part) for part in stripped_text.split(",") if part.strip()]
        else:
            value = convert_value(schema, text if value_type == "string" else stripped_text)
    except ValueError as error:
        if value_type == "array" or str(value_type) not in _TYPE_TEXTS:
            raise
        raise ValueError(f"enter {_TYPE_TEXTS[str(value_type)]}, not {stripped_text!r:.80}") from error
    return validate_value(schema, value)


def validate_value(schema: Mapping[str, Any], value: JsonValue) -> JsonValue:
    """Return the value if it matches the schema.

    Raises:
        ValueError: the value does not match.
    """
    plain_schema = {key: part for key, part in schema.items() if key not in ("prompt", "default")}
    for error in jsonschema_rs.Draft202012Validator(plain_schema, retriever=reject_remote).iter_errors(value):
        raise ValueError(error.message)
    return value
