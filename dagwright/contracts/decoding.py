"""JSON from outside: one way to read it, for run inputs, messages and results alike.

It refuses what could not be written again: NaN, numbers that are infinite here, half characters, nesting without end.
"""

import math
from typing import Any

import pydantic_core


def json_from_bytes(encoded: bytes) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: it is none, or holds a number that no float can hold.
    """
    value = pydantic_core.from_json(encoded, allow_inf_nan=False)
    # To look through the values is cheaper than through the text: a workflow task may take 40 MB of results.
    if _holds_infinity(value):
        raise ValueError("a number is too large")
    return value


def _holds_infinity(value: Any) -> bool:
    parts = [value]
    for part in parts:
        if isinstance(part, float):
            if math.isinf(part):
                return True
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
    return False
