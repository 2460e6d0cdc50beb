"""The items of a node with `for_each`: the list, their keys, and what their ends say of the node."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

from dagwright.plan.compiled import CompiledNode
from dagwright.plan.errors import NodeError
from dagwright.plan.paths import describe_type, get_value
from dagwright.plan.resolution import Scope, as_text, resolve_holes, resolve_template, scope_of_item
from dagwright.plan.states import NodeStatus, Record
from dagwright.plan.stored import StoredValue, TooLargeHere, is_whole, stored_from_json, stored_to_json

MAX_ITEMS = 250_000
"""Items of one `for_each`: the run keeps some hundred bytes for each chunk of them."""
MAX_KEY_BYTES = 200
"""Longest key of an item in UTF-8, the same as for the id of a node."""
_WORK_OF_KEY = 15
"""In the units of the work budget."""


class StoredList(Sequence[Any]):
    """A stretch of a list in the payload store; each item is a stored value.

    Args:
        value: the whole list.
        first: position of the first item of the stretch.
        count: its length.
    """

    def __init__(self, value: StoredValue, first: int, count: int) -> None:
        self.value = value
        self.first = first
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> "StoredList": ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, int):
            if not 0 <= place < self._count:
                raise IndexError(place)
            return get_value(self.value, (self.first + place,), start=self.value.name)
        first, last, _ = place.indices(self._count)
        return StoredList(self.value, self.first + first, last - first)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredList):
            return NotImplemented
        return (self.value, self.first, len(self)) == (other.value, other.first, len(other))

    __hash__ = None  # type: ignore[assignment]  # as of every list


def stored_list_to_json(stretch: StoredList) -> dict[str, Any]:
    """Returns a stretch of a list in the payload store as it travels."""
    return {"list": stored_to_json(stretch.value), "first": stretch.first, "count": len(stretch)}


def stored_list_from_json(encoded: Mapping[str, Any]) -> StoredList:
    """Returns the stretch of its JSON form.

    Raises:
        ValueError, LookupError, TypeError: it is none.
    """
    return StoredList(stored_from_json(encoded["list"]), int(encoded["first"]), int(encoded["count"]))


def items_of(node: CompiledNode, scope: Scope) -> Sequence[Any] | NodeError | None:
    """Returns the items of a node, or why it has none; `None` where the list is null, so that the node is skipped.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long.
    """
    if isinstance(node.for_each, list):
        items = resolve_holes(node.for_each, node.item_holes, scope=scope)
    else:
        items = resolve_template(node.for_each or (), scope=scope)
    if isinstance(items, StoredValue):
        items = _told_items(items)
    if items is None:
        return None
    if not isinstance(items, list | StoredList):
        shown = repr(as_text(items)[:60]) if is_whole(items) else describe_type(items)
        return NodeError("invalid_for_each", f"for_each needs a list, not {shown}")
    if len(items) > MAX_ITEMS:
        return NodeError("too_large", f"for_each has {len(items)} items; at most {MAX_ITEMS} are allowed")
    return items


def _told_items(value: StoredValue) -> Any:
    """Returns the items of a list in the store: themselves if they were told, else a stored value for each."""
    told = value.told
    if told is None or told.shape is None:
        raise TooLargeHere(f"for_each: a part of {value.name}", None)
    if told.state == "whole":
        return told.value
    return StoredList(value, 0, told.shape.length) if told.shape.type == "list" else value


def keys_of(node: CompiledNode, items: Sequence[Any], *, scope: Scope) -> list[str] | NodeError:
    """Returns the key of every item, or why one cannot be used.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long, or the keys of so many items.
    """
    if node.key is None:
        return [str(index) for index in range(node.first_index, node.first_index + len(items))]
    scope.budget.spend(_WORK_OF_KEY * len(items))
    keys: list[str] = []
    for index, item in enumerate(items, node.first_index):
        found = resolve_template(node.key, scope=scope_of_item(scope, item, index=index))
        if not is_whole(found):
            raise TooLargeHere(f"key: a part of item {index}", None)
        key = as_text(found)
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            return NodeError("invalid_key", f"the key of item {index} holds a lone surrogate, which is no character")
        if size > MAX_KEY_BYTES:
            message = f"the key of item {index} has {size} bytes of UTF-8; at most {MAX_KEY_BYTES} are allowed"
            return NodeError("invalid_key", message)
        keys.append(key)
    return keys


def end_of_items(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Returns how a node ends whose items have all ended, and its error."""
    if any(item.record.status is NodeStatus.CANCELLED for item in record.items):
        return NodeStatus.CANCELLED, None
    failed = [item for item in record.items if item.record.status is NodeStatus.FAILED]
    if not failed:
        return NodeStatus.COMPLETED, None
    first = failed[0].record.error
    told = f"{len(failed)} of {len(record.items)} items failed; the first: {node.id}[{failed[0].key}]: "
    return NodeStatus.FAILED, NodeError(first.code if first else "failed", told + (first.message if first else ""))
