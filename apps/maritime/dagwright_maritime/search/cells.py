"""Cells of Markdown tables: any value as one line of limited width, with Markdown escaped."""

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

CELL_WIDTH = 40
"""Maximum width of a cell in screen columns; a wide character takes two columns."""
_JOINERS = "\u200c\u200d"
"""Invisible characters that are parts of words and emoji."""
_SPECIAL_CHARACTERS = re.compile(r"[\\|`*\[\]<>~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
"""Characters with a meaning in Markdown; a `_` inside a word has no meaning."""


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table. Columns with numbers are right-aligned; `None` is an empty cell.

    Args:
        columns: titles of the columns, at least one.
        rows: each with a value for each column.
    """
    positions = range(len(columns))
    is_right_aligned = [any(_is_number(row[position]) for row in rows) for position in positions]
    lines = [
        _line([markdown_cell(name) for name in columns]),
        _line(["---:" if is_right_aligned[position] else "---" for position in positions]),
        *(_line([markdown_cell(value) for value in row]) for row in rows),
    ]
    return "\n".join(lines)


def markdown_cell(value: Any, width: int = CELL_WIDTH) -> str:
    """Return a value as a cell of at most `width` columns, not counting escapes."""
    return _SPECIAL_CHARACTERS.sub(lambda match: f"\\{match[0]}", _cut(_one_line(_plain_text(value)), width))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            # Cut early: a text may be very long, and a cell shows fewer characters.
            return value[: 20 * CELL_WIDTH]
        case bool():
            return "yes" if value else "no"
        case float() if math.isfinite(value) and abs(value) < 1e15:
            return f"{value:.2f}".rstrip("0").rstrip(".")
        case list():
            return ", ".join(_plain_text(item) for item in value[:CELL_WIDTH])
        case dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _one_line(text: str) -> str:
    valid_text = unicodedata.normalize("NFC", text.encode(errors="replace").decode())
    visible_characters = (
        "" if _is_invisible(character) else " " if _is_replaced_by_space(character) else character
        for character in valid_text
    )
    return " ".join("".join(visible_characters).split())


def _is_invisible(character: str) -> bool:
    """Return whether a character is an invisible control character, such as a bidirectional mark."""
    return unicodedata.category(character) == "Cf" and character not in _JOINERS


def _is_replaced_by_space(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp", "Co", "Cn")


def _cut(text: str, width: int) -> str:
    """Return a text cut to a width, with `…` at the end if it was cut; combining marks stay with their letter."""
    if sum(map(_width, text)) <= width:
        return text
    used_width = 0
    for position, character in enumerate(text):
        used_width += _width(character)
        if used_width > width - 1:
            return text[:position].rstrip() + "…"
    return text


def _width(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
