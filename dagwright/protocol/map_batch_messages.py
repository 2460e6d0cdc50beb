"""Input of the run of a map batch, in addition to its plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.states import MapBatch, NodeError, NodeStatus, Record
from dagwright.core.scheduler.map_items import MapBatchEnd, StoredList, stored_list_from_json, stored_list_to_json
from dagwright.features.regions.batches import end_from_json, end_to_json


@dataclass(frozen=True, slots=True)
class MapBatchInput:
    """Input of the run of a map batch, in addition to its plan.

    Args:
        node_ends: (node id, its end) of the nodes that the map node reads.
        items: the items, if the parent run has them; otherwise empty.
        source: reference of the items in the payload store, if the parent run does not have them.
    """

    node_ends: Sequence[tuple[str, Record]]
    items: Sequence[Any] = ()
    source: StoredList | None = None


def map_batch_input_to_json(batch: MapBatchInput) -> dict[str, Any]:
    """Encode the input of a map batch."""
    encoded: dict[str, Any] = {"node_ends": [[node_id, *end_to_json(record)] for node_id, record in batch.node_ends]}
    if batch.source is not None:
        return {**encoded, "source": stored_list_to_json(batch.source)}
    return {**encoded, "items": value_to_json([*batch.items])}


def map_batch_input_from_json(encoded: Any) -> MapBatchInput:
    """Decode the result of `map_batch_input_to_json`.

    Raises:
        ValueError: `encoded` is invalid.
    """
    try:
        ends = [(str(node_id), end_from_json(end)) for node_id, *end in encoded["node_ends"]]
        if not all(record.status.is_final for _, record in ends):
            raise ValueError("the items of a map batch read a node that has not ended")
        if "source" in encoded:
            return MapBatchInput(ends, source=stored_list_from_json(encoded["source"]))
        items = value_from_json(encoded["items"]["value"], encoded["items"].get("stored"))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a map batch: {error!r}") from None
    if not isinstance(items, list):
        raise ValueError("the items of a map batch must be a list")
    return MapBatchInput(ends, items=items)


def next_map_batch_input(batch: MapBatchInput) -> MapBatchInput:
    """Return the input for the next execution of the run of a map batch.

    The input has neither the items nor the results of the nodes, because the snapshot contains both.
    """
    return MapBatchInput([(node_id, Record(NodeStatus.COMPLETED)) for node_id, _ in batch.node_ends])


_END_STATUSES = (NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.CANCELLED)


def map_batch_end_from_json(encoded: Any, map_batch: MapBatch) -> MapBatchEnd:
    """Decode the end of a batch.

    Raises:
        ValueError: `encoded` is not a valid end of that batch.
    """
    try:
        status = NodeStatus(encoded["status"])
        counts = {NodeStatus(name).value: int(count) for name, count in encoded["counts"].items()}
        error = NodeError(**encoded["error"]) if encoded.get("error") else None
        pieces = [(str(ref), int(count)) for ref, count in encoded.get("pieces", ())]
        results = encoded.get("results")
        values = value_from_json(results["value"], results.get("stored")) if results is not None else None
    except (KeyError, TypeError, AttributeError, ValueError) as decoding_error:
        raise ValueError(f"not the end of a map batch: {decoding_error!r}") from None
    result_count = len(values) if isinstance(values, list) else sum(piece[1] for piece in pieces)
    if status is NodeStatus.COMPLETED and result_count != map_batch.count:
        raise ValueError(f"a map batch of {map_batch.count} items has {result_count} results")
    if status not in _END_STATUSES or sum(counts.values()) > map_batch.count:
        raise ValueError(f"invalid end of a map batch of {map_batch.count} items: {status.value} with {counts}")
    return MapBatchEnd(status, counts, values, pieces, error, encoded.get("failed_key"))
