"""The attempt of a call, encoded in the payload metadata of its result or in the details of its failure."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeGuard

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.usage_reports import reported_usage, usage_of_metadata
from dagwright.core.model.states import Attempt
from dagwright.protocol.lineage import lineage_from_details, lineage_from_metadata

_MAX_COUNT = 2**31
_MAX_START_MS = 4_102_444_800_000
"""Latest start of an attempt: the year 2100."""
_START_BYTES = 6
_START_CHARACTERS = 8
_COUNT_SEPARATOR = "#"
_COUNT_DIGITS = 10


def encode_attempt(count: int, started_at_s: float, tool_version: str) -> bytes:
    """Encode an attempt as the value of `wire.METADATA_ATTEMPT`. The value is short: the history has one for each call.

    Args:
        count: number of the attempt; 1 for the first attempt.
        started_at_s: seconds since 1970.
        tool_version: empty for a call without a tool version.
    """
    started_at_ms = round(started_at_s * 1_000_000) // 1_000
    omits_count = count == 1 and _COUNT_SEPARATOR not in tool_version
    text = tool_version if omits_count else f"{tool_version}{_COUNT_SEPARATOR}{count}"
    return urlsafe_b64encode(started_at_ms.to_bytes(_START_BYTES)) + text.encode()


def read_attempt(metadata: Mapping[str, bytes]) -> Attempt:
    """Return the attempt in the metadata of a result.

    Workers of other programs may send no metadata, or invalid metadata. Each invalid part counts as missing.
    """
    usage, lineage = usage_of_metadata(metadata), lineage_from_metadata(metadata)
    cached, encoded = _json(metadata, wire.METADATA_CACHED), metadata.get(wire.METADATA_ATTEMPT, b"")
    cached = cached if isinstance(cached, dict) else None
    started_at_ms = _start_ms(encoded[:_START_CHARACTERS])
    if started_at_ms is None:
        return Attempt(cached=cached, usage=usage, lineage=lineage)
    version, separator, digits = encoded[_START_CHARACTERS:].decode(errors="replace").rpartition(_COUNT_SEPARATOR)
    if not (separator and digits.isascii() and digits.isdecimal() and len(digits) <= _COUNT_DIGITS):
        version, digits = version + separator + digits, "1"
    return Attempt(_count(int(digits)), started_at_ms / 1000, version, cached, usage, lineage=lineage)


def attempt_of_details(details: Mapping[str, Any]) -> Attempt:
    """Return the attempt in the details of a failure: `{"attempt", "started_at", "tool_version", …}`.

    Each invalid part counts as missing.
    """
    count, started_at = _count(details.get("attempt")), _seconds_or_none(details.get("started_at"))
    version, usage = _text(details.get("tool_version")), reported_usage(details)
    return Attempt(count, started_at, version, usage=usage, lineage=lineage_from_details(details))


def _start_ms(encoded: bytes) -> int | None:
    try:
        decoded = b64decode(encoded, altchars=b"-_", validate=True)
    except ValueError:
        return None
    started_at_ms = int.from_bytes(decoded)
    return started_at_ms if len(decoded) == _START_BYTES and started_at_ms <= _MAX_START_MS else None


def _count(value: object) -> int:
    return value if _is_number(value, max_value=_MAX_COUNT) and value > 0 else 1


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds_or_none(text: object) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def _is_number(value: object, *, max_value: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= max_value


def _json(metadata: Mapping[str, bytes], name: str) -> Any:
    """Return a JSON value in metadata; `None` if it is missing or invalid."""
    try:
        return json_from_bytes(metadata[name]) if name in metadata else None
    except ValueError:
        return None
