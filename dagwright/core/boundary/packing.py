"""JSON that is larger than a payload should be, packed: what a machine reads and nobody looks at in the Temporal UI.

Pages of a plan and the state of a long run repeat themselves so much that they shrink to a tenth. Both are packed here
and nowhere else: base64 of zlib of compact JSON.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import pydantic_core

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
