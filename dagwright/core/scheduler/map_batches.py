"""Large maps: the items of a `for_each` over more than 500 are cut into chunks, each done by a run of its own.

The scheduler treats a chunk as it does an item: it is a task, it ends, and the node ends with the last one. What a
chunk hands back is the end of its items as counts, and their results; so 100,000 items cost the run above as much
as some hundred. A last task joins the results where they are too large to stand in the run.

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
"""Items that a run takes as tasks of its own; of more, each chunk is a run, with a history of some 2,000 events."""
CHUNKS_AT_ONCE = 4
"""Chunks that run at once; between them they share what may run at once of all items."""
JOINED_HERE_BYTES = 8 * 1024
"""JSON of all results that are joined without the payload store."""


@dataclass(frozen=True, slots=True)
class Width:
    """How wide a large map runs.

    Args:
        at_once: chunks at once.
        each: items of one chunk at once.
    """

    at_once: int
    each: int


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """How a chunk ended.

    Args:
        counts: state -> how many of its items ended so.
        values: the results in item order, unless they are in `pieces`.
        pieces: as in `Chunk`.
        error, failed_key: of its first item that failed.
    """

    status: NodeStatus
    counts: Mapping[str, int]
    values: list[Any] | None = None
    pieces: Sequence[tuple[str, int]] = ()
    error: NodeError | None = None
    failed_key: str | None = None


def width_of(node: CompiledNode, tool: ToolDeclaration | None, *, count: int, max_in_flight: int) -> Width:
    """Returns how wide the chunks of so many items run, within the limits of the node, of its tool and of the run."""
    limits = [max_in_flight, node.max_parallel, tool.max_parallel if tool else None]
    most = min(limit for limit in limits if limit is not None)
    at_once = min(CHUNKS_AT_ONCE, most) if count > CHUNK_ITEMS else 1
    return Width(at_once, most // at_once)


def chunks_of(items: Sequence[Any], width: Width) -> list[Chunk]:
    """Returns the chunks of a large map, about equally large, so that the last ones do not run alone."""
    least = -(-len(items) // CHUNK_ITEMS)
    number = -(-least // width.at_once) * width.at_once
    size, larger = divmod(len(items), number)
    chunks: list[Chunk] = []
    first = 0
    for place in range(number):
        count = size + (place < larger)
        chunks.append(Chunk(first, count, items[first : first + count]))
        first += count
    return chunks


def is_chunk(item: ItemRecord) -> bool:
    """Tells whether an item record stands for a chunk that a run of its own runs."""
    return item.chunk is not None and item.chunk.count > 0


def records_of(chunks: Sequence[Chunk]) -> list[ItemRecord]:
    """Returns the records of the tasks of a large map: its chunks, and the one that joins their results."""
    count = sum(chunk.count for chunk in chunks)
    return [ItemRecord(chunk.key, None, chunk=chunk) for chunk in (*chunks, Chunk(count, 0))]


def first_tasks(tasks: Sequence[ItemRecord]) -> Sequence[ItemRecord]:
    """Returns the tasks of a node that start before any of them has ended: all but the joining of results."""
    return tasks[:-1] if tasks and tasks[-1].chunk is not None else tasks


def take_end(item: ItemRecord, end: ChunkEnd) -> None:
    """Notes in the record of a chunk how it ended, but for its state."""
    assert item.chunk is not None
    item.chunk.items, item.chunk.counts = (), dict(end.counts)
    item.chunk.pieces, item.chunk.failed_key = end.pieces, end.failed_key
    item.record.result = end.values


def shown_items(record: Record) -> Sequence[ItemRecord]:
    """Returns the items of a node that are told one by one: those of a large map are counted instead."""
    return () if is_cut(record) else record.items


def items_done(record: Record) -> tuple[int, int]:
    """Returns how many items of a node came to an end of their own, and how many there are."""
    if is_cut(record):
        ended = sum(count for status, count in counts_of_items(record).items() if _is_done(NodeStatus(status)))
    else:
        ended = sum(_is_done(item.record.status) for item in record.items)
    return ended, count_of(record)


def _is_done(status: NodeStatus) -> bool:
    return status.is_final and status is not NodeStatus.CANCELLED


def count_of(record: Record) -> int:
    """Returns how many items a node has."""
    return sum(1 if item.chunk is None else item.chunk.count for item in record.items)


def counts_of_items(record: Record) -> dict[str, int]:
    """Returns state -> how many items of a large map are in it; what has not ended is as its chunk is."""
    counts: Counter[str] = Counter()
    for item in record.items:
        if item.chunk is not None:
            counts.update(item.chunk.counts or {item.record.status.value: item.chunk.count})
    return {status.value: counts[status] for status in NodeStatus if counts[status]}


def is_cut(record: Record) -> bool:
    """Tells whether the items of a node are cut into chunks."""
    return bool(record.items) and record.items[-1].chunk is not None


def end_of_map(node: CompiledNode, record: Record, *, can_join: bool) -> tuple[NodeStatus, NodeError | None] | None:
    """Returns how a node ends whose chunks have all ended, and its error, and gives it its result.

    Returns:
        `None` if the results have to be joined first.

    Args:
        can_join: whether the task that does it may still start.
    """
    join = record.items[-1].record
    if join.status is not NodeStatus.PENDING:
        record.result = join.result
        _forget_results(record)
        return join.status, join.error
    status, error = _end_of_chunks(node, record)
    if status is NodeStatus.COMPLETED:
        record.result = _joined_here(record)
        if record.result is None:
            return None if can_join else (NodeStatus.CANCELLED, None)
    _forget_results(record)
    return status, error


def _forget_results(record: Record) -> None:
    for item in record.items:
        item.record.result = None
        if item.chunk is not None:
            item.chunk.items, item.chunk.pieces = (), ()


def _end_of_chunks(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Returns how a node ends whose chunks have all ended, and its error, in the words of a node of few items."""
    chunks = [item for item in record.items if is_chunk(item)]
    if any(item.record.status is NodeStatus.CANCELLED for item in chunks):
        return NodeStatus.CANCELLED, None
    counts = counts_of_items(record)
    first = next((item for item in chunks if item.record.status is NodeStatus.FAILED), None)
    if first is None:
        return NodeStatus.COMPLETED, None
    assert first.chunk is not None
    error = first.record.error
    place = f"{node.id}[{first.chunk.failed_key or first.key}]"
    told = f"{counts.get(NodeStatus.FAILED, 0)} of {count_of(record)} items failed; the first: {place}: "
    return NodeStatus.FAILED, NodeError(error.code if error else "failed", told + (error.message if error else ""))


def _joined_here(record: Record) -> list[Any] | None:
    """Returns the results of all items in order, or `None` where the payload store is needed for them."""
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
        # Some of it is in the store already.
        return None
