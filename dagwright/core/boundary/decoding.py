"""Decode all external JSON, and compress large JSON that people do not read."""

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import pydantic_core

_CONTAINERS = frozenset({dict, list})


def json_from_bytes(encoded: bytes) -> Any:
    """Decode a JSON text.

    Raises:
        ValueError: the text is not JSON, or has a number that no float can represent.
    """
    value = pydantic_core.from_json(encoded, allow_inf_nan=False, cache_strings="keys")
    # The value is encoded again, and the text is searched: a loop over the value is too slow for the 40 MB of results
    # of a workflow task.
    if b"Infinity" in pydantic_core.to_json(value) and _contains_infinity(value):
        raise ValueError("a number is too large")
    return value


def _contains_infinity(value: Any) -> bool:
    containers: list[Any] = [[value]]
    for container in containers:
        children = container.values() if type(container) is dict else container
        # `map` runs in C, which is fast enough for a million numbers in a plan.
        types = set(map(type, children))
        if float in types and any(map(math.isinf, filter(_is_float, children))):
            return True
        if types & _CONTAINERS:
            containers.extend(child for child in children if type(child) in _CONTAINERS)
    return False


def _is_float(value: Any) -> bool:
    return type(value) is float


PACKED = "packed"
_COMPRESSION_LEVEL = 1
"""The fastest level, because workflow code also compresses. Higher levels save little, because the JSON is
repetitive."""
UNPACKED_LIMIT_BYTES = 16_000_000
"""Maximum unpacked size of a text: reading or writing more bytes would block a workflow activation for too long."""


def packed_text(encoded: bytes) -> str:
    """Return encoded JSON as a compressed text."""
    return base64.b64encode(zlib.compress(encoded, _COMPRESSION_LEVEL)).decode()


def json_from_packed_text(text: str) -> Any:
    """Decode the result of `packed_text`.

    Raises:
        ValueError: the text is invalid or too large.
    """
    try:
        decompressor = zlib.decompressobj()
        encoded = decompressor.decompress(base64.b64decode(text, validate=True), UNPACKED_LIMIT_BYTES)
        if not decompressor.eof:
            raise ValueError(f"it is incomplete, or has over {UNPACKED_LIMIT_BYTES:,} bytes")
        return pydantic_core.from_json(encoded, allow_inf_nan=False)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None


def pack_json(encoded: bytes) -> dict[str, str]:
    """Return encoded JSON as `{"packed": text}`."""
    return {PACKED: packed_text(encoded)}


def unpack(message: Any) -> Any:
    """Decode the result of `pack_json`.

    Raises:
        ValueError: the message is invalid or too large.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get(PACKED), str):
        raise ValueError("it is not packed")
    return json_from_packed_text(message[PACKED])
