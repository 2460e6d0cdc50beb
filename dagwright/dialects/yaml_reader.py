"""The subset of YAML that JSON can express: one document, string keys, no tags, the core schema of YAML 1.2.

Values are built from the events of libyaml, without recursion. PyYAML's own loaders keep the last of duplicate keys,
do not limit aliases, and read YAML 1.1, in which `no` and `on` are booleans and `2024-01-15` is a date.
"""

import re
from typing import Any

import yaml
from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.dialects.json_reader import (
    MAX_DEPTH,
    MAX_DIGITS,
    depth_of,
    depth_problem,
    duplicate_key_problem,
    printable,
)

MAX_ALIASED_VALUES = 200_000
"""Maximum number of values that aliases add; a few lines of YAML can expand to a billion values."""

_KEY = re.compile(r"\s*(?:- +)*[\w-]+:")
_INDENTATION = re.compile(r"\s*(?:- +)*")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def read_yaml(text: str, *, name: str) -> JsonValue:
    """Parse a YAML text; return `None` if it has no document.

    Args:
        name: name of the text in messages.

    Raises:
        PlanInvalid: the text is not valid YAML, or JSON cannot express it.
    """
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.handle(event)
    except yaml.YAMLError as error:
        raise PlanInvalid([*builder.problems, _syntax_problem(error, text=text, name=name)]) from None
    if depth_of(builder.root) > MAX_DEPTH:
        raise PlanInvalid([*builder.problems, depth_problem(name)])
    if builder.problems:
        raise PlanInvalid(builder.problems, document=builder.root)
    return builder.root


def _syntax_problem(error: yaml.YAMLError, *, text: str, name: str) -> Problem:
    message = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    line, column = (
        (mark.line, mark.column) if mark is not None else _line_and_column(text, getattr(error, "position", None))
    )
    location = f" at line {line + 1}, column {column + 1}"
    meaning = _specific_meaning(text, line, column, message) or _MEANINGS.get(message, message)
    return Problem("invalid_syntax", printable(f"{name} is not valid YAML: {meaning}{location}"))


def _specific_meaning(text: str, line: int, column: int, message: str) -> str | None:
    """Return a more specific meaning of a library error than `_MEANINGS` has, or `None`."""
    lines = text.splitlines()[: line + 1]
    if len(lines) <= line:
        return None
    if lines[line][column : column + 1] == "\t":
        return "a tab where YAML needs spaces"
    key = _KEY.match(lines[line])
    previous_line = next((line_text for line_text in reversed(lines[:-1]) if line_text.strip()), "")
    if message.startswith("mapping values") and key is not None and key.end() - 1 == column:
        is_deeper = len(_INDENTATION.match(lines[line])[0]) > len(_INDENTATION.match(previous_line)[0])  # type: ignore[index]  # it always matches
        return "this line is indented more than the previous line, which already has a value" if is_deeper else None
    return None


def _line_and_column(text: str, position: int | None) -> tuple[int, int]:
    """Return line and column of a character that YAML does not allow; the library reports the position in bytes."""
    text_before = text.encode(errors="replace")[: position or 0].decode(errors="ignore")
    return text_before.count("\n"), len(text_before) - text_before.rfind("\n") - 1


_MEANINGS = {
    "did not find expected ',' or ']'": "a ',' or the ']' of a list is missing",
    "did not find expected ',' or '}'": "a ',' or the '}' of an object is missing",
    "did not find expected '-' indicator": "this is not an item of the list above; check the indentation",
    "did not find expected key": "this is not a key of the object above; check the indentation and quotes",
    "mapping values are not allowed in this context": "':' is not allowed here; put the text in quotes",
    "found unexpected end of stream": "a text in quotes has no end",
    "found character that cannot start any token": "a tab or other invalid first character; put the text in quotes",
    "found unknown escape character": "an unknown escape in double quotes; use single quotes, or two backslashes",
}
"""Message of the library -> its meaning for the author of a plan."""


class _Frame:
    """A list or an object that is not closed yet."""

    __slots__ = ("anchor", "has_key", "items", "key", "value_count_before")

    def __init__(self, items: Any, anchor: str | None, *, value_count_before: int) -> None:
        self.items = items
        self.anchor = anchor
        self.value_count_before = value_count_before
        self.has_key = False
        self.key = ""


class _Builder:
    """Builds a value from events; `problems` has the constructs that JSON cannot express."""

    def __init__(self, name: str) -> None:
        self.root: JsonValue = None
        self.problems: list[Problem] = []
        self._name = name
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._document_count = 0
        self._value_count = 0
        self._aliased_count = 0

    def handle(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._handle_scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open_frame(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close_frame()
        elif kind is yaml.AliasEvent:
            self._handle_alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._document_count += 1
            if self._document_count == 2:
                self._report(event, "a second document starts; write one plan per file")
                raise PlanInvalid(self.problems)

    def _handle_scalar(self, event: Any) -> None:
        self._check_tag(event)
        frame = self._frames[-1] if self._frames else None
        text: str = event.value
        value: JsonValue = self._parse_plain_scalar(event) if event.implicit[0] and not event.style else text
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        if frame is not None and isinstance(frame.items, dict) and not frame.has_key:
            self._set_key(frame, event, value)
        else:
            self._add_value(value)

    def _parse_plain_scalar(self, event: Any) -> JsonValue:
        text: str = event.value
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _OCTAL_OR_HEX.fullmatch(text):
            return int(text, 0) if len(text) < MAX_DIGITS / 2 else self._report_number(event)
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) <= MAX_DIGITS else self._report_number(event)
        if _FLOAT.fullmatch(text):
            number = float(text)
            return number if abs(number) != float("inf") else self._report_number(event)
        return self._report_number(event) if _NOT_FINITE.fullmatch(text) else text

    def _report_number(self, event: Any) -> JsonValue:
        self._report(event, f"{event.value[:20]!r} is not a JSON number, or does not fit into a double")
        return None

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._report(event, f"the tag {event.tag!r} is not allowed in a plan")

    def _set_key(self, frame: _Frame, event: Any, value: JsonValue) -> None:
        text: str = event.value
        frame.has_key = True
        frame.key = text
        if not isinstance(value, str):
            self._report(event, f"a key must be text: write '{text}' in quotes")
        elif text in frame.items:
            self.problems.append(duplicate_key_problem(self._pointer(), text))

    def _add_value(self, value: Any) -> None:
        self._value_count += 1
        if not self._frames:
            self.root = value
            return
        frame = self._frames[-1]
        if isinstance(frame.items, list):
            frame.items.append(value)
        else:
            frame.items[frame.key] = value
            frame.has_key = False

    def _open_frame(self, event: Any, items: Any) -> None:
        self._check_tag(event)
        if self._frames and isinstance(self._frames[-1].items, dict) and not self._frames[-1].has_key:
            quotes_hint = "; put {{…}} in quotes" if isinstance(items, dict) else ""
            self._report(event, f"a key must be text, not a list or an object{quotes_hint}")
            raise PlanInvalid(self.problems)
        if len(self._frames) >= MAX_DEPTH:
            raise PlanInvalid([*self.problems, depth_problem(self._name)])
        self._frames.append(_Frame(items, event.anchor, value_count_before=self._value_count))

    def _close_frame(self) -> None:
        frame = self._frames.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.items, self._value_count - frame.value_count_before + 1)
        self._add_value(frame.items)

    def _handle_alias(self, event: Any) -> None:
        anchored_value = self._anchors.get(event.anchor)
        if anchored_value is None:
            self._report(event, f"the alias *{event.anchor} has no anchor before it, or stands inside its anchor")
            raise PlanInvalid(self.problems)
        value, size = anchored_value
        self._aliased_count += size
        self._value_count += size - 1
        if self._aliased_count > MAX_ALIASED_VALUES:
            message = f"the aliases in {self._name} stand for more than {MAX_ALIASED_VALUES} values"
            raise PlanInvalid([*self.problems, Problem("too_large", message)])
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.items, dict) and not frame.has_key:
            self._report(event, "a key must be text, not an alias")
            frame.has_key, frame.key = True, event.anchor
            return
        self._add_value(value)

    def _report(self, event: Any, message: str) -> None:
        mark = event.start_mark
        sentence = f"{self._name}: {message} (line {mark.line + 1}, column {mark.column + 1})"
        self.problems.append(Problem("invalid_syntax", printable(sentence), self._pointer()))

    def _pointer(self) -> str:
        parts: list[str | int] = []
        for frame in self._frames:
            if isinstance(frame.items, list):
                parts.append(len(frame.items))
            elif frame.has_key:
                parts.append(frame.key)
        return pointer(*parts)
