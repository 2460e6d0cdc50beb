"""What the run of a chunk of a large map is given beside its plan, and how it travels in the input of that run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.items import StoredList, stored_list_from_json, stored_list_to_json
from dagwright.core.model.states import NodeStatus, Record
from dagwright.features.regions.batches import end_from_json, end_to_json


@dataclass(frozen=True, slots=True)
class ChunkInput:
    """What the run of a chunk is given beside its plan.

    Args:
        given: (node id, its end) of the nodes that its own node reads.
        items: the items, if the run above had them; else
        source: where they lie in the payload store.
    """

    given: Sequence[tuple[str, Record]]
    items: Sequence[Any] = ()
    source: StoredList | None = None


def chunk_input_to_json(chunk: ChunkInput) -> dict[str, Any]:
    """Returns what goes beside the plan of a chunk's run as it travels."""
    encoded: dict[str, Any] = {"given": [[node_id, *end_to_json(record)] for node_id, record in chunk.given]}
    if chunk.source is not None:
        return {**encoded, "source": stored_list_to_json(chunk.source)}
    return {**encoded, "items": value_to_json([*chunk.items])}


def chunk_input_from_json(encoded: Any) -> ChunkInput:
    """Returns what `chunk_input_to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        given = [(str(node_id), end_from_json(end)) for node_id, *end in encoded["given"]]
        if not all(record.status.is_final for _, record in given):
            raise ValueError("a node that the items of a chunk read has not ended")
        if "source" in encoded:
            return ChunkInput(given, source=stored_list_from_json(encoded["source"]))
        items = value_from_json(encoded["items"]["value"], encoded["items"].get("stored"))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no chunk of a map: {error!r}") from None
    if not isinstance(items, list):
        raise ValueError("the items of a chunk must be a list")
    return ChunkInput(given, items=items)


def handed_on(chunk: ChunkInput) -> ChunkInput:
    """Returns what goes along with a chunk's run into a new execution: the state that goes along holds the rest."""
    return ChunkInput([(node_id, Record(NodeStatus.COMPLETED)) for node_id, _ in chunk.given])
