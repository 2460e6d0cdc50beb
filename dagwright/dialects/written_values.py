"""Parse JSON values as language models write them, without guessing.

Unambiguous slips are repaired and reported: comments, trailing commas, single and typographic quotes, Python
literals, line breaks in strings, unquoted keys, a truncated text. Ambiguous text is rejected. The value may
be of any kind; only messages about truncated text assume that it is a plan with a list of steps.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dagwright.core.errors import Note, pointer
from dagwright.dialects.json_reader import (
    MAX_DEPTH,
    MAX_DIGITS,
    checked_float,
    checked_int,
    describe,
    json_problems,
    printable,
)

TRUNCATED: Final = "truncated"
"""Code of the repair that omitted a truncated part of the text."""

NOT_A_NUMBER: Final = "not_a_number"
"""Code of the repair that replaced NaN with null."""

MAX_REPAIRS_PER_CODE = 20
"""Maximum number of reported repairs of each kind; one more entry counts the remaining repairs."""


_SPELLING_CODES: Final = frozenset(
    {"single_quotes", "typographic_quotes", "unquoted_key", "trailing_comma", "missing_comma"}
)
"""Codes of spelling slips, which may occur dozens of times."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A slip in the text that was repaired.

    Args:
        code: kind of slip, such as `trailing_comma`.
        offset: offset of its first character, if it has a position in the text.
        pointer: RFC 6901 pointer of the affected value in the parsed document.
        node_id: ID of the affected node, if it is known.
        count: number of occurrences that the repair represents.
    """

    code: str
    message: str
    offset: int | None = None
    pointer: str = ""
    node_id: str | None = None
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the repair as `{code, pointer, offset, message}`."""
        return {"code": self.code, "pointer": self.pointer, "offset": self.offset, "message": self.message}

    def to_note(self) -> Note:
        """Return the repair as a note of the `check` document."""
        return Note(self.code, f"repaired: {self.message}", self.node_id)


class UnreadableValue(Exception):
    """A text is not a value, or is ambiguous.

    Args:
        offset: where the error was detected.
        looks_like_value: whether the text was meant as a value, and is not just prose with brackets.
    """

    def __init__(self, message: str, offset: int, *, looks_like_value: bool) -> None:
        self.message = message
        self.offset = offset
        self.looks_like_value = looks_like_value
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A value and its end.

    Args:
        end: offset after its last character.
    """

    value: Any
    end: int
    repairs: Sequence[Repair]


_SPACE = re.compile(r"[ \t\r\n\u00a0\u200b\ufeff]*")
_COMMENT = re.compile(r"//[^\n]*|#(?!E[0-9])[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![\w.])")
_STRICT_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_CURLY_QUOTE = "[\u201c\u201d\u201e]"
_CURLY_SINGLE_QUOTE = "[\u2018\u2019]"
_DOUBLE_TEXT = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_SINGLE_TEXT = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_CURLY_TEXT = re.compile(
    f"{_CURLY_QUOTE}([^\u201c\u201d\u201e\\\\]*(?:\\\\.[^\u201c\u201d\u201e\\\\]*)*){_CURLY_QUOTE}", re.DOTALL
)
_CURLY_SINGLE_TEXT = re.compile(
    f"{_CURLY_SINGLE_QUOTE}([^\u2018\u2019\\\\]*(?:\\\\.[^\u2018\u2019\\\\]*)*){_CURLY_SINGLE_QUOTE}", re.DOTALL
)
_TEXT_PATTERNS: Final = {
    '"': _DOUBLE_TEXT,
    "'": _SINGLE_TEXT,
    **dict.fromkeys("\u201c\u201d\u201e", _CURLY_TEXT),
    **dict.fromkeys("\u2018\u2019", _CURLY_SINGLE_TEXT),
}
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\.?)|([\x00-\x1f])|(")', re.DOTALL)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f]")
_LITERALS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "NaN": None}
_CLOSED_END = re.compile(r"(?:[\]}]|```)\s*\Z")


def skip_space(text: str, at: int) -> int:
    """Return the offset of the first character that is not whitespace."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def read_value(text: str, start: int, *, unquoted_pattern: re.Pattern[str] | None = None) -> ParsedValue:
    """Parse the value at an offset. Whitespace and comments before it are skipped.

    Args:
        unquoted_pattern: matches text that is a string without quotes, such as `$1`.

    Raises:
        UnreadableValue: there is no value, or it is ambiguous.

    Complexity: linear in the length of the value.
    """
    return _Reader(text, start, unquoted_pattern=unquoted_pattern).read()


@dataclass(slots=True)
class _Frame:
    """A list or an object that is not closed yet."""

    items: Any
    key: str = ""
    has_key: bool = False
    is_after_comma: bool = False


class _EndOfText(Exception):
    """The text ends within a token."""


@dataclass(slots=True)
class _Reader:
    text: str
    at: int
    unquoted_pattern: re.Pattern[str] | None
    repairs: list[Repair] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    root: Any = None
    has_colon: bool = False

    def read(self) -> ParsedValue:
        is_complete = False
        try:
            while not is_complete:
                self._skip_ignored_text()
                is_complete = self._read_token()
        except _EndOfText:
            self._keep_complete_parts()
            self.at = len(self.text)
        if problems := json_problems(self.root):
            raise self._error(f"{problems[0].message} (at {problems[0].pointer or 'the whole value'})")
        return ParsedValue(self.root, self.at, self.repairs)

    def _read_token(self) -> bool:
        """Parse one token; return whether the value is complete."""
        if not self.frames:
            return self._read_value()
        frame, character = self.frames[-1], self.text[self.at]
        if frame.has_key:
            return self._read_value()
        if character in "]}":
            return self._close_frame(frame, character)
        if frame.items and not frame.is_after_comma:
            self._read_comma(frame, character)
            return False
        if isinstance(frame.items, list):
            return self._read_value()
        self._read_key(frame)
        return False

    def _skip_ignored_text(self) -> None:
        while True:
            self.at = skip_space(self.text, self.at)
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                break
            self._add_repair("comment", f"the comment {_shorten(comment[0])} was skipped")
            self.at = comment.end()
        if self.at >= len(self.text):
            raise _EndOfText

    def _read_value(self) -> bool:
        character = self.text[self.at]
        if character in "{[":
            if len(self.frames) >= MAX_DEPTH:
                raise self._error(f"lists and objects are nested more than {MAX_DEPTH} deep")
            self.frames.append(_Frame({} if character == "{" else []))
            self.at += 1
            return False
        return self._add_value(self._read_scalar(character))

    def _read_scalar(self, character: str) -> Any:
        if character in _TEXT_PATTERNS:
            return self._read_text()
        if self.unquoted_pattern is not None and (match := self.unquoted_pattern.match(self.text, self.at)):
            self.at = match.end()
            return match[0]
        if match := _NUMBER.match(self.text, self.at):
            return self._read_number(match)
        if match := _WORD.match(self.text, self.at):
            return self._read_word(match)
        if self.text.startswith(("...", "\u2026"), self.at):
            raise self._error("'...' marks an omission; write the complete value")
        raise self._error(f"expected a value, found {character!r}")

    def _read_number(self, match: re.Match[str]) -> int | float:
        if match.end() == len(self.text) and self.frames:
            raise _EndOfText
        number_text = match[0]
        if _STRICT_NUMBER.fullmatch(number_text) is None:
            if re.match(r"[+-]?0[0-9]", number_text):
                raise self._error(
                    f"{_shorten(number_text)} starts with 0: write the number without the 0, or a string in quotes"
                )
            self._add_repair("number", f"{_shorten(number_text)} was read as a number")
        self.at = match.end()
        try:
            is_integer = re.fullmatch(r"[-+]?[0-9]+", number_text) is not None
            return checked_int(number_text) if is_integer else checked_float(number_text)
        except Exception:
            message = f"{_shorten(number_text)} does not fit into a double, or has over {MAX_DIGITS} digits"
            raise self._error(message) from None

    def _read_word(self, match: re.Match[str]) -> bool | None:
        if match.end() == len(self.text) and self.frames:
            raise _EndOfText
        word = match[0]
        if word not in _LITERALS:
            raise self._error(f"{_shorten(word)} has no quotes, or an earlier quote was not escaped")
        if word[0].isupper():
            code = NOT_A_NUMBER if word == "NaN" else "python_literal"
            self._add_repair(code, f"{word} was read as {json.dumps(_LITERALS[word])}")
        self.at = match.end()
        return _LITERALS[word]

    def _read_text(self) -> str:
        quote = self.text[self.at]
        match = _TEXT_PATTERNS[quote].match(self.text, self.at)
        if match is None:
            if _CLOSED_END.search(self.text, max(self.at, len(self.text) - 200)):
                raise self._error("a text that starts here has no end: a quote is missing")
            raise _EndOfText
        body = match[1]
        if quote == '"' and "\\" not in body and not _CONTROL_CHARACTER.search(body):
            self.at = match.end()
            return body
        value = self._unescape(body)
        if quote in _TEXT_PATTERNS and quote not in "\"'":
            if '"' in body:
                raise self._error("typographic and straight quotes are mixed: it is unclear where the text ends")
            self._add_repair("typographic_quotes", f"the text {_shorten(body)} is in typographic quotes")
        elif quote == "'":
            self._add_repair("single_quotes", f"the text {_shorten(body)} is in single quotes")
        self.at = match.end()
        return value

    def _unescape(self, body: str) -> str:
        has_control = False

        def fix_escape(match: re.Match[str]) -> str:
            nonlocal has_control
            if match[1] is not None:
                if match[1] == "\\'":
                    return "'"
                raise self._error(f"{match[1]!r} is not a JSON escape; write two backslashes for one")
            if match[2] is not None:
                has_control = True
                return f"\\u{ord(match[2]):04x}"
            return '\\"' if match[3] is not None else match[0]

        value = json.loads(f'"{_ESCAPE.sub(fix_escape, body)}"')
        assert isinstance(value, str)
        if has_control:
            self._add_repair(
                "control_character", f"the text {_shorten(body)} has a line break or tab that is not escaped"
            )
        return value

    def _read_key(self, frame: _Frame) -> None:
        character = self.text[self.at]
        word = _WORD.match(self.text, self.at)
        if character in _TEXT_PATTERNS:
            key = self._read_text()
        elif word is not None:
            key = word[0]
            start, self.at = self.at, word.end()
        else:
            raise self._error(f"expected a key, found {character!r}")
        self._skip_ignored_text()
        if self.text[self.at] != ":":
            raise self._error(f"after the key {_shorten(key)} there is no ':'")
        if character not in _TEXT_PATTERNS:
            self._add_repair("unquoted_key", f"the key {_shorten(key)} has no quotes", at=start)
        self.at += 1
        self.has_colon = True
        frame.key, frame.has_key, frame.is_after_comma = key, True, False

    def _read_comma(self, frame: _Frame, character: str) -> None:
        if character == ",":
            self.at += 1
        elif character in '{["' and isinstance(_last_item(frame), dict | list):
            self._add_repair("missing_comma", "a comma is missing before this")
        else:
            expected = "',' or ']'" if isinstance(frame.items, list) else "',' or '}'"
            raise self._error(f"{expected} is missing here, or an earlier quote was not escaped")
        frame.is_after_comma = True

    def _close_frame(self, frame: _Frame, character: str) -> bool:
        expected = "]" if isinstance(frame.items, list) else "}"
        if character != expected:
            raise self._error(f"expected {expected!r}, found {character!r}")
        if frame.is_after_comma:
            self._add_repair("trailing_comma", f"there is a comma before the closing {character!r}")
        self.frames.pop()
        self.at += 1
        return self._add_value(frame.items)

    def _add_value(self, value: Any) -> bool:
        if not self.frames:
            self.root = value
            return True
        frame = self.frames[-1]
        if isinstance(frame.items, list):
            frame.items.append(value)
        else:
            self._check_duplicate_key(frame, value)
            frame.items[frame.key] = value
        frame.has_key = frame.is_after_comma = False
        return False

    def _check_duplicate_key(self, frame: _Frame, value: Any) -> None:
        if frame.key not in frame.items:
            return
        if json.dumps(frame.items[frame.key]) != json.dumps(value):
            raise self._error(f"the key {_shorten(frame.key)} occurs twice in one object, with different values")
        self._add_repair(
            "duplicate_key", f"the key {_shorten(frame.key)} occurs twice in one object, with the same value"
        )

    def _keep_complete_parts(self) -> None:
        """Keep the complete objects of the main list of a truncated text.

        Without a main list, keep the complete keys.
        """
        list_index = self._main_list_index()
        if list_index is None:
            root_frame = self.frames[0] if self.frames else None
            if root_frame is None or not isinstance(root_frame.items, dict) or not root_frame.items:
                raise self._error("the text ends before anything in it is complete")
            omitted_part = f"the key {_shorten(root_frame.key)}" if root_frame.has_key else "the rest"
            self.root = root_frame.items
            self._add_repair(TRUNCATED, f"the text ends early; {omitted_part} was omitted", at=len(self.text))
            return
        entries = self.frames[list_index].items
        if not entries:
            raise self._error("the text was cut off before its first step was complete")
        at = pointer(*(frame.key for frame in self.frames[:list_index]))
        for outer_frame, inner_frame in zip(self.frames[:list_index], self.frames[1 : list_index + 1], strict=True):
            outer_frame.items[outer_frame.key] = inner_frame.items
        is_step_open = len(self.frames) > list_index + 1
        incomplete_part = (
            f"step {len(entries) + 1} is incomplete and was omitted" if is_step_open else "more steps may be missing"
        )
        message = f"the text ends early; complete steps: {len(entries)}; {incomplete_part}"
        self.repairs.append(Repair(TRUNCATED, message, len(self.text), at))
        self.root = self.frames[0].items

    def _main_list_index(self) -> int | None:
        """Return the index of the frame with the document's main list of objects."""
        for number, frame in enumerate(self.frames[:3]):
            if isinstance(frame.items, dict):
                continue
            next_items = self.frames[number + 1].items if number + 1 < len(self.frames) else None
            contains_objects = isinstance(next_items, dict) or (bool(frame.items) and isinstance(frame.items[-1], dict))
            return number if contains_objects else None
        return None

    def _add_repair(self, code: str, message: str, *, at: int | None = None) -> None:
        self.repairs.append(Repair(code, message, self.at if at is None else at, self._pointer()))

    def _pointer(self) -> str:
        parts: list[str | int] = []
        for frame in self.frames:
            if isinstance(frame.items, list):
                parts.append(len(frame.items))
            elif frame.has_key:
                parts.append(frame.key)
        return pointer(*parts)

    def _error(self, message: str) -> UnreadableValue:
        return UnreadableValue(printable(message), self.at, looks_like_value=self.has_colon)


def _last_item(frame: _Frame) -> Any:
    return frame.items[-1] if isinstance(frame.items, list) else frame.items[frame.key]


def _shorten(text: str) -> str:
    return describe(text).removeprefix("the text ")


def limit_repairs(repairs: Iterable[Repair]) -> Sequence[Repair]:
    """Return the first repairs of each kind, and a count of the remaining repairs of that kind."""
    first_repairs: list[Repair] = []
    counts: dict[str, int] = {}
    for repair in repairs:
        counts[repair.code] = counts.get(repair.code, 0) + 1
        if counts[repair.code] <= MAX_REPAIRS_PER_CODE:
            first_repairs.append(repair)
    omitted_counts = [
        Repair(code, f"and in {count - MAX_REPAIRS_PER_CODE:,} more places", count=count - MAX_REPAIRS_PER_CODE)
        for code, count in counts.items()
        if count > MAX_REPAIRS_PER_CODE
    ]
    return (*first_repairs, *omitted_counts)


def summarize_repairs(repairs: Sequence[Repair]) -> Sequence[Repair]:
    """Return repairs for display: for each kind of spelling slip, the first slip with the number of similar slips."""
    first_slips: dict[str, Repair] = {}
    shown_repairs: list[Repair] = []
    for repair in repairs:
        if repair.code not in _SPELLING_CODES:
            shown_repairs.append(repair)
        elif repair.code in first_slips:
            first_slips[repair.code] = replace(
                first_slips[repair.code], count=first_slips[repair.code].count + repair.count
            )
        else:
            first_slips[repair.code] = repair
            shown_repairs.append(repair)
    return [_add_count(first_slips[repair.code]) if repair.code in first_slips else repair for repair in shown_repairs]


def _add_count(repair: Repair) -> Repair:
    return (
        repair if repair.count == 1 else replace(repair, message=f"{repair.message}; {repair.count - 1:,} more like it")
    )
