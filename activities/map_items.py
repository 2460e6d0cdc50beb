"""Activities for large maps: load items of a stored list, and join the results of all map batches.

Both activities only read, or write content under the content's hash, so Temporal may repeat them. This module must not
import dagwright.workflows.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.errors import retry_decision
from dagwright.activities.store_retry import retry_store_request
from dagwright.activities.values import LargeValues, LoadedValue
from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES, MAX_JOINED_RESULTS_BYTES
from dagwright.core.boundary.wire import ACTIVITY_JOIN_ITEMS, ACTIVITY_LOAD_ITEMS, METADATA_STORED
from dagwright.core.expressions.stored_values import Path, Projection, StoredValue, find_value_refs, stored_to_json
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import projections_from_json
from dagwright.core.model.tools import Effects
from dagwright.core.scheduler.map_items import MAX_KEY_BYTES, stored_list_from_json
from dagwright.tools.errors import ArgumentNotLoaded, ResultNotStored, ValueLost

_INLINE_ITEMS_BYTES = 256 * 1024
"""JSON size limit of all items that a map batch has inline; an item that exceeds its share stays in the store."""


def map_activities(values: LargeValues) -> list[Callable[..., Any]]:
    """Return the activities `load_items` and `join_items`."""

    @activity.defn(name=ACTIVITY_LOAD_ITEMS)
    async def load_items(message: dict[str, Any]) -> dict[str, Any]:
        """Return a slice of a stored list, with large items by reference.

        Args:
            message: `{"list", "first", "count", "projections"}`: the slice, and the parts to project from large items.
        """
        list_slice = stored_list_from_json(message)
        whole_list, projections = list_slice.value, projections_from_json(message.get("projections", ()))

        async def load_stored_items() -> dict[str, Any]:
            (loaded,) = (await values.load([whole_list.ref])).values()
            items = await asyncio.to_thread(_items_of, loaded, whole_list, list_slice.first, len(list_slice))
            return value_to_json(
                [await _inline_or_reference(values, item, projections, count=len(items)) for item in items]
            )

        try:
            return await retry_store_request(load_stored_items)
        except (ValueLost, ArgumentNotLoaded, ResultNotStored) as error:
            raise _failure(error) from None

    @activity.defn(name=ACTIVITY_JOIN_ITEMS)
    async def join_items(message: dict[str, Any]) -> RawValue:
        """Return the lists of `{"lists", "name"}` as one list, by reference if it is large."""

        async def join_stored_items() -> RawValue:
            joined_list = await _join(values, message["lists"])
            encoded = await asyncio.to_thread(pydantic_core.to_json, joined_list)
            if len(encoded) <= MAX_INLINE_VALUE_BYTES:
                return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=encoded))
            stored_value = await values.store_result(
                joined_list, encoded, projections=[((), "whole")], name=str(message["name"])
            )
            data = pydantic_core.to_json(stored_to_json(stored_value))
            return RawValue(Payload(metadata={"encoding": b"json/plain", METADATA_STORED: b"1"}, data=data))

        try:
            return await retry_store_request(join_stored_items)
        except (ValueLost, ArgumentNotLoaded, ResultNotStored) as error:
            raise _failure(error) from None

    return [load_items, join_items]


def _items_of(loaded: LoadedValue, whole_list: StoredValue, first: int, count: int) -> list[Any]:
    return [loaded.copy_part([*whole_list.paths, (index,)], whole_list.name) for index in range(first, first + count)]


async def _inline_or_reference(values: LargeValues, item: Any, projections: Sequence[Projection], *, count: int) -> Any:
    """Return an item, or a reference to it if it exceeds its share of the inline limit.

    Args:
        projections: parts that a reference to the item contains, if they are small enough for the `key` of a `for_each`
            node.
        count: number of items that share the inline limit.
    """
    encoded = pydantic_core.to_json(item)
    if len(encoded) <= max(_INLINE_ITEMS_BYTES // count, 100):
        return item
    stored_value = await values.store_result(item, encoded, projections=projections, name="item")
    parts = {
        path: part
        for path, part in stored_value.parts.items()
        if part.state == "small" and len(pydantic_core.to_json(part.value)) <= 2 * MAX_KEY_BYTES
    }
    return StoredValue(
        stored_value.ref, name=stored_value.name, paths=stored_value.paths, shape=stored_value.shape, parts=parts
    )


async def _join(values: LargeValues, lists: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return all results in order, with stored values loaded.

    Raises:
        ApplicationError: the results are too large in total.
    """
    # Each part is decoded in a thread: processing 100 MB on the event loop would delay heartbeats.
    parts = [
        await asyncio.to_thread(_decode_part, part)
        for result_list in lists
        for part in await _load_parts(values, result_list)
    ]
    if sum(result_part.size_bytes for result_part in parts) > MAX_JOINED_RESULTS_BYTES:
        message = f"the results of all items have over {MAX_JOINED_RESULTS_BYTES:,} bytes in total, the limit of a list"
        advice = "let the tool save large results itself, and return where they are"
        raise ApplicationError(f"{message}; {advice}", type="too_large", non_retryable=True)
    for result_part in parts:
        await _hydrate(values, result_part)
    return [result for result_part in parts for result in result_part.results]


@dataclass(frozen=True, slots=True)
class _ResultPart:
    """A part of the list of results.

    Args:
        results: incomplete until the stored values are filled in.
        bindings: (path in `results`, stored value that must be filled in there).
        size_bytes: JSON size, including the stored values.
    """

    results: list[Any]
    bindings: Sequence[tuple[Path, StoredValue]]
    size_bytes: int


async def _load_parts(values: LargeValues, result_list: Mapping[str, Any]) -> list[Mapping[str, Any] | bytes]:
    """Return the parts of a list of results, decoded or as JSON.

    Args:
        result_list: the only part of the list, or an object whose field `pieces` has the references of stored parts.
    """
    if "pieces" not in result_list:
        return [result_list]
    loaded = await values.load(result_list["pieces"])
    return [loaded[ref].content for ref in result_list["pieces"]]


def _decode_part(encoded: Mapping[str, Any] | bytes) -> _ResultPart:
    part = pydantic_core.from_json(encoded) if isinstance(encoded, bytes) else encoded
    size = len(encoded) if isinstance(encoded, bytes) else len(pydantic_core.to_json(encoded["value"]))
    if not part.get("stored"):
        # Most parts have no stored values; walking all values would take longer than everything else.
        return _ResultPart(part["value"], (), size)
    results = value_from_json(part["value"], part["stored"])
    bindings = [
        (path, stored_value) for path, stored_value in find_value_refs(results) if isinstance(stored_value, StoredValue)
    ]
    shapes = [stored_value.shape for _, stored_value in bindings]
    return _ResultPart(results, bindings, size + sum(shape.size_bytes for shape in shapes if shape is not None))


async def _hydrate(values: LargeValues, result_part: _ResultPart) -> None:
    """Fill in the stored values of a part of the results."""
    for path, stored_value in result_part.bindings:
        loaded = await values.load([stored_value.ref])
        part = await asyncio.to_thread(loaded[stored_value.ref].copy_part, stored_value.paths, stored_value.name)
        _set_at(result_part.results, path, part)


def _set_at(value: Any, path: Sequence[str | int], part: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = part


def _failure(error: ValueLost | ArgumentNotLoaded | ResultNotStored) -> ApplicationError:
    decision = retry_decision(error, Effects.READ)
    return ApplicationError(str(error), type=decision.code, non_retryable=decision.is_final)
