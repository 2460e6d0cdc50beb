"""A result that may be used again: the key it is found under, and its form in the payload store.

The key tells apart what may give different results: the tool, its code, the arguments. Large values in the arguments
count by their reference, which is a hash of their content. This module must not import workflows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import INLINE_VALUE_BYTES
from dagwright.core.expressions.hydration import secret_names
from dagwright.core.model.times import format_time
from dagwright.store import ref_of

_FORMAT = 1
"""Rises when the meaning of the key or of the stored form changes; what was kept before is not found then."""


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A result of a call.

    Args:
        content: as JSON.
        made_at: seconds since the epoch at which the call started, so that nothing counts as newer than it is.
        took_s: how long the call took.
        workflow_id: the run that made the call.
        node: id of the task in that run.
    """

    content: bytes
    made_at: float
    took_s: float
    workflow_id: str
    node: str

    def told(self) -> dict[str, Any]:
        """Returns what a run is told of where its result comes from."""
        return {"made_at": format_time(self.made_at), "workflow_id": self.workflow_id, "node": self.node}


@dataclass(frozen=True, slots=True)
class StoredForm:
    """What the store remembers: the result but for its content, which is beside it, or a payload if it is large."""

    result: CachedResult
    ref: str | None

    @property
    def content(self) -> bytes:
        """The content; empty if it is a payload."""
        return self.result.content


def result_key(
    tool: str, code: str, *, arguments: Mapping[str, Any], bindings: Sequence[Any], owner: str | None = None
) -> str | None:
    """Returns the key of a call: 64 hex digits.

    Args:
        code: what `CodeReader.code_of` says of the tool.
        arguments: JSON, as a run sends them; a tool can see the order of what stands in an object.
        bindings: `[path, parts]`, what the worker fills into them, as in the header.
        owner: whose results alone may be used; `None` if it does not matter, or the run has none.

    Returns:
        `None` if the arguments hold a secret, so that the result is never kept, or are nested too deeply.
    """
    if bindings and secret_names(bindings):
        return None
    call = [_FORMAT, tool, code, arguments, [_unnamed(binding) for binding in bindings]]
    if owner is not None:
        call.append(owner)
    try:
        canonical = json.dumps(call, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _unnamed(binding: Any) -> list[Any]:
    """Returns a binding without the names that only messages use: they differ from plan to plan."""
    path, parts = binding
    return [path, [_unnamed_part(part) for part in parts]]


def _unnamed_part(part: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in part.items() if key != "name" or "stored" not in part}
    return {**found, "holes": [_unnamed(binding) for binding in found["holes"]]} if "holes" in found else found


def to_stored_form(result: CachedResult) -> bytes:
    """Returns what the store shall remember; a result over 8 KiB only by the reference that it has as a payload.

    The run that made it has put such a payload, and whoever uses it again puts it anew.
    """
    head: dict[str, Any] = {
        "format": _FORMAT,
        "made_at": result.made_at,
        "took_s": result.took_s,
        "workflow_id": result.workflow_id,
        "node": result.node,
        "ref": ref_of(result.content),
    }
    content = result.content if len(result.content) <= INLINE_VALUE_BYTES else b""
    return pydantic_core.to_json({**head, "is_inline": bool(content)}) + b"\n" + content


def from_stored_form(remembered: bytes) -> StoredForm | None:
    """Returns what the store remembered, or `None` if that is damaged or of another format."""
    first, _, content = remembered.partition(b"\n")
    try:
        head = pydantic_core.from_json(first)
        if head["format"] != _FORMAT or (head["is_inline"] and ref_of(content) != head["ref"]):
            return None
        result = CachedResult(
            content=content if head["is_inline"] else b"",
            made_at=float(head["made_at"]),
            took_s=float(head["took_s"]),
            workflow_id=str(head["workflow_id"]),
            node=str(head["node"]),
        )
        return StoredForm(result, None if head["is_inline"] else str(head["ref"]))
    except (ValueError, TypeError, KeyError):
        return None
