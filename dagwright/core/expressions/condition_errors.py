"""Error messages for conditions: those of the CEL library describe the state of its parser, not the mistake."""

import re
from collections.abc import Iterator

_ERROR = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (?:Syntax error: )?([^\n]*)")
_WORD = re.compile(r"\w+|[^\w\s]+|\s")
_AT_QUOTE = re.compile("token recognition error at: '[rRbB]*[\"']")
_MISSING = re.compile(r"missing '(.)' at")
_SHOWN = 20
"""Longest quotation of a condition in a message."""

_INSTEAD = {
    "and": "write && for 'and'",
    "or": "write || for 'or'",
    "not": "write ! for 'not'",
    "if": "write CONDITION ? A : B for 'if'",
    "is": "write == to compare",
    "=": "write == to compare",
    "===": "write == to compare",
    "<>": "write != for 'not equal'",
    "&": "write && for 'and'",
    "|": "write || for 'or'",
}
"""Operator of another language -> hint with the operator of CEL."""


class BadCondition(ValueError):
    """A condition is invalid.

    Args:
        hint: correction, if known.
        unknown: the name without a node, if that is the reason.
    """

    def __init__(self, message: str, *, hint: str | None = None, unknown: str | None = None) -> None:
        self.hint = hint
        self.unknown = unknown
        super().__init__(message)


def syntax_error(text: str, error: Exception) -> BadCondition:
    """Return the error for a condition that the CEL library cannot parse.

    Args:
        text: the condition.
        error: exception of the library.
    """
    if not text.strip():
        return BadCondition(
            "the condition is empty", hint="write a comparison such as a.result > 1, or leave 'when' out"
        )
    if "{{" in text:
        where = _position_text(text, text.index("{{"))
        return BadCondition(
            f"{where}: a condition has no {{{{ }}}}", hint="write the reference without braces, such as a.result > 1"
        )
    if isinstance(error, RecursionError) or "Recursion limit" in str(error):
        return BadCondition("the condition is nested too deep", hint="split it over several nodes")
    errors = sorted(_errors(text, error))
    if any(_AT_QUOTE.match(message) for _, message in errors) and (start := _open_text(text)) is not None:
        return BadCondition(f"{_position_text(text, start)}: the text after {text[start]} has no closing {text[start]}")
    if not errors:
        return BadCondition("not a CEL expression")
    position, message = errors[0]
    return _at(text, position, message)


def _at(text: str, position: int, message: str) -> BadCondition:
    if (missing := _MISSING.search(message)) is not None:
        return BadCondition(f"{_position_text(text, position)}: {missing[1]!r} is missing")
    if position >= len(text.rstrip()):
        shown = text.strip()[-_SHOWN:]
        return BadCondition(f"{_position_text(text, position)}: the condition ends too early, after {shown!r}")
    if not message.startswith(("mismatched", "extraneous", "token recognition", "no viable")):
        return BadCondition(f"{_position_text(text, position)}: {message}")
    word = _WORD.match(text, position)
    shown = word[0][:_SHOWN] if word is not None else text[position : position + _SHOWN]
    hint = _hint(text, position, shown)
    return BadCondition(f"{_position_text(text, position)}: {shown!r} is not expected here", hint=hint)


def _hint(text: str, position: int, shown: str) -> str | None:
    before = re.search(r"(\w+|[^\w\s]+)\s*$", text[:position])
    for word in (shown, before[1] if before is not None else "", (before[1] if before is not None else "") + shown):
        if word in _INSTEAD:
            return _INSTEAD[word]
    if shown[0] in "“”‘’`":
        return "write straight quotes: ' or \""
    return None


def _errors(text: str, error: Exception) -> Iterator[tuple[int, str]]:
    """Yield the position and the message of each error that the library reports."""
    lines = text.split("\n")
    for line, column, message in _ERROR.findall(str(error)):
        if "Context" in message:
            # An unfinished parser rule; another error of the text explains it better.
            continue
        before = sum(len(each) + 1 for each in lines[: int(line) - 1])
        yield before + int(column) - 1, message


def _open_text(text: str) -> int | None:
    """Return the start of a quoted text without a closing quote; `None` if every text is closed."""
    position, start = 0, None
    while position < len(text):
        character = text[position]
        if start is None:
            start = position if character in "\"'" else None
        elif character == "\\":
            position += 1
        elif character == text[start]:
            start = None
        position += 1
    return start


def _position_text(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"
