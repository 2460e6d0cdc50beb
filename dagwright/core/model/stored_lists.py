"""Lists in the payload store: slices of them, and the projected parts of their items."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from dagwright.core.expressions.paths import get_value, steps_for_each
from dagwright.core.expressions.references import Item
from dagwright.core.expressions.stored_values import (
    Path,
    ProjectedPart,
    Projection,
    StoredValue,
    stored_from_json,
    stored_to_json,
)

if TYPE_CHECKING:
    from dagwright.core.model.compiled import CompiledNode

MAX_KEY_BYTES = 200
"""Longest key of an item in UTF-8, the same as for a node id."""


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


def parts_of_key(node: "CompiledNode") -> list[Projection]:
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
