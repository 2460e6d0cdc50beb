"""Ask the user at the terminal for the answer to a request: choices, multi-line text, typed fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.input_prompts import NO, YES, default_text, input_question, parse_value, validate_value
from dagwright.interfaces.cli.output import indented_value_text, one_line, terminal_text
from dagwright.interfaces.cli.plan_input import convert_value, value_as_text
from dagwright.interfaces.cli.request_text import Request, assignee_of, entity_lines, option_label, option_name

_END_OF_TEXT = "."
_NOT_ANSWERED = "no answer was given; the request stays open"
_ANY_JSON: Mapping[str, Any] = {"type": ["null", "boolean", "integer", "number", "array", "object", "string"]}
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_NO_VALUE: Any = object()
_OPTION_NUMBER = re.compile(r"-?[0-9]{1,4}")
"""A reply that is always an option number, even if the request also accepts free text.

Longer numbers, such as registration numbers, may be free text.
"""

ReadLine = Callable[[str], str]
"""Ask for one line; raise `EOFError` at the end of the input."""


def _read_typed_line(question: str) -> str:
    while True:
        try:
            return input(question)
        except UnicodeDecodeError:
            _show("invalid UTF-8")


def ask_answer(request: Request, *, read_line: ReadLine = _read_typed_line) -> dict[str, Any]:
    """Return the user's answer, in the form that the type of the request requires.

    Args:
        read_line: asks for one line; raises `EOFError` at the end of the input.

    Raises:
        CommandError: the input ended.
    """
    return _AnswerDialog(read_line).answer(request)


class _AnswerDialog:
    """Dialog that asks for the answer to a request."""

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line_or_eof = read_line

    def answer(self, request: Request) -> dict[str, Any]:
        _show(f"{one_line(request['request_id'])}, for {assignee_of(request)}")
        if request["prompt"]:
            _show(str(request["prompt"]))
        match request["type"]:
            case "APPROVAL":
                return self._ask_approval(request)
            case "SELECTION":
                return self._ask_selection(request)
            case "INFORMATION":
                return {"data": self._ask_fields(request["schema"] or _ANY_OBJECT)}
            case kind:
                if kind == "GUIDANCE":
                    _show("(or use `feedback … --nodes FILE` to add nodes to the plan)")
                return {"text": self._read_text()}

    def _ask_approval(self, request: Request) -> dict[str, Any]:
        if request.get("tool") and request["tool"] != ACTIVITY_READ_MODEL_PLAN:
            _show(f"{one_line(str(request['tool']))} with {indented_value_text(request.get('arguments'))}")
            for line in entity_lines(request):
                _show(line)
        while True:
            reply = self._read_line("Approve? (yes or no): ").strip().lower()
            if reply in YES:
                return {"approved": True}
            if reply in NO:
                reason = self._read_line("Reason (optional): ").strip()
                return {"approved": False, **({"reason": reason} if reason else {})}
            _show("answer yes or no")

    def _ask_selection(self, request: Request) -> dict[str, Any]:
        options: Sequence[JsonValue] = request["options"] or []
        for number, option in enumerate(options, 1):
            _show(f"  {number}. {one_line(option_label(option) or option_name(option))}")
        is_multiple = bool(request.get("multiple"))
        allows_text = bool(request.get("allow_text"))
        question = (
            "Which ones? (numbers or names, separated by commas): " if is_multiple else "Which? (number or name): "
        )
        if allows_text:
            question = "Which? (number, name or other text): "
        while True:
            reply = self._read_line(question)
            texts = [part.strip() for part in reply.split(",")] if is_multiple else [reply.strip()]
            try:
                selected_options = [_find_option(text, options) for text in texts if text]
            except ValueError as error:
                if allows_text and not _OPTION_NUMBER.fullmatch(reply.strip()):
                    return {"text": reply.strip()}
                _show(one_line(str(error)))
                continue
            if not selected_options:
                _show("choose at least one" if is_multiple else "choose one")
            elif len({*map(repr, selected_options)}) < len(selected_options):
                _show("an option is selected twice; choose each option once")
            elif request.get("purpose") == "error" and selected_options == ["value"]:
                return {"selected": selected_options, "value": self._ask_json({})}
            else:
                return {"selected": selected_options}

    def _read_text(self) -> str:
        _show(f"(end a text of several lines with a line `{_END_OF_TEXT}` or with Ctrl-D)")
        lines: list[str] = []
        with suppress(EOFError):
            while (line := self._read_line_or_eof("> ")) != _END_OF_TEXT:
                lines.append(line)
        text = "\n".join(lines).strip()
        if not text:
            raise CommandError(_NOT_ANSWERED, code=CommandErrorCode.NOT_ANSWERED)
        return text

    def _ask_fields(self, schema: Mapping[str, Any]) -> JsonValue:
        """Ask for each field of an object, and repeat until the object matches the schema."""
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return self._ask_json(schema)
        required_names = schema.get("required")
        required_fields = set(required_names) if isinstance(required_names, list) else set()
        while True:
            values: dict[str, JsonValue] = {}
            for name, field in properties.items():
                field_schema = field if isinstance(field, dict) else {}
                value = self._ask_field(name, field_schema, is_required=name in required_fields)
                if value is not _NO_VALUE:
                    values[name] = value
            try:
                return validate_value(schema, values)
            except ValueError as error:
                _show(one_line(f"{error}; try again"))

    def _ask_field(self, name: str, schema: Mapping[str, Any], *, is_required: bool) -> Any:
        """Return the value of a field. For an omitted field, return the default, or `_NO_VALUE` without a default."""
        empty_line_hint = "" if is_required else default_text(schema) if "default" in schema else "optional"
        question = input_question(name, schema, empty_line_hint=empty_line_hint)
        while True:
            reply = self._read_line(question)
            if not reply.strip() and not is_required:
                return schema.get("default", _NO_VALUE)
            try:
                return parse_value(schema, reply)
            except ValueError as error:
                _show(one_line(str(error)))

    def _ask_json(self, schema: Mapping[str, Any]) -> JsonValue:
        while True:
            try:
                return validate_value(schema, convert_value(_ANY_JSON, self._read_line("Value as JSON: ")))
            except ValueError as error:
                _show(one_line(str(error)))

    def _read_line(self, question: str) -> str:
        """Read a line.

        Raises:
            CommandError: the input has ended.
        """
        try:
            return self._read_line_or_eof(question)
        except EOFError:
            raise CommandError(_NOT_ANSWERED, code=CommandErrorCode.NOT_ANSWERED) from None


def _find_option(text: str, options: Sequence[JsonValue]) -> JsonValue:
    """Find an option by its name or, if no name matches, by its number (from 1).

    Raises:
        ValueError: there is no such option.
    """
    for option in options:
        if text in (value_as_text(option), option_name(option)):
            return option
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    raise ValueError(f"{text!r:.80} is not one of the {len(options)} options")


def _show(text: str) -> None:
    print(terminal_text(text))  # noqa: T201 -- part of the dialog
