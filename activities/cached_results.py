"""Cached tool results: the cache key of a call, and the encoding of a result in the payload store.

The key covers everything that can change a result: the tool, its code and the arguments. A large argument value is
represented by its reference, which is a hash of its content. This module must not import workflows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES
from dagwright.core.expressions.hydration import secret_names
from dagwright.core.model.times import format_time
from dagwright.store import ref_of

_FORMAT = 1
"""Increment this number when the key or the encoding changes: entries of older formats are then ignored."""


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A cached result of a call.

    Args:
        content: JSON.
        made_at: start of the call, in seconds since the epoch. The age of the result counts from this time.
        took_s: duration of the call.
        run_id: ID of the run that made the call.
        task_id: ID of the call's task in that run.
    """

    content: bytes
    made_at: float
    took_s: float
    run_id: str
    task_id: str

    def provenance(self) -> dict[str, Any]:
        """Return the provenance that a run records for a cached result."""
        return {"made_at": format_time(self.made_at), "run_id": self.run_id, "node_id": self.task_id}


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result from the payload store. The content of a large result is a separate payload with the reference `ref`."""

    result: CachedResult
    ref: str | None

    @property
    def content(self) -> bytes:
        """The content; empty if the content is a separate payload."""
        return self.result.content


def result_key(
    tool: str, fingerprint: str, *, arguments: Mapping[str, Any], bindings: Sequence[Any], owner: str | None = None
) -> str | None:
    """Return the cache key of a call: 64 hex digits.

    Args:
        fingerprint: fingerprint of the code of the tool; see `CodeFingerprinter.fingerprint`.
        arguments: JSON, in the order in which the run sends them: a tool can observe the order of object keys.
        bindings: the bindings that the worker fills in, in the form `[path, parts]`.
        owner: restricts reuse to results of this owner; `None` if results are shared or the run has no owner.

    Returns:
        `None` if the arguments contain a secret or are nested too deeply; such a result is never cached.
    """
    if bindings and secret_names(bindings):
        return None
    call = [_FORMAT, tool, fingerprint, arguments, [_without_names(binding) for binding in bindings]]
    if owner is not None:
        call.append(owner)
    try:
        canonical = json.dumps(call, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _without_names(binding: Any) -> list[Any]:
    """Return a binding without the names for error messages, because these names differ between plans."""
    path, parts = binding
    return [path, [_unnamed_part(part) for part in parts]]


def _unnamed_part(part: Mapping[str, Any]) -> dict[str, Any]:
    without_name = {key: value for key, value in part.items() if key != "name" or "stored" not in part}
    return (
        {**without_name, "bindings": [_without_names(binding) for binding in without_name["bindings"]]}
        if "bindings" in without_name
        else without_name
    )


def encode_stored_result(result: CachedResult) -> bytes:
    """Encode a result for the store; a result over 8 KiB is stored as a reference to its payload.

    The run that made the call has stored this payload; a run that reuses the result stores the payload again.
    """
    head: dict[str, Any] = {
        "format": _FORMAT,
        "made_at": result.made_at,
        "took_s": result.took_s,
        "run_id": result.run_id,
        "node_id": result.task_id,
        "ref": ref_of(result.content),
    }
    content = result.content if len(result.content) <= MAX_INLINE_VALUE_BYTES else b""
    return pydantic_core.to_json({**head, "is_inline": bool(content)}) + b"\n" + content


def decode_stored_result(encoded: bytes) -> StoredResult | None:
    """Decode a cache entry; return `None` if it is damaged or has another format."""
    head_line, _, content = encoded.partition(b"\n")
    try:
        head = pydantic_core.from_json(head_line)
        if head["format"] != _FORMAT or (head["is_inline"] and ref_of(content) != head["ref"]):
            return None
        result = CachedResult(
            content=content if head["is_inline"] else b"",
            made_at=float(head["made_at"]),
            took_s=float(head["took_s"]),
            run_id=str(head["run_id"]),
            task_id=str(head["node_id"]),
        )
        return StoredResult(result, None if head["is_inline"] else str(head["ref"]))
    except (ValueError, TypeError, KeyError):
        return None
