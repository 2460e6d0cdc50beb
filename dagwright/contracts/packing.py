"""JSON that is larger than a payload should be, packed: what a machine reads and nobody looks at in the Temporal UI.

Pages of a plan and the state of a long run repeat themselves so much that they shrink to a tenth.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import pydantic_core

PACKED = "packed"
_LEVEL = 6
UNPACKED_LIMIT_BYTES = 64_000_000
"""What a packed text may hold: enough for everything that is packed, and far less than would fill the memory."""


def pack(value: Any) -> dict[str, str]:
    """Returns a JSON value as `{"packed": base64 of zlib of its compact JSON}`."""
    return pack_json(pydantic_core.to_json(value))


def pack_json(encoded: bytes) -> dict[str, str]:
    """Returns JSON that is encoded already, as `pack` does."""
    return {PACKED: base64.b64encode(zlib.compress(encoded, _LEVEL)).decode()}


def unpack(message: Any) -> Any:
    """Returns the value of what `pack` made.

    Raises:
        ValueError: it is nothing of that kind, or too large.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get(PACKED), str):
        raise ValueError("it is not packed")
    try:
        inflate = zlib.decompressobj()
        encoded = inflate.decompress(base64.b64decode(message[PACKED], validate=True), UNPACKED_LIMIT_BYTES)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None
    if not inflate.eof:
        raise ValueError(f"it is cut, or holds over {UNPACKED_LIMIT_BYTES:,} bytes")
    return pydantic_core.from_json(encoded)
