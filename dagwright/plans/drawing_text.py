"""Texts of drawings: shortened, without characters that hide or reorder other characters, and escaped."""

import re
import unicodedata
from collections.abc import Mapping
from html import escape

from dagwright.core.model.states import NodeStatus
from dagwright.core.text import one_line

_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
"""Control characters, lone surrogates, and characters that are invisible or change the direction of a text."""

MARKS: Mapping[NodeStatus, tuple[str, str]] = {
    NodeStatus.PENDING: ("·", "dim"),
    NodeStatus.READY: ("○", "cyan"),
    NodeStatus.RUNNING: ("●", "bold cyan"),
    NodeStatus.WAITING: ("◔", "yellow"),
    NodeStatus.COMPLETED: ("✓", "green"),
    NodeStatus.FAILED: ("✗", "bold red"),
    NodeStatus.SKIPPED: ("↷", "dim"),
    NodeStatus.BLOCKED: ("⊘", "magenta"),
    NodeStatus.CANCELLED: ("⊗", "yellow"),
    NodeStatus.SUPERSEDED: ("↺", "dim"),
}
"""Node status -> mark and terminal style. The mark shows the status without colours."""


def single_line(text: str) -> str:
    """Return a text on one line. U+FFFD replaces each character that would hide or reorder other characters."""
    return _UNSAFE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", one_line(text))


def shorten_line(text: str, columns: int) -> str:
    """Return a text on one line of at most `columns` columns; the middle of a longer text is replaced with `…`."""
    line = single_line(text)
    if text_columns(line) <= columns:
        return line
    head, tail = (columns - 1) * 2 // 3, (columns - 1) // 3
    return f"{_first_columns(line, head)}…{_first_columns(line[::-1], tail)[::-1]}"


def text_columns(text: str) -> int:
    """Return the width of a text in columns: East Asian characters and emoji have two columns."""
    if text.isascii():
        return len(text)
    base_characters = [character for character in text if not unicodedata.combining(character)]
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in base_characters)


def _first_columns(text: str, columns: int) -> str:
    count = 0
    for end, character in enumerate(text):
        count += text_columns(character)
        if count > columns:
            return text[:end]
    return text


def escape_markup(text: str) -> str:
    """Escape a text for HTML or SVG, within an element or a quoted attribute."""
    return escape(_UNSAFE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)
