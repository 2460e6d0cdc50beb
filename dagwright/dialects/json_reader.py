"""Strict JSON: documents allowed by RFC 8259 that all programs read in the same way.

Python's own reader accepts NaN, numbers that overflow to infinity, lone surrogates and objects with duplicate keys.
All of these would fail later, in another program, with a worse message.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.paths import describe_type
from dagwright.core.text import cut_characters

MAX_DEPTH = 100
"""Maximum nesting of lists and objects. Python's JSON writer and pydantic fail at depths between 250 and 1,000."""

MAX_DIGITS = 308
"""Maximum number of digits of an integer. Many programs read a number as a double, which has no larger range."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN|-?[0-9][0-9.eE+-]*', re.DOTALL)

Trail = tuple["Trail", str | int] | None
"""Path of a value: the trail of its container, and its key or index."""


class _ObjectWithDuplicateKeys(dict[str, Any]):
    """An object with duplicate keys."""

    duplicates: list[str]


class _BadNumber(Exception):
    """A number that is invalid in JSON, or out of the range of a double."""


def printable(text: str) -> str:
    """Return a text that any stream can encode: lone surrogates are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def read_json(text: str, *, name: str, first_line: int = 1) -> JsonValue:
    """Parse a JSON text.

    Args:
        name: name of the text in messages.
        first_line: number of the text's first line in its file.

    Raises:
        PlanInvalid: the text is not valid JSON, or other programs would read it in another way.

    Complexity: linear; a plan of 100,000 nodes takes about half a second.
    """
    objects_with_duplicates: list[_ObjectWithDuplicateKeys] = []

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        json_object = dict(pairs)
        if len(json_object) == len(pairs):
            return json_object
        object_with_duplicates = _ObjectWithDuplicateKeys(json_object)
        keys = [key for key, _ in pairs]
        object_with_duplicates.duplicates = sorted(key for key in json_object if keys.count(key) > 1)
        objects_with_duplicates.append(object_with_duplicates)
        return object_with_duplicates

    try:
        value: JsonValue = json.loads(
            text,
            object_pairs_hook=make_object,
            parse_constant=_reject_constant,
            parse_int=checked_int,
            parse_float=checked_float,
        )
    except json.JSONDecodeError as error:
        message = _cause_of(error)
        raise _syntax_error(text, error.pos, name=name, first_line=first_line, message=message) from None
    except _BadNumber as error:
        position, message = _number_position_and_message(text, str(error))
        raise _syntax_error(text, position, name=name, first_line=first_line, message=message) from None
    except RecursionError:
        raise PlanInvalid([depth_problem(name)]) from None
    if depth_of(value) > MAX_DEPTH:
        raise PlanInvalid([depth_problem(name)])
    problems = _portability_problems(value, text, has_duplicates=bool(objects_with_duplicates))
    if problems:
        raise PlanInvalid(problems, document=_escape_surrogates(value))
    return value


def _cause_of(error: json.JSONDecodeError) -> str:
    """Return the cause of an error as a message for the author of the text."""
    character, previous_character = error.doc[error.pos : error.pos + 1], error.doc[: error.pos].rstrip()[-1:]
    if "trailing comma" in error.msg or (previous_character == "," and character and character in "]}"):
        return f"a comma before {character!r}; remove it" if character != "," else "an extra comma"
    if character == "'":
        return "write texts in double quotes"
    if character in ("/", "#"):
        return "comments are not allowed; use YAML for them"
    if error.msg.startswith("Expecting ',' delimiter"):
        return "a ',' is missing before this" if character else "the text ends inside a list or an object"
    return error.msg[:1].lower() + error.msg[1:].removesuffix(" at")


def _reject_constant(token: str) -> Any:
    raise _BadNumber(token)


def checked_int(token: str) -> int:
    """Parse an integer within the range of a double."""
    if len(token) > MAX_DIGITS:
        raise _BadNumber(token)
    return int(token)


def checked_float(token: str) -> float:
    """Parse a number; reject numbers that would become infinite."""
    number = float(token)
    if math.isinf(number):
        raise _BadNumber(token)
    return number


def _number_position_and_message(text: str, token: str) -> tuple[int, str]:
    position = next((match.start() for match in _TOKEN.finditer(text) if match[0] == token), 0)
    token_text = token if len(token) <= 20 else f"{token[:12]}… ({len(token)} characters)"
    return position, f"{token_text} is not a JSON number, or does not fit into a double"


def _syntax_error(text: str, position: int, *, name: str, first_line: int, message: str) -> PlanInvalid:
    line = text.count("\n", 0, position) + first_line
    column = position - text.rfind("\n", 0, position)
    sentence = f"{name} is not valid JSON: {message} at line {line}, column {column}"
    return PlanInvalid([Problem("invalid_syntax", printable(sentence))])


def depth_problem(name: str) -> Problem:
    """Return the problem of a document whose lists and objects are nested too deep."""
    return Problem("too_large", f"{name} has lists and objects nested more than {MAX_DEPTH} deep")


def _escape_surrogates(value: Any) -> Any:
    """Escape the lone surrogates in a value of bounded depth, because no library accepts lone surrogates."""
    if isinstance(value, str):
        return printable(value) if _text_error_message(value) else value
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(part) for key, part in value.items()}
    return [_escape_surrogates(part) for part in value] if isinstance(value, list) else value


def _portability_problems(value: JsonValue, text: str, *, has_duplicates: bool) -> list[Problem]:
    problems: list[Problem] = []
    if has_duplicates:
        for trail, part in _walk(value):
            if isinstance(part, _ObjectWithDuplicateKeys):
                problems.extend(duplicate_key_problem(_pointer_of((trail, key)), key) for key in part.duplicates)
    if _SURROGATE_ESCAPE.search(text):
        problems.extend(json_problems(value))
    return problems


def duplicate_key_problem(at: str, key: str) -> Problem:
    """Return the problem of a duplicate key in an object."""
    return Problem("invalid_field", f"the key {printable(key)!r} occurs twice in one object", at)


def depth_of(value: JsonValue) -> int:
    """Return the nesting depth of lists and objects, at most `MAX_DEPTH + 1`."""
    depth = 0
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return depth


def json_problems(value: Any, *, at: str = "") -> list[Problem]:
    """Return the reasons why a value is not portable JSON.

    Args:
        value: a value that no JSON parser has checked, for example from a payload or a Python caller.
        at: pointer of the value in the document.
    """
    if depth_of(value) > MAX_DEPTH:
        return [Problem("too_large", f"lists and objects are nested more than {MAX_DEPTH} deep", at)]
    problems: list[Problem] = []
    for trail, part in _walk(value):
        message = _value_error_message(part)
        if message is not None:
            problems.append(Problem("invalid_syntax", message, at + _pointer_of(trail)))
    return problems


def _value_error_message(value: Any) -> str | None:
    if isinstance(value, str):
        return _text_error_message(value)
    if isinstance(value, dict):
        invalid_keys = [key for key in value if not isinstance(key, str) or _text_error_message(key)]
        return f"the key {printable(repr(invalid_keys[0]))} is not a JSON string" if invalid_keys else None
    if value is None or isinstance(value, bool | list):
        return None
    if isinstance(value, int):
        return None if abs(value) < 10**MAX_DIGITS else "the number does not fit into a double"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not a JSON number"
    return f"{type(value).__name__} is not a JSON type"


def _text_error_message(text: str) -> str | None:
    if text.isascii() or not _SURROGATE.search(text):
        return None
    return f"the text {printable(text[:40])!r} holds a lone surrogate, which is not a character"


def _walk(value: Any) -> Iterator[tuple[Trail, Any]]:
    stack: list[tuple[Trail, Any]] = [(None, value)]
    while stack:
        trail, part = stack.pop()
        yield trail, part
        if isinstance(part, dict):
            stack.extend(((trail, key), part[key]) for key in reversed(part))
        elif isinstance(part, list):
            stack.extend(((trail, index), part[index]) for index in range(len(part) - 1, -1, -1))


def _pointer_of(trail: Trail) -> str:
    parts: list[str | int] = []
    while trail is not None:
        trail, part = trail
        parts.append(printable(part) if isinstance(part, str) else part)
    return pointer(*reversed(parts))


def describe(value: Any) -> str:
    """Describe an unexpected value for messages, such as `a number` or `the text 'abc'`."""
    if isinstance(value, str):
        return f"the text {printable(cut_characters(value, 40))!r}"
    return describe_type(value)
