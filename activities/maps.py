"""The activities of large maps: items out of a list in the payload store, and the results of all chunks in one list.

Both only read, or write what lies under the hash of its content, so Temporal may repeat them. This module must not
import workflows.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.errors import posture_of
from activities.heartbeats import kept_alive
from activities.values import Loaded, Values
from dagwright.contracts.limits import INLINE_VALUE_BYTES, JOINED_LIMIT_BYTES
from dagwright.contracts.wire import ACTIVITY_JOIN_ITEMS, ACTIVITY_LOAD_ITEMS, METADATA_STORED
from dagwright.plan.items import stored_list_from_json
from dagwright.plan.stored import StoredValue, stored_to_json, unfilled_places
from dagwright.plan.tools import Effects
from dagwright.plan.unfilled import unfilled_from_json, unfilled_to_json
from dagwright.tools.errors import ResultNotKept, ValueLost, ValueNotLoaded

_INLINE_ITEMS_BYTES = 256 * 1024
"""JSON of all items of a chunk that stand in its run; where they have more, the large ones stay in the store."""


def map_activities(values: Values) -> list[Callable[..., Any]]:
    """Returns the activities `load_items` and `join_items`."""

    @activity.defn(name=ACTIVITY_LOAD_ITEMS)
    async def load_items(message: dict[str, Any]) -> dict[str, Any]:
        """Returns a stretch `{"list", "first", "count"}` of a stored list, with what is large by reference."""
        stretch = stored_list_from_json(message)
        whole = stretch.value
        try:
            with kept_alive():
                (loaded,) = (await values.load([whole.ref])).values()
                items = await asyncio.to_thread(_stretch_of, loaded, whole, stretch.first, len(stretch))
                return unfilled_to_json([await _small(values, item, len(items)) for item in items])
        except (ValueLost, ValueNotLoaded, ResultNotKept) as error:
            raise _failure(error) from None

    @activity.defn(name=ACTIVITY_JOIN_ITEMS)
    async def join_items(message: dict[str, Any]) -> RawValue:
        """Returns the lists of `{"lists", "name"}` as one, by reference if it is large."""
        try:
            with kept_alive():
                joined = await _joined(values, message["lists"])
                encoded = await asyncio.to_thread(pydantic_core.to_json, joined)
                if len(encoded) <= INLINE_VALUE_BYTES:
                    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=encoded))
                name = str(message["name"])
                kept = await values.keep(joined, encoded, wanted=[((), "whole")], name=name)
        except (ValueLost, ValueNotLoaded, ResultNotKept) as error:
            raise _failure(error) from None
        data = pydantic_core.to_json(stored_to_json(kept))
        return RawValue(Payload(metadata={"encoding": b"json/plain", METADATA_STORED: b"1"}, data=data))

    return [load_items, join_items]


def _stretch_of(loaded: Loaded, whole: StoredValue, first: int, count: int) -> list[Any]:
    return [loaded.take([*whole.paths, (index,)], whole.name) for index in range(first, first + count)]


async def _small(values: Values, item: Any, count: int) -> Any:
    """Returns an item, or what stands for it if it is too large for its share."""
    encoded = pydantic_core.to_json(item)
    if len(encoded) <= max(_INLINE_ITEMS_BYTES // count, 100):
        return item
    return await values.keep(item, encoded, wanted=(), name="item")


async def _joined(values: Values, lists: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns all results in order, with what lies in the store put in.

    Raises:
        ApplicationError: they are too large in sum.
    """
    parts = [part for each in lists for part in await _parts(values, each)]
    stretches = [await asyncio.to_thread(_results_of, part) for part in parts]
    if sum(size for _, size in stretches) > JOINED_LIMIT_BYTES:
        told = f"the results of all items have over {JOINED_LIMIT_BYTES:,} bytes in sum, more than one list can have"
        advice = "let the tool keep what is large, and return where it is"
        raise ApplicationError(f"{told}; {advice}", type="too_large", non_retryable=True)
    for results, _ in stretches:
        await _fill(values, results)
    return [result for results, _ in stretches for result in results]


async def _parts(values: Values, each: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "pieces" not in each:
        return [each]
    loaded = await values.load(each["pieces"])
    return [pydantic_core.from_json(loaded[ref].content) for ref in each["pieces"]]


def _results_of(part: Mapping[str, Any]) -> tuple[list[Any], int]:
    """Returns a stretch of results with holes, and the bytes of its JSON, what is in the holes with it."""
    results = unfilled_from_json(part["value"], part.get("stored"))
    shapes = [stored.shape for _, stored in unfilled_places(results) if isinstance(stored, StoredValue)]
    size = len(pydantic_core.to_json(part["value"])) + sum(shape.size_bytes for shape in shapes if shape is not None)
    return results, size


async def _fill(values: Values, results: list[Any]) -> None:
    """Puts into a stretch of results what lies in the store."""
    for path, stored in list(unfilled_places(results)):
        if isinstance(stored, StoredValue):
            loaded = await values.load([stored.ref])
            _put(results, path, loaded[stored.ref].take(stored.paths, stored.name))


def _put(value: Any, path: Sequence[str | int], found: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = found


def _failure(error: ValueLost | ValueNotLoaded | ResultNotKept) -> ApplicationError:
    posture = posture_of(error, Effects.READ)
    return ApplicationError(str(error), type=posture.code, non_retryable=posture.is_final)
