"""JSON from outside: one way to read it, for run inputs, messages and results alike.

It refuses what could not be written again: NaN, numbers that are infinite here, half characters, nesting without end.
"""

import math
from typing import Any

import pydantic_core

_CONTAINERS = frozenset({dict, list})


def json_from_bytes(encoded: bytes) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: it is none, or holds a number that no float can hold.
    """
    value = pydantic_core.from_json(encoded, allow_inf_nan=False, cache_strings="keys")
    # What writes JSON looks through the values faster than Python does, and a workflow task may take 40 MB of results.
    if b"Infinity" in pydantic_core.to_json(value) and _holds_infinity(value):
        raise ValueError("a number is too large")
    return value


def _holds_infinity(value: Any) -> bool:
    parts: list[Any] = [[value]]
    for part in parts:
        inner = part.values() if type(part) is dict else part
        # What the parts are is asked in C: a plan may hold a million numbers.
        kinds = set(map(type, inner))
        if float in kinds and any(map(math.isinf, filter(_is_float, inner))):
            return True
        if kinds & _CONTAINERS:
            parts.extend(each for each in inner if type(each) in _CONTAINERS)
    return False


def _is_float(value: Any) -> bool:
    return type(value) is float
