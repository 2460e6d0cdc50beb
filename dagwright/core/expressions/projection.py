"""What a large value tells the run: its shape, and the parts that the plan names.

The worker that made the value calls this, before the value goes to the store.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from dagwright.core.expressions.compute_budget import MAX_WORK, TooMuchWork, WorkBudget
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.stored_values import Part, Path, Shape, StoredValue, Want
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.tools import ToolDeclaration

VALUE_BYTES = 8 * 1024
"""JSON of a part that is told because the plan names it; a larger one stays in the store."""
WHOLE_BYTES = 192 * 1024
"""JSON of all parts in sum that are told because the run decides by them."""
PARTS_BYTES = 32 * 1024
"""JSON of all other parts in sum; a plan may name a thousand of one result."""
FOREIGN_BYTES = 2 * 1024 * 1024
"""Result of a foreign activity: no wrapper of ours stands before the server, which takes this much."""
TOGETHER_BYTES = 256 * 1024
"""What a sub-plan or a slice of a region brings at once."""
PREVIEW_CHARACTERS = 200


def largest_result_bytes(node: CompiledNode, tool: ToolDeclaration | None) -> int:
    """Returns what the end of one task of a node may bring into the history of its run."""
    if tool is not None and tool.is_foreign:
        return FOREIGN_BYTES
    if node.kind not in ("tool", "lookup"):
        return TOGETHER_BYTES
    if not node.wanted:
        return VALUE_BYTES
    is_whole = any(how == "whole" for _, how in node.wanted)
    return VALUE_BYTES + PARTS_BYTES + (WHOLE_BYTES if is_whole else 0)


def worker_budget() -> WorkBudget:
    """Returns what queries may cost in a worker, where nothing waits for them: a minute."""
    return WorkBudget(100 * MAX_WORK)


def describe(value: Any, ref: str, *, size_bytes: int, wanted: Sequence[Want], name: str) -> StoredValue:
    """Returns what a run is told of a large value.

    Args:
        value: the value.
        ref: where it lies in the store.
        size_bytes: of its JSON.
        wanted: the parts that the plan names; of those that do not fit, the first are told.
        name: what the value is called in messages, such as `fetch.result`.
    """
    budget = worker_budget()
    left = {"value": PARTS_BYTES, "whole": WHOLE_BYTES}
    parts: dict[Path, Part] = {}
    # What the run decides by comes first; a part may be wanted for both.
    for path, how in sorted(wanted, key=lambda want: want[1] == "value"):
        if path in parts:
            continue
        part, size = _part_of(value, path, most=VALUE_BYTES if how == "value" else left[how], name=name, budget=budget)
        if part is not None and size <= left[how]:
            left[how] -= size
            parts[path] = part
    return StoredValue(ref, name=name, shape=shape_of(value, size_bytes=size_bytes), parts=parts)


def _part_of(value: Any, path: Path, *, most: int, name: str, budget: WorkBudget) -> tuple[Part | None, int]:
    """Returns what is told of a part and about how many bytes that has; nothing of one that takes too long to find."""
    try:
        found = get_value(value, path, start=name, budget=budget)
    except MissingValue as missing:
        return Part("missing", words=str(missing)), len(str(missing))
    except TooMuchWork:
        return None, 0
    size = len(pydantic_core.to_json(found))
    if size <= VALUE_BYTES:
        return Part("small", found), size
    shape = shape_of(found, size_bytes=size)
    return (Part("whole", found, shape), size) if size <= most else (Part("large", shape=shape), 300)


def shape_of(value: Any, *, size_bytes: int) -> Shape | None:
    """Returns the shape of a large value; a number can be large too, and has none."""
    if isinstance(value, str):
        return Shape("text", size_bytes, len(value.encode(errors="replace")), value[:PREVIEW_CHARACTERS])
    if isinstance(value, list):
        return Shape("list", size_bytes, len(value), preview_of(value))
    return Shape("object", size_bytes, len(value), preview_of(value)) if isinstance(value, Mapping) else None


def preview_of(value: Any) -> str:
    """Returns the first characters of a value's JSON, without encoding the rest."""
    preview = ""
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        preview += part
        if len(preview) >= PREVIEW_CHARACTERS:
            break
    return preview[:PREVIEW_CHARACTERS]
