"""Items of a node with `for_each`: the list, the keys, and the state of the node after its items have ended."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

from dagwright.core.errors import NodeError
from dagwright.core.expressions.compute_budget import TooLargeHere
from dagwright.core.expressions.paths import describe_type, get_value, steps_for_each
from dagwright.core.expressions.reference_resolution import (
    Scope,
    as_text,
    resolve_bindings,
    resolve_template,
    scope_of_item,
)
from dagwright.core.expressions.references import Item, Template
from dagwright.core.expressions.stored_values import (
    Path,
    ProjectedPart,
    Projection,
    StoredValue,
    is_whole,
    stored_from_json,
    stored_to_json,
)
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, Record

MAX_ITEMS = 250_000
"""Maximum number of items of one `for_each`: the run holds some hundred bytes for each batch of items."""
MAX_KEY_BYTES = 200
"""Longest key of an item in UTF-8, the same as for a node id."""
_KEY_COST = 12
_REFERENCE_COST = 7
"""Cost of each key, and of each reference in a key, in units of the compute budget; a text in a key costs 1."""
_KEY_IN_STORE = (
    "the key of item {index} needs a part of the item that is in the payload store, where the run itself cannot read "
    "it: for lists over 192 KiB, `key` may read at most 192 KiB in total, and only parts that every item has; leave "
    "out `key`, or make a smaller list in a tool"
)


class StoredList(Sequence[Any]):
    """A slice of a list in the payload store; each item is a stored value.

    Args:
        value: the whole list.
        first: position of the first item of the slice.
        count: number of its items.
    """

    def __init__(self, value: StoredValue, first: int, count: int) -> None:
        self.value = value
        self.first = first
        self._count = count
        self._projected = _projections_of_items(value)

    def without_parts(self) -> "StoredList":
        """Return the same slice without the projected parts."""
        without_parts = StoredValue(self.value.ref, name=self.value.name, paths=self.value.paths)
        return StoredList(without_parts, self.first, self._count)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredList": ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, int):
            if not 0 <= index < self._count:
                raise IndexError(index)
            return self._item(self.first + index)
        first, last, _ = index.indices(self._count)
        return StoredList(self.value, self.first + first, last - first)

    def _item(self, index: int) -> Any:
        item = get_value(self.value, (index,), start=self.value.name)
        if not self._projected or not isinstance(item, StoredValue):
            return item
        parts = {path: ProjectedPart("small", values[index]) for path, values in self._projected.items()}
        return StoredValue(item.ref, name=item.name, paths=item.paths, shape=item.shape, parts={**parts, **item.parts})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredList):
            return NotImplemented
        return (self.value, self.first, len(self)) == (other.value, other.first, len(other))

    __hash__ = None  # type: ignore[assignment]  # like every list


def _projections_of_items(value: StoredValue) -> dict[Path, Sequence[Any]]:
    """Return the projected parts of the items of a stored list: path inside of an item -> that part of all items.

    A part is left out if some items lack it, or if it is not small in all of them.
    """
    length = value.shape.length if value.shape is not None else None
    projections: dict[Path, Sequence[Any]] = {}
    for query, part in value.parts.items():
        steps = steps_for_each(query) if isinstance(query, str) else None
        if steps and isinstance(part.value, list) and len(part.value) == length and all(map(_is_small, part.value)):
            projections[steps] = part.value
    return projections


def _is_small(part: Any) -> bool:
    return not isinstance(part, dict | list) and not (isinstance(part, str) and len(part) > MAX_KEY_BYTES)


def parts_of_key(node: CompiledNode) -> list[Projection]:
    """Return the projections of each item that the key of a node's items reads."""
    paths = [part.path for part in node.key or () if isinstance(part, Item)]
    return [(path, "value") for path in dict.fromkeys(paths) if path and not isinstance(path, str)]


def stored_list_to_json(stored_list: StoredList) -> dict[str, Any]:
    """Return the JSON form of a slice of a stored list."""
    return {"list": stored_to_json(stored_list.value), "first": stored_list.first, "count": len(stored_list)}


def stored_list_from_json(encoded: Mapping[str, Any]) -> StoredList:
    """Parse the JSON form of a slice of a stored list.

    Raises:
        ValueError, LookupError, TypeError: the form is invalid.
    """
    return StoredList(stored_from_json(encoded["list"]), int(encoded["first"]), int(encoded["count"]))


def items_of(node: CompiledNode, scope: Scope) -> Sequence[Any] | NodeError | None:
    """Return the items of a node, or the error; `None` if the list is null, so that the node is skipped.

    Raises:
        UnresolvedReference: a reference cannot be resolved.
        ComputeBudgetExceeded: a query would take too long.
    """
    if isinstance(node.for_each, list):
        items = resolve_bindings(node.for_each, node.item_bindings, scope=scope)
    else:
        items = resolve_template(node.for_each or (), scope=scope)
    if isinstance(items, StoredValue):
        items = _items_of_stored(items)
    if items is None:
        return None
    if not isinstance(items, list | StoredList):
        shown = repr(as_text(items)[:60]) if is_whole(items) else describe_type(items)
        return NodeError("invalid_for_each", f"for_each needs a list, not {shown}")
    if len(items) > MAX_ITEMS:
        return NodeError("too_large", f"for_each has {len(items)} items; at most {MAX_ITEMS} are allowed")
    return items


def _items_of_stored(value: StoredValue) -> Any:
    """Return the items of a stored list: the list itself if it was projected, else a stored value for each item."""
    part = value.own_part
    if part is None or part.shape is None:
        raise TooLargeHere(f"for_each: a part of {value.name}", None)
    if part.state == "whole":
        return part.value
    return StoredList(value, 0, part.shape.length) if part.shape.type == "list" else value


def keys_of(node: CompiledNode, items: Sequence[Any], *, scope: Scope) -> list[str] | NodeError:
    """Return the key of every item, or the error of the first invalid key.

    Raises:
        UnresolvedReference: a reference cannot be resolved.
        ComputeBudgetExceeded: a query, or computing the keys of so many items, would take too long.
    """
    if node.key is None:
        return [str(index) for index in range(node.first_index, node.first_index + len(items))]
    references = sum(not isinstance(part, str) for part in node.key)
    scope.budget.spend((_KEY_COST + _REFERENCE_COST * references + len(node.key)) * len(items))
    keys: list[str] = []
    for index, item in enumerate(items, node.first_index):
        key = _key_of(node.key, scope_of_item(scope, item, index=index))
        if key is None:
            return NodeError("too_large", _KEY_IN_STORE.format(index=index))
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            return NodeError("invalid_key", f"the key of item {index} holds a lone surrogate, which is not a character")
        if size > MAX_KEY_BYTES:
            message = f"the key of item {index} has {size} bytes of UTF-8; at most {MAX_KEY_BYTES} are allowed"
            return NodeError("invalid_key", message)
        keys.append(key)
    return keys


def _key_of(key: Template, scope: Scope) -> str | None:
    """Return the key of an item, cut if it is too long; `None` if a part of it is in the payload store."""
    texts: list[str] = []
    size = 0
    for part in key:
        resolved = resolve_template((part,), scope=scope)
        if not is_whole(resolved):
            return None
        texts.append(as_text(resolved))
        size += len(texts[-1])
        if size > MAX_KEY_BYTES:
            # A key may contain an item of a megabyte a hundred times.
            break
    return "".join(texts)


def end_of_items(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Return the final state of a node whose items have all ended, and its error."""
    if any(item.record.status is NodeStatus.CANCELLED for item in record.items):
        return NodeStatus.CANCELLED, None
    failed = [item for item in record.items if item.record.status is NodeStatus.FAILED]
    if not failed:
        return NodeStatus.COMPLETED, None
    first = failed[0].record.error
    summary = f"{len(failed)} of {len(record.items)} items failed; the first: {node.id}[{failed[0].key}]: "
    return NodeStatus.FAILED, NodeError(first.code if first else "failed", summary + (first.message if first else ""))
