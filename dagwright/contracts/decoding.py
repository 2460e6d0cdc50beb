"""JSON from outside: one way to read it, for run inputs, messages and results alike.

It refuses what could not be written again: NaN, numbers that are infinite here, half characters, nesting without end.
"""

import math
import re
from typing import Any

import pydantic_core

_MAY_BE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{309}")
"""A number that a float cannot hold has an exponent of three digits or 309 digits; hardly any text has either."""

_SEARCHED_BYTES = 64 * 1024
"""Longer texts are mostly one long value: going through the values takes less time than searching the text."""


def json_from_bytes(encoded: bytes) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: it is none, or holds a number that no float can hold.
    """
    value = pydantic_core.from_json(encoded, allow_inf_nan=False)
    is_suspect = len(encoded) > _SEARCHED_BYTES or _MAY_BE_INFINITE.search(encoded) is not None
    if is_suspect and _holds_infinity(value):
        raise ValueError("a number is too large")
    return value


def _holds_infinity(value: Any) -> bool:
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, dict):
        return any(_holds_infinity(part) for part in value.values())
    return isinstance(value, list) and any(_holds_infinity(part) for part in value)
