"""Check of a condition: its syntax, the nodes and fields that it names, and messages for its author.

The messages of the CEL library describe the state of its parser and not the mistake, so this module replaces them.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dagwright.core.expressions.condition_parser import (
    BadCondition,
    ParsedCondition,
    Read,
    compile_cel,
    parse_checked_condition,
)
from dagwright.core.expressions.reference_parser import unknown_field_problem
from dagwright.core.expressions.references import NODE_VALUE_FIELDS

if TYPE_CHECKING:
    import cel

_MAX_CONDITION_CHARACTERS = 4_000
"""Longest condition; people write far shorter conditions."""
_LIBRARY_ERROR = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (?:Syntax error: )?([^\n]*)")
_WORD = re.compile(r"\w+|[^\w\s]+|\s")
_UNEXPECTED_QUOTE = re.compile("token recognition error at: '[rRbB]*[\"']")
_MISSING_TOKEN = re.compile(r"missing '(.)' at")
_QUOTED_CHARACTERS = 20
"""Longest quotation of a condition in a message."""

_OPERATOR_HINTS = {
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


def check_condition(text: str, is_node: Callable[[str], bool]) -> ParsedCondition:
    """Parse and check a condition that a person or a model has written.

    Args:
        text: a CEL expression.
        is_node: returns whether a text is the id of a node of the plan.

    Raises:
        ValueError: the text is not a CEL expression, reads an unknown value, or uses syntax that is not allowed.
    """
    if len(text) > _MAX_CONDITION_CHARACTERS:
        raise ValueError(f"the condition has {len(text)} characters; at most {_MAX_CONDITION_CHARACTERS} are allowed")
    program = _compile(text)
    condition = parse_checked_condition(text, is_node)
    for name in program.variables():
        if name not in condition.analysis.names:
            raise BadCondition(f"there is no node {name!r}", unknown_node=name)
    for read in condition.analysis.reads:
        if read.source == "nodes":
            _check_field(read)
    _compile(condition.analysis.program)
    return condition


def _compile(text: str) -> "cel.Program":
    try:
        return compile_cel(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(text, error) from None


def _check_field(read: Read) -> None:
    """Check that a read names an existing field of nodes.

    Raises:
        BadCondition: the field is not in `NODE_VALUE_FIELDS`, or the node itself is read as a value.
    """
    if read.steps and read.steps[0] in NODE_VALUE_FIELDS:
        return
    if read.steps:
        message, hint = unknown_field_problem(read.node_id, str(read.steps[0]))
        raise BadCondition(message, hint=hint)
    if read.aspect == "value":
        raise BadCondition(f"{read.node_id!r} is a node and not a value", hint=f"write {read.node_id}.result")


def _syntax_error(text: str, error: Exception) -> BadCondition:
    """Return the error for a condition that the CEL library cannot parse.

    Args:
        text: the condition.
        error: exception of the library.
    """
    if not text.strip():
        return BadCondition("the condition is empty", hint="write a comparison such as a.result > 1, or omit 'when'")
    if "{{" in text:
        position_text = _position_text(text, text.index("{{"))
        return BadCondition(
            f"{position_text}: a condition must not contain {{{{ }}}}",
            hint="write the reference without braces, such as a.result > 1",
        )
    if isinstance(error, RecursionError) or "Recursion limit" in str(error):
        return BadCondition("the condition is nested too deep", hint="split it over several nodes")
    errors = sorted(_errors(text, error))
    if any(_UNEXPECTED_QUOTE.match(message) for _, message in errors) and (start := _unclosed_quote(text)) is not None:
        return BadCondition(f"{_position_text(text, start)}: the text after {text[start]} has no closing {text[start]}")
    if not errors:
        return BadCondition("not a CEL expression")
    position, message = errors[0]
    return _error_at(text, position, message)


def _error_at(text: str, position: int, message: str) -> BadCondition:
    if (match := _MISSING_TOKEN.search(message)) is not None:
        return BadCondition(f"{_position_text(text, position)}: {match[1]!r} is missing")
    if position >= len(text.rstrip()):
        fragment = text.strip()[-_QUOTED_CHARACTERS:]
        return BadCondition(f"{_position_text(text, position)}: the condition ends too early, after {fragment!r}")
    if not message.startswith(("mismatched", "extraneous", "token recognition", "no viable")):
        return BadCondition(f"{_position_text(text, position)}: {message}")
    word = _WORD.match(text, position)
    fragment = word[0][:_QUOTED_CHARACTERS] if word is not None else text[position : position + _QUOTED_CHARACTERS]
    hint = _hint(text, position, fragment)
    return BadCondition(f"{_position_text(text, position)}: {fragment!r} is not expected here", hint=hint)


def _hint(text: str, position: int, fragment: str) -> str | None:
    match = re.search(r"(\w+|[^\w\s]+)\s*$", text[:position])
    previous_word = match[1] if match is not None else ""
    for word in (fragment, previous_word, previous_word + fragment):
        if word in _OPERATOR_HINTS:
            return _OPERATOR_HINTS[word]
    if fragment[0] in "“”‘’`":
        return "write straight quotes: ' or \""
    return None


def _errors(text: str, error: Exception) -> Iterator[tuple[int, str]]:
    """Yield the position and the message of each error that the library reports."""
    lines = text.split("\n")
    for line, column, message in _LIBRARY_ERROR.findall(str(error)):
        if "Context" in message:
            # The message names an unfinished parser rule. Another error of the text explains the mistake better.
            continue
        line_start = sum(len(earlier_line) + 1 for earlier_line in lines[: int(line) - 1])
        yield line_start + int(column) - 1, message


def _unclosed_quote(text: str) -> int | None:
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
