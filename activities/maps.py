"""The activities of large maps: items out of a list in the payload store, and the results of all chunks in one list.

Both only read, or write what lies under the hash of its content, so Temporal may repeat them. This module must not
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

from dagwright.activities.errors import posture_of
from dagwright.activities.store_waits import with_store
from dagwright.activities.values import Loaded, Values
from dagwright.core.boundary.limits import INLINE_VALUE_BYTES, JOINED_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_JOIN_ITEMS, ACTIVITY_LOAD_ITEMS, METADATA_STORED
from dagwright.core.expressions.stored_values import Path, Projection, StoredValue, find_value_refs, stored_to_json
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import projections_from_json
from dagwright.core.model.items import MAX_KEY_BYTES, stored_list_from_json
from dagwright.core.model.tools import Effects
from dagwright.tools.errors import ResultNotKept, ValueLost, ValueNotLoaded

_INLINE_ITEMS_BYTES = 256 * 1024
"""JSON of all items of a chunk that stand in its run; where they have more, the large ones stay in the store."""


def map_activities(values: Values) -> list[Callable[..., Any]]:
    """Returns the activities `load_items` and `join_items`."""

    @activity.defn(name=ACTIVITY_LOAD_ITEMS)
    async def load_items(message: dict[str, Any]) -> dict[str, Any]:
        """Returns a stretch `{"list", "first", "count", "wanted"}` of a stored list, what is large by reference."""
        stretch = stored_list_from_json(message)
        whole, wanted = stretch.value, projections_from_json(message.get("wanted", ()))

        async def loaded_items() -> dict[str, Any]:
            (loaded,) = (await values.load([whole.ref])).values()
            items = await asyncio.to_thread(_stretch_of, loaded, whole, stretch.first, len(stretch))
            return value_to_json([await _small(values, item, wanted, count=len(items)) for item in items])

        try:
            return await with_store(loaded_items)
        except (ValueLost, ValueNotLoaded, ResultNotKept) as error:
            raise _failure(error) from None

    @activity.defn(name=ACTIVITY_JOIN_ITEMS)
    async def join_items(message: dict[str, Any]) -> RawValue:
        """Returns the lists of `{"lists", "name"}` as one, by reference if it is large."""

        async def joined_items() -> RawValue:
            joined = await _joined(values, message["lists"])
            encoded = await asyncio.to_thread(pydantic_core.to_json, joined)
            if len(encoded) <= INLINE_VALUE_BYTES:
                return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=encoded))
            kept = await values.keep(joined, encoded, wanted=[((), "whole")], name=str(message["name"]))
            data = pydantic_core.to_json(stored_to_json(kept))
            return RawValue(Payload(metadata={"encoding": b"json/plain", METADATA_STORED: b"1"}, data=data))

        try:
            return await with_store(joined_items)
        except (ValueLost, ValueNotLoaded, ResultNotKept) as error:
            raise _failure(error) from None

    return [load_items, join_items]


def _stretch_of(loaded: Loaded, whole: StoredValue, first: int, count: int) -> list[Any]:
    return [loaded.take([*whole.paths, (index,)], whole.name) for index in range(first, first + count)]


async def _small(values: Values, item: Any, wanted: Sequence[Projection], *, count: int) -> Any:
    """Returns an item, or what stands for it if it is too large for its share.

    Args:
        wanted: parts that are told in any case, as far as they can be part of a key.
        count: of all items.
    """
    encoded = pydantic_core.to_json(item)
    if len(encoded) <= max(_INLINE_ITEMS_BYTES // count, 100):
        return item
    kept = await values.keep(item, encoded, wanted=wanted, name="item")
    parts = {
        path: part
        for path, part in kept.parts.items()
        if part.state == "small" and len(pydantic_core.to_json(part.value)) <= 2 * MAX_KEY_BYTES
    }
    return StoredValue(kept.ref, name=kept.name, paths=kept.paths, shape=kept.shape, parts=parts)


async def _joined(values: Values, lists: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns all results in order, with what lies in the store put in.

    Raises:
        ApplicationError: they are too large in sum.
    """
    # Each in a thread: what goes through a hundred megabytes on the event loop keeps it from sending heartbeats.
    stretches = [await asyncio.to_thread(_results_of, part) for each in lists for part in await _parts(values, each)]
    if sum(stretch.size_bytes for stretch in stretches) > JOINED_LIMIT_BYTES:
        told = f"the results of all items have over {JOINED_LIMIT_BYTES:,} bytes in sum, more than one list can have"
        advice = "let the tool keep what is large, and return where it is"
        raise ApplicationError(f"{told}; {advice}", type="too_large", non_retryable=True)
    for stretch in stretches:
        await _fill(values, stretch)
    return [result for stretch in stretches for result in stretch.results]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of results.

    Args:
        results: with bindings for what lies in the store.
        bindings: places in the results, and what belongs there.
        size_bytes: of its JSON, what is in the bindings with it.
    """

    results: list[Any]
    bindings: Sequence[tuple[Path, StoredValue]]
    size_bytes: int


async def _parts(values: Values, each: Mapping[str, Any]) -> list[Mapping[str, Any] | bytes]:
    """Returns the parts of a list of results, as they are or as JSON."""
    if "pieces" not in each:
        return [each]
    loaded = await values.load(each["pieces"])
    return [loaded[ref].content for ref in each["pieces"]]


def _results_of(told: Mapping[str, Any] | bytes) -> _Stretch:
    part = pydantic_core.from_json(told) if isinstance(told, bytes) else told
    size = len(told) if isinstance(told, bytes) else len(pydantic_core.to_json(told["value"]))
    if not part.get("stored"):
        # By far the most, and to go through all of their values would take longer than all the rest.
        return _Stretch(part["value"], (), size)
    results = value_from_json(part["value"], part["stored"])
    bindings = [(path, stored) for path, stored in find_value_refs(results) if isinstance(stored, StoredValue)]
    shapes = [stored.shape for _, stored in bindings]
    return _Stretch(results, bindings, size + sum(shape.size_bytes for shape in shapes if shape is not None))


async def _fill(values: Values, stretch: _Stretch) -> None:
    """Puts into a stretch of results what lies in the store."""
    for path, stored in stretch.bindings:
        loaded = await values.load([stored.ref])
        part = await asyncio.to_thread(loaded[stored.ref].take, stored.paths, stored.name)
        _put(stretch.results, path, part)


def _put(value: Any, path: Sequence[str | int], found: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = found


def _failure(error: ValueLost | ValueNotLoaded | ResultNotKept) -> ApplicationError:
    posture = posture_of(error, Effects.READ)
    return ApplicationError(str(error), type=posture.code, non_retryable=posture.is_final)
