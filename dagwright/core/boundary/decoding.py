"""JSON from outside, decoded in one way, and large machine-only JSON, compressed."""

import base64
import math
import zlib
from collections.abc import Mapping
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


PACKED = "packed"
_LEVEL = 1
"""The fastest: workflow code packs too, and what is packed is so much alike that the best one saves little."""
UNPACKED_LIMIT_BYTES = 16_000_000
"""What a packed text may hold: reading or writing more would take a workflow too long at one moment."""


def packed_text(encoded: bytes) -> str:
    """Returns JSON that is encoded already as a text."""
    return base64.b64encode(zlib.compress(encoded, _LEVEL)).decode()


def unpacked_text(text: str) -> Any:
    """Returns the JSON value of what `packed_text` made.

    Raises:
        ValueError: it is nothing of that kind, or too large.
    """
    try:
        inflate = zlib.decompressobj()
        encoded = inflate.decompress(base64.b64decode(text, validate=True), UNPACKED_LIMIT_BYTES)
        if not inflate.eof:
            raise ValueError(f"it is cut, or holds over {UNPACKED_LIMIT_BYTES:,} bytes")
        return pydantic_core.from_json(encoded, allow_inf_nan=False)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None


def pack_json(encoded: bytes) -> dict[str, str]:
    """Returns JSON that is encoded already as `{"packed": text}`."""
    return {PACKED: packed_text(encoded)}


def unpack(message: Any) -> Any:
    """Returns the value of what `pack_json` made.

    Raises:
        ValueError: it is nothing of that kind, or too large.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get(PACKED), str):
        raise ValueError("it is not packed")
    return unpacked_text(message[PACKED])
