"""Asks a person at the terminal for the inputs that a plan still needs."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from pydantic import JsonValue

from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.output import one_line
from dagwright.cli.plans import typed_value, value_as_text
from dagwright.plan.arguments import refuse_remote


def ask_inputs(declared: Mapping[str, Mapping[str, Any]], given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns the given inputs and, for each that has neither value nor default, what the person answers.

    Raises:
        CommandRefused: the person ends the input instead.
    """
    values = dict(given)
    for name, schema in declared.items():
        if name not in values and "default" not in schema:
            values[name] = _ask(name, schema)
    return values


def _ask(name: str, schema: Mapping[str, Any]) -> JsonValue:
    question = _question(name, schema)
    while True:
        try:
            text = input(question)
        except UnicodeDecodeError:
            print("that is no UTF-8")  # noqa: T201 -- part of the conversation
            continue
        except EOFError:
            message = f"the input {name!r} is missing"
            raise CommandRefused(message, status="missing_input", code=ExitCode.REFUSED) from None
        try:
            return _answer(schema, text)
        except ValueError as error:
            print(one_line(str(error)))  # noqa: T201 -- part of the conversation


def _question(name: str, schema: Mapping[str, Any]) -> str:
    words = one_line(str(schema.get("prompt") or schema.get("description") or name))
    choices = schema.get("enum")
    kind = schema.get("type")
    if choices:
        words += f" [{one_line(' | '.join(value_as_text(choice) for choice in choices))}]"
    elif kind not in (None, "string"):
        words += f" ({one_line(str(kind))})"
    return f"{words}: "


def _answer(schema: Mapping[str, Any], text: str) -> JsonValue:
    """Returns the value of an answer.

    Raises:
        ValueError: it is none that the schema takes.
    """
    value = typed_value(schema, text)
    plain = {key: part for key, part in schema.items() if key not in ("prompt", "default")}
    for error in jsonschema_rs.Draft202012Validator(plain, retriever=refuse_remote).iter_errors(value):
        raise ValueError(error.message)
    return value
