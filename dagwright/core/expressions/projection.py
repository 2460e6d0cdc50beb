"""Projections of a large value: the shape and the named parts that the run receives instead of the value.

The worker that made the value calls this module before it stores the value.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from dagwright.core.expressions.compute_budget import MAX_WORK, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.stored_values import (
    MAX_DECISION_PARTS_BYTES,
    MAX_SMALL_VALUE_BYTES,
    MAX_VALUE_PARTS_BYTES,
    Path,
    ProjectedPart,
    Projection,
    Shape,
    StoredValue,
)

PREVIEW_CHARACTERS = 200


def worker_budget() -> ComputeBudget:
    """Return the budget of queries in a worker process: about a minute, because queries block nothing there."""
    return ComputeBudget(100 * MAX_WORK)


def project_value(
    value: Any, ref: str, *, size_bytes: int, projections: Sequence[Projection], name: str
) -> StoredValue:
    """Return a large value as the run receives it.

    Args:
        ref: reference of the value in the store.
        size_bytes: size of the value as JSON.
        projections: the parts that the plan reads. Parts for decisions (the use `whole`) are added first; parts that
            exceed the size limits are omitted.
        name: name of the value in messages, such as `fetch.result`.
    """
    budget = worker_budget()
    remaining_bytes = {"value": MAX_VALUE_PARTS_BYTES, "whole": MAX_DECISION_PARTS_BYTES}
    parts: dict[Path, ProjectedPart] = {}
    # Parts for decisions come first, so that a part with both uses is projected for decisions.
    for path, use in sorted(projections, key=lambda projection: projection[1] == "value"):
        if path in parts:
            continue
        part, size = _part_of(
            value,
            path,
            max_bytes=MAX_SMALL_VALUE_BYTES if use == "value" else remaining_bytes[use],
            name=name,
            budget=budget,
        )
        if part is not None and size <= remaining_bytes[use]:
            remaining_bytes[use] -= size
            parts[path] = part
    return StoredValue(ref, name=name, shape=shape_of(value, size_bytes=size_bytes), parts=parts)


def _part_of(
    value: Any, path: Path, *, max_bytes: int, name: str, budget: ComputeBudget
) -> tuple[ProjectedPart | None, int]:
    """Return a projected part and its approximate size in bytes; `None` if the query takes too long."""
    try:
        part_value = get_value(value, path, name=name, budget=budget)
    except MissingValue as missing:
        return ProjectedPart("missing", reason=str(missing)), len(str(missing))
    except ComputeBudgetExceeded:
        return None, 0
    size = len(pydantic_core.to_json(part_value))
    if size <= MAX_SMALL_VALUE_BYTES:
        return ProjectedPart("small", part_value), size
    shape = shape_of(part_value, size_bytes=size)
    return (
        (ProjectedPart("whole", part_value, shape), size)
        if size <= max_bytes
        else (ProjectedPart("large", shape=shape), 300)
    )


def shape_of(value: Any, *, size_bytes: int) -> Shape | None:
    """Return the shape of a list, an object or a text; `None` for a number."""
    if isinstance(value, str):
        return Shape("text", size_bytes, len(value.encode(errors="replace")), value[:PREVIEW_CHARACTERS])
    if isinstance(value, list):
        return Shape("list", size_bytes, len(value), preview_of(value))
    return Shape("object", size_bytes, len(value), preview_of(value)) if isinstance(value, Mapping) else None


def preview_of(value: Any) -> str:
    """Return the first characters of a value's JSON, without encoding the rest."""
    preview = ""
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        preview += part
        if len(preview) >= PREVIEW_CHARACTERS:
            break
    return preview[:PREVIEW_CHARACTERS]
