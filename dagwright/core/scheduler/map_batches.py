"""Map batches: a `for_each` over more than 500 items is split into batches, each executed by a child run.

The scheduler treats a batch (`Chunk`) like an item: it is a task, and the node ends with its last task. A child run
returns the number of its items per status and their results, so 100,000 items cost the parent run as much as some
hundred tasks. If the results are too large for the run, one more task joins them in the payload store.

It must not import the scheduler.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import Chunk, ItemRecord, NodeStatus, Record
from dagwright.core.model.tools import ToolDeclaration

CHUNK_ITEMS = 500
"""Largest map without batches, and largest batch; a child run of 500 items has a history of about 2,000 events."""
CHUNKS_AT_ONCE = 4
"""Batches of a node that run at once; they share the limit of concurrent items."""
JOINED_HERE_BYTES = 8 * 1024
"""Largest JSON size of all results of a map that are joined without the payload store."""


@dataclass(frozen=True, slots=True)
class Width:
    """Concurrency of a large map.

    Args:
        at_once: batches that run at once.
        each: items of one batch that run at once.
    """

    at_once: int
    each: int


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """Result of a batch.

    Args:
        counts: status -> number of items that ended with it.
        values: results in item order, unless they are in `pieces`.
        pieces: as in `Chunk`.
        error, failed_key: error and key of the first item that failed.
    """

    status: NodeStatus
    counts: Mapping[str, int]
    values: list[Any] | None = None
    pieces: Sequence[tuple[str, int]] = ()
    error: NodeError | None = None
    failed_key: str | None = None


def width_of(node: CompiledNode, tool: ToolDeclaration | None, *, count: int, max_in_flight: int) -> Width:
    """Return the concurrency of a map over `count` items, within the limits of the node, its tool and the run."""
    limits = [max_in_flight, node.max_parallel, tool.max_parallel if tool else None]
    most = min(limit for limit in limits if limit is not None)
    at_once = min(CHUNKS_AT_ONCE, most) if count > CHUNK_ITEMS else 1
    return Width(at_once, most // at_once)


def chunks_of(items: Sequence[Any], width: Width) -> list[Chunk]:
    """Split the items of a large map into batches of about equal size, so that the last ones do not run alone."""
    least = -(-len(items) // CHUNK_ITEMS)
    number = -(-least // width.at_once) * width.at_once
    size, larger = divmod(len(items), number)
    chunks: list[Chunk] = []
    first = 0
    for index in range(number):
        count = size + (index < larger)
        chunks.append(Chunk(first, count, items[first : first + count]))
        first += count
    return chunks


def is_chunk(item: ItemRecord) -> bool:
    """Return whether an item record is a batch that a child run executes."""
    return item.chunk is not None and item.chunk.count > 0


def records_of(chunks: Sequence[Chunk]) -> list[ItemRecord]:
    """Return the records of the tasks of a large map: its batches, then the task that joins their results."""
    count = sum(chunk.count for chunk in chunks)
    return [ItemRecord(chunk.key, None, chunk=chunk) for chunk in (*chunks, Chunk(count, 0))]


def first_tasks(tasks: Sequence[ItemRecord]) -> Sequence[ItemRecord]:
    """Return the tasks of a node that can start at once: all except the task that joins results."""
    return tasks[:-1] if tasks and tasks[-1].chunk is not None else tasks


def record_end(item: ItemRecord, end: ChunkEnd) -> None:
    """Store the result of a batch in its record, except for its status."""
    assert item.chunk is not None
    item.chunk.items, item.chunk.counts = (), dict(end.counts)
    item.chunk.pieces, item.chunk.failed_key = end.pieces, end.failed_key
    item.record.result = end.values


def shown_items(record: Record) -> Sequence[ItemRecord]:
    """Return the items of a node that are reported one by one; the items of a large map are only counted."""
    return () if is_cut(record) else record.items


def items_done(record: Record) -> tuple[int, int]:
    """Return how many items of a node have ended without being cancelled, and how many there are."""
    if is_cut(record):
        ended = sum(count for status, count in counts_of_items(record).items() if _is_done(NodeStatus(status)))
    else:
        ended = sum(_is_done(item.record.status) for item in record.items)
    return ended, count_of(record)


def _is_done(status: NodeStatus) -> bool:
    return status.is_final and status is not NodeStatus.CANCELLED


def count_of(record: Record) -> int:
    """Return the number of items of a node."""
    return sum(1 if item.chunk is None else item.chunk.count for item in record.items)


def counts_of_items(record: Record) -> dict[str, int]:
    """Return status -> number of items of a large map; open items count with the status of their batch."""
    counts: Counter[str] = Counter()
    for item in record.items:
        if item.chunk is not None:
            counts.update(item.chunk.counts or {item.record.status.value: item.chunk.count})
    return {status.value: counts[status] for status in NodeStatus if counts[status]}


def is_cut(record: Record) -> bool:
    """Return whether the items of a node are split into batches."""
    return bool(record.items) and record.items[-1].chunk is not None


def end_of_map(node: CompiledNode, record: Record, *, can_join: bool) -> tuple[NodeStatus, NodeError | None] | None:
    """Set the result of a node whose batches have all ended.

    Args:
        can_join: whether the task that joins results may still start.

    Returns:
        Status and error of the node; `None` if the results have to be joined first.
    """
    join = record.items[-1].record
    if join.status is not NodeStatus.PENDING:
        record.result = join.result
        _clear_results(record)
        return join.status, join.error
    status, error = _end_of_chunks(node, record)
    if status is NodeStatus.COMPLETED:
        record.result = _joined_here(record)
        if record.result is None:
            return None if can_join else (NodeStatus.CANCELLED, None)
    _clear_results(record)
    return status, error


def _clear_results(record: Record) -> None:
    for item in record.items:
        item.record.result = None
        if item.chunk is not None:
            item.chunk.items, item.chunk.pieces = (), ()


def _end_of_chunks(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Return status and error of a node whose batches have all ended; the message is that of a map without batches."""
    chunks = [item for item in record.items if is_chunk(item)]
    if any(item.record.status is NodeStatus.CANCELLED for item in chunks):
        return NodeStatus.CANCELLED, None
    counts = counts_of_items(record)
    first = next((item for item in chunks if item.record.status is NodeStatus.FAILED), None)
    if first is None:
        return NodeStatus.COMPLETED, None
    assert first.chunk is not None
    error = first.record.error
    item_id = f"{node.id}[{first.chunk.failed_key or first.key}]"
    summary = f"{counts.get(NodeStatus.FAILED, 0)} of {count_of(record)} items failed; the first: {item_id}: "
    return NodeStatus.FAILED, NodeError(error.code if error else "failed", summary + (error.message if error else ""))


def _joined_here(record: Record) -> list[Any] | None:
    """Return the results of all items in order, or `None` if they have to be joined in the payload store."""
    values: list[Any] = []
    for item in record.items:
        if not is_chunk(item):
            continue
        if item.chunk is None or item.chunk.pieces:
            return None
        values += item.record.result or ()
    try:
        return values if len(pydantic_core.to_json(values)) <= JOINED_HERE_BYTES else None
    except pydantic_core.PydanticSerializationError:
        # Some results are already in the store.
        return None
