"""A budget as it is written on a command line: `tokens=50000,money=1.50,calls=40,nodes=200,time=2h`."""

from collections.abc import Mapping
from typing import Any

from dagwright.core.boundary.limits import cut_text
from dagwright.core.model.budget_limits import limits_from_json
from dagwright.features.budgets.budget import budget_of_options as checked_budget
from dagwright.features.budgets.budget import options_to_json
from dagwright.interfaces.cli.exits import CommandRefused

_NO_LIMIT = "none"
_DIGITS = 20
"""Of a number: any limit has fewer, and Python reads only so many."""


def read_budget(text: str | None, *, is_asking: bool) -> Mapping[str, Any] | None:
    """Returns the budget of a run as its options have it; `None` if none is written.

    Args:
        is_asking: whether somebody may be asked for more at the limit.

    Raises:
        CommandRefused: it is none; the message says which part.
    """
    if text is None:
        return None
    on_limit = {} if is_asking else {"on_limit": "finish"}
    try:
        return options_to_json(checked_budget({**_parts(text), **on_limit}))
    except ValueError as error:
        raise _refused(text, error) from None


def read_new_limits(text: str) -> Mapping[str, Any]:
    """Returns limits of a budget that are to be set in a run, null for those that are to be lifted.

    Raises:
        CommandRefused: they are none; the message says which part.
    """
    try:
        parts = {name: None if value == _NO_LIMIT else value for name, value in _parts(text).items()}
        limits_from_json(parts, can_be_lifted=True)
    except ValueError as error:
        raise _refused(text, error) from None
    return parts


def _parts(text: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (name and equals and value):
            commas = ", and numbers without commas" if part.strip().isdecimal() else ""
            raise ValueError(f"{part.strip()!r:.60} is no limit; write NAME=NUMBER{commas}")
        if name in parts:
            raise ValueError(f"{name} is given twice")
        is_count = name not in ("money", "time") and value.isascii() and value.isdecimal() and len(value) <= _DIGITS
        parts[name] = int(value) if is_count else value
    return parts


def _refused(text: str, error: ValueError) -> CommandRefused:
    return CommandRefused(
        f"--budget {cut_text(text, max_bytes=200)}: {error}; such as tokens=50000,money=1.50,calls=40,nodes=200,time=2h"
    )
