"""Asks a person at the terminal for the answer of a request: choices, text of several lines, typed fields."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.interfaces.cli.asking import NO, YES, checked_value, default_words, question_of, value_of
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.output import one_line, terminal_text, value_text
from dagwright.interfaces.cli.plans import typed_value, value_as_text
from dagwright.interfaces.cli.request_words import Request, asked_of, option_label, option_name, party_lines

_END_OF_TEXT = "."
_NOT_ANSWERED = "nothing was answered; the request stays open"
_ANY_JSON: Mapping[str, Any] = {"type": ["null", "boolean", "integer", "number", "array", "object", "string"]}
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_NOTHING: Any = object()
_NUMBER_OF_OPTION = re.compile(r"-?[0-9]{1,4}")
"""Whoever writes one means an option, where another text would do too; the numbers of registers are longer."""

Read = Callable[[str], str]
"""Asks for one line; raises `EOFError` at the end of the input."""


def _typed(question: str) -> str:
    while True:
        try:
            return input(question)
        except UnicodeDecodeError:
            _show("that is no UTF-8")


def ask_answer(request: Request, *, read: Read = _typed) -> dict[str, Any]:
    """Returns what the person answers, as the type of the request wants it.

    Args:
        read: asks for one line; raises `EOFError` at the end of the input.

    Raises:
        CommandRefused: the person ends the input instead.
    """
    return _Form(read).answer(request)


class _Form:
    """Asks for one answer.

    Args:
        read: as `ask_answer` has it.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

    def answer(self, request: Request) -> dict[str, Any]:
        _show(f"{one_line(request['request_id'])}, for {asked_of(request)}")
        if request["prompt"]:
            _show(str(request["prompt"]))
        match request["type"]:
            case "APPROVAL":
                return self._approval(request)
            case "SELECTION":
                return self._selection(request)
            case "INFORMATION":
                return {"data": self._fields(request["schema"] or _ANY_OBJECT)}
            case kind:
                if kind == "GUIDANCE":
                    _show("(`feedback … --nodes FILE` adds nodes to the plan instead)")
                return {"text": self._lines()}

    def _approval(self, request: Request) -> dict[str, Any]:
        if request.get("tool") and request["tool"] != ACTIVITY_READ_MODEL_PLAN:
            _show(f"{one_line(str(request['tool']))} with {value_text(request.get('arguments'))}")
            for line in party_lines(request):
                _show(line)
        while True:
            said = self._line("Approve? (yes or no): ").strip().lower()
            if said in YES:
                return {"approved": True}
            if said in NO:
                reason = self._line("Why not? (may be empty): ").strip()
                return {"approved": False, **({"reason": reason} if reason else {})}
            _show("answer yes or no")

    def _selection(self, request: Request) -> dict[str, Any]:
        options: Sequence[JsonValue] = request["options"] or []
        for number, option in enumerate(options, 1):
            _show(f"  {number}. {one_line(option_label(option) or option_name(option))}")
        several = bool(request.get("multiple"))
        allow_text = bool(request.get("allow_text"))
        question = "Which ones? (numbers or names, commas between them): " if several else "Which? (number or name): "
        if allow_text:
            question = "Which? (number or name, or another text): "
        while True:
            said = self._line(question)
            texts = [part.strip() for part in said.split(",")] if several else [said.strip()]
            try:
                selected = [_chosen(text, options) for text in texts if text]
            except ValueError as error:
                if allow_text and not _NUMBER_OF_OPTION.fullmatch(said.strip()):
                    return {"text": said.strip()}
                _show(one_line(str(error)))
                continue
            if not selected:
                _show("choose at least one" if several else "choose one")
            elif len({*map(repr, selected)}) < len(selected):
                _show("an option is selected twice; choose each once")
            elif request.get("purpose") == "error" and selected == ["value"]:
                return {"selected": selected, "value": self._json({})}
            else:
                return {"selected": selected}

    def _lines(self) -> str:
        _show(f"(several lines may be written; a line with only `{_END_OF_TEXT}`, or Ctrl-D, ends them)")
        lines: list[str] = []
        with suppress(EOFError):
            while (line := self._read("> ")) != _END_OF_TEXT:
                lines.append(line)
        text = "\n".join(lines).strip()
        if not text:
            raise CommandRefused(_NOT_ANSWERED, status="not_answered")
        return text

    def _fields(self, schema: Mapping[str, Any]) -> JsonValue:
        """Returns an object made of its fields, all asked again as long as the schema does not take the whole."""
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return self._json(schema)
        required = schema.get("required")
        needed = set(required) if isinstance(required, list) else set()
        while True:
            values: dict[str, JsonValue] = {}
            for name, field in properties.items():
                described = field if isinstance(field, dict) else {}
                value = self._field(name, described, is_needed=name in needed)
                if value is not _NOTHING:
                    values[name] = value
            try:
                return checked_value(schema, values)
            except ValueError as error:
                _show(one_line(f"{error}; once more"))

    def _field(self, name: str, schema: Mapping[str, Any], *, is_needed: bool) -> Any:
        """Returns the value of one field; `_NOTHING` if it is left out."""
        stands = "" if is_needed else default_words(schema) if "default" in schema else "may be empty"
        question = question_of(name, schema, stands=stands)
        while True:
            said = self._line(question)
            if not said.strip() and not is_needed:
                return schema.get("default", _NOTHING)
            try:
                return value_of(schema, said)
            except ValueError as error:
                _show(one_line(str(error)))

    def _json(self, schema: Mapping[str, Any]) -> JsonValue:
        while True:
            try:
                return checked_value(schema, typed_value(_ANY_JSON, self._line("The value, as JSON: ")))
            except ValueError as error:
                _show(one_line(str(error)))

    def _line(self, question: str) -> str:
        """Returns a line that the person types.

        Raises:
            CommandRefused: the input has ended.
        """
        try:
            return self._read(question)
        except EOFError:
            raise CommandRefused(_NOT_ANSWERED, status="not_answered") from None


def _chosen(text: str, options: Sequence[JsonValue]) -> JsonValue:
    """Returns the option that a text names: by its own words first, then by its number.

    Raises:
        ValueError: there is none.
    """
    for option in options:
        if text in (value_as_text(option), option_name(option)):
            return option
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    raise ValueError(f"{text!r:.80} is none of the {len(options)} options")


def _show(text: str) -> None:
    print(terminal_text(text))  # noqa: T201 -- part of the conversation
