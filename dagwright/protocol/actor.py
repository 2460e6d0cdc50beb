"""Who asks for something of a run, and what else they say, as messages of all kinds tell it."""

from collections.abc import Mapping
from typing import Any

from dagwright.core.model.actor import By
from dagwright.core.model.requests import Through
from dagwright.protocol.messages import MessageInvalid

NAME_CHARACTERS = 200
WORDS_CHARACTERS = 4_000
"""Longest reason or note: it stands in the state of the run."""


def name_of(message: Mapping[str, Any]) -> str | None:
    """Returns who sends a message.

    Raises:
        MessageInvalid: that is no name.
    """
    return _text(message, "by", most=NAME_CHARACTERS)


def words_of(message: Mapping[str, Any], name: str) -> str | None:
    """Returns a reason or a note.

    Raises:
        MessageInvalid: it is no text, or too long.
    """
    return _text(message, name, most=WORDS_CHARACTERS)


def by_from_json(message: Mapping[str, Any], *, through: Through) -> By:
    """Returns whose act it is, and why.

    Raises:
        MessageInvalid: a text is none, or too long.
    """
    return By(name_of(message), words_of(message, "reason"), through)


def by_of_anything(message: Any, *, through: Through) -> By:
    """Returns the same of a message that must never be refused; whatever cannot be read is cut or left out."""
    if not isinstance(message, Mapping):
        return By(None, message[:WORDS_CHARACTERS] if isinstance(message, str) else None, through)
    reason, by = message.get("reason"), message.get("by")
    return By(
        str(by)[:NAME_CHARACTERS] if by is not None else None,
        str(reason)[:WORDS_CHARACTERS] if reason is not None else None,
        through,
    )


def _text(message: Mapping[str, Any], name: str, *, most: int) -> str | None:
    value = message.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise MessageInvalid(f"{name!r} must be a text of at most {most:,} characters")
    return value or None
