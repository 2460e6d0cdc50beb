"""Items of a node with `for_each` (a map): the list, the keys, their tasks, and batches of many items.

The items of a small `for_each` are tasks of the run itself. A `for_each` over more than 500 items is split into
batches, each executed by a child run. The scheduler treats a batch (`MapBatch`) like an item: it is a task, and the
node ends when all its tasks have ended. A child run returns the number of its items per status and their results, so
100,000 items cost the parent run as much as a few hundred tasks. If the results are too large for the run, one more
task joins them in the payload store.

This module must not import the scheduler.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import pydantic_core

from dagwright.core.expressions.compute_budget import TooLargeForRun
from dagwright.core.expressions.paths import describe_type, element_steps, get_value
from dagwright.core.expressions.references import (
    Scope,
    Template,
    as_text,
    resolve_bindings,
    resolve_template,
    scope_of_item,
)
from dagwright.core.expressions.stored_values import (
    Path,
    ProjectedPart,
    StoredValue,
    is_inline_value,
    stored_from_json,
    stored_to_json,
)
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import ItemRecord, MapBatch, NodeError, NodeStatus, Record, TaskRef
from dagwright.core.model.tools import ToolDeclaration

MAX_ITEMS = 250_000
"""Maximum number of items of one `for_each`: 500 batches, each of which takes a few hundred bytes in the run."""
MAX_KEY_BYTES = 200
"""Longest key of an item in UTF-8, the same as for a node id."""
_KEY_COST = 12
_REFERENCE_COST = 7
"""Cost of each key, and of each reference in a key, in units of the compute budget; each text part of a key costs 1."""
_KEY_IN_STORE = (
    "the key of item {index} needs a part of the item that is in the payload store, where the run itself cannot read "
    "it: for lists over 192 KiB, `key` may read at most 192 KiB in total, and only parts that every item has; omit "
    "`key`, or make a smaller list in a tool"
)


class StoredList(Sequence[Any]):
    """A slice of a list in the payload store; each item is a stored value.

    Args:
        value: the whole list.
        first: position of the first item of the slice.
        count: number of items in the slice.
    """

    def __init__(self, value: StoredValue, first: int, count: int) -> None:
        self.value = value
        self.first = first
        self._count = count
        self._projected_parts = _projections_of_items(value)

    def without_parts(self) -> "StoredList":
        """Return the same slice without the projected parts."""
        value = StoredValue(self.value.ref, name=self.value.name, paths=self.value.paths)
        return StoredList(value, self.first, self._count)

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
        item = get_value(self.value, (index,), name=self.value.name)
        if not self._projected_parts or not isinstance(item, StoredValue):
            return item
        parts = {path: ProjectedPart("small", values[index]) for path, values in self._projected_parts.items()}
        return StoredValue(item.ref, name=item.name, paths=item.paths, shape=item.shape, parts={**parts, **item.parts})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredList):
            return NotImplemented
        return (self.value, self.first, len(self)) == (other.value, other.first, len(other))

    __hash__ = None  # type: ignore[assignment]  # like every list


def _projections_of_items(value: StoredValue) -> dict[Path, Sequence[Any]]:
    """Return the projected parts of the items of a stored list: path inside of an item -> that part of all items.

    A part is omitted if some items lack it, or if it is not small in all items.
    """
    length = value.shape.length if value.shape is not None else None
    projections: dict[Path, Sequence[Any]] = {}
    for query, part in value.parts.items():
        steps = element_steps(query) if isinstance(query, str) else None
        if steps and isinstance(part.value, list) and len(part.value) == length and all(map(_is_small, part.value)):
            projections[steps] = part.value
    return projections


def _is_small(part: Any) -> bool:
    return not isinstance(part, dict | list) and not (isinstance(part, str) and len(part) > MAX_KEY_BYTES)


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
        items = _items_of_stored_list(items)
    if items is None:
        return None
    if not isinstance(items, list | StoredList):
        value_text = repr(as_text(items)[:60]) if is_inline_value(items) else describe_type(items)
        return NodeError("invalid_for_each", f"for_each needs a list, not {value_text}")
    if len(items) > MAX_ITEMS:
        return NodeError("too_large", f"for_each has {len(items)} items; at most {MAX_ITEMS} are allowed")
    return items


def _items_of_stored_list(value: StoredValue) -> Any:
    """Return the items of a stored list: the list itself if it was projected, else a stored value for each item."""
    part = value.root_part
    if part is None or part.shape is None:
        raise TooLargeForRun(f"for_each: a part of {value.name}", None)
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
    reference_count = sum(not isinstance(part, str) for part in node.key)
    scope.budget.spend((_KEY_COST + _REFERENCE_COST * reference_count + len(node.key)) * len(items))
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
        value = resolve_template((part,), scope=scope)
        if not is_inline_value(value):
            return None
        texts.append(as_text(value))
        size += len(texts[-1])
        if size > MAX_KEY_BYTES:
            # Stop early: a key may contain an item of a megabyte a hundred times.
            break
    return "".join(texts)


def outcome_of_items(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Return the status and the error of a node whose items have all ended."""
    if any(item.record.status is NodeStatus.CANCELLED for item in record.items):
        return NodeStatus.CANCELLED, None
    failed_items = [item for item in record.items if item.record.status is NodeStatus.FAILED]
    if not failed_items:
        return NodeStatus.COMPLETED, None
    error = failed_items[0].record.error
    summary = f"{len(failed_items)} of {len(record.items)} items failed; the first: {node.id}[{failed_items[0].key}]: "
    return NodeStatus.FAILED, NodeError(error.code if error else "failed", summary + (error.message if error else ""))


MAP_BATCH_ITEMS = 500
"""Maximum number of items of one batch. A map with more items is split into batches, unless its items may ask people. A
child run of 500 items has a history of about 2,000 events."""
MAX_CONCURRENT_MAP_BATCHES = 4
"""Maximum number of concurrent batches of a node. They share the node's limit of concurrent items."""
MAX_JOINED_INLINE_BYTES = 8 * 1024
"""Maximum JSON size of all results of a map together, if the run joins them itself, without the payload store."""


@dataclass(frozen=True, slots=True)
class MapConcurrency:
    """Concurrency of a large map.

    Args:
        max_batches: maximum number of concurrent batches.
        max_items: maximum number of concurrent items of one batch.
    """

    max_batches: int
    max_items: int


@dataclass(frozen=True, slots=True)
class MapBatchEnd:
    """Status, results and first failure of a batch that has ended.

    Args:
        counts: status -> number of items that ended with this status.
        values: results in item order, unless they are in `pieces`.
        pieces: as in `MapBatch`.
        error, failed_key: error and key of the first item that failed.
    """

    status: NodeStatus
    counts: Mapping[str, int]
    values: list[Any] | None = None
    pieces: Sequence[tuple[str, int]] = ()
    error: NodeError | None = None
    failed_key: str | None = None


def map_concurrency(
    node: CompiledNode, tool: ToolDeclaration | None, *, count: int, max_in_flight: int
) -> MapConcurrency:
    """Return the concurrency of a map over `count` items, limited by the node, its tool and the run."""
    limits = [max_in_flight, node.max_parallel, tool.max_parallel if tool else None]
    max_items = min(limit for limit in limits if limit is not None)
    max_batches = min(MAX_CONCURRENT_MAP_BATCHES, max_items) if count > MAP_BATCH_ITEMS else 1
    return MapConcurrency(max_batches, max_items // max_batches)


def map_batches_of(items: Sequence[Any], concurrency: MapConcurrency) -> list[MapBatch]:
    """Split the items of a large map into batches of about equal size.

    The number of batches is a multiple of the number of concurrent batches, so that no batch runs alone at the end.
    """
    min_batch_count = -(-len(items) // MAP_BATCH_ITEMS)
    batch_count = -(-min_batch_count // concurrency.max_batches) * concurrency.max_batches
    size, larger_count = divmod(len(items), batch_count)
    map_batches: list[MapBatch] = []
    first = 0
    for index in range(batch_count):
        count = size + (index < larger_count)
        map_batches.append(MapBatch(first, count, items[first : first + count]))
        first += count
    return map_batches


def is_map_batch(item: ItemRecord) -> bool:
    """Return whether an item record is a batch that a child run executes."""
    return item.map_batch is not None and item.map_batch.count > 0


def records_of(map_batches: Sequence[MapBatch]) -> list[ItemRecord]:
    """Return the records of the tasks of a large map: its batches, then the task that joins their results."""
    count = sum(map_batch.count for map_batch in map_batches)
    return [ItemRecord(map_batch.key, None, map_batch=map_batch) for map_batch in (*map_batches, MapBatch(count, 0))]


def tasks_before_join(tasks: Sequence[ItemRecord]) -> Sequence[ItemRecord]:
    """Return the tasks of a node that can start at once: all except the task that joins results."""
    return tasks[:-1] if tasks and tasks[-1].map_batch is not None else tasks


def store_batch_end(item: ItemRecord, end: MapBatchEnd) -> None:
    """Store the result of a batch in its record, except for the status."""
    assert item.map_batch is not None
    item.map_batch.items, item.map_batch.counts = (), dict(end.counts)
    item.map_batch.pieces, item.map_batch.failed_key = end.pieces, end.failed_key
    item.record.result = end.values


def listed_items(record: Record) -> Sequence[ItemRecord]:
    """Return the items of a node that are reported one by one; the items of a large map are only counted."""
    return () if is_batched(record) else record.items


def count_ended_items(record: Record) -> tuple[int, int]:
    """Return how many items of a node have ended without being cancelled, and how many items the node has."""
    if is_batched(record):
        ended_count = sum(count for status, count in counts_of_items(record).items() if is_done(NodeStatus(status)))
    else:
        ended_count = sum(is_done(item.record.status) for item in record.items)
    return ended_count, item_count(record)


def is_done(status: NodeStatus) -> bool:
    """Return whether a node or item has ended without being cancelled."""
    return status.is_final and status is not NodeStatus.CANCELLED


def item_count(record: Record) -> int:
    """Return the number of items of a node."""
    return sum(1 if item.map_batch is None else item.map_batch.count for item in record.items)


def counts_of_items(record: Record) -> dict[str, int]:
    """Return status -> number of items of a large map. Open items count with the status of their batch."""
    counts: Counter[str] = Counter()
    for item in record.items:
        if item.map_batch is not None:
            counts.update(item.map_batch.counts or {item.record.status.value: item.map_batch.count})
    return {status.value: counts[status] for status in NodeStatus if counts[status]}


def is_batched(record: Record) -> bool:
    """Return whether the items of a node are split into batches."""
    return bool(record.items) and record.items[-1].map_batch is not None


def finish_map(node: CompiledNode, record: Record, *, can_join: bool) -> tuple[NodeStatus, NodeError | None] | None:
    """Set the result of a node whose batches have all ended.

    Args:
        can_join: whether the task that joins results may still start.

    Returns:
        Status and error of the node; `None` if the results have to be joined first.
    """
    join_record = record.items[-1].record
    if join_record.status is not NodeStatus.PENDING:
        record.result = join_record.result
        _clear_results(record)
        return join_record.status, join_record.error
    status, error = _outcome_of_map_batches(node, record)
    if status is NodeStatus.COMPLETED:
        record.result = _joined_inline(record)
        if record.result is None:
            return None if can_join else (NodeStatus.CANCELLED, None)
    _clear_results(record)
    return status, error


def _clear_results(record: Record) -> None:
    for item in record.items:
        item.record.result = None
        if item.map_batch is not None:
            item.map_batch.items, item.map_batch.pieces = (), ()


def _outcome_of_map_batches(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Return the status and the error of a node whose batches have all ended. The error message is the same as without
    batches."""
    map_batches = [item for item in record.items if is_map_batch(item)]
    if any(item.record.status is NodeStatus.CANCELLED for item in map_batches):
        return NodeStatus.CANCELLED, None
    counts = counts_of_items(record)
    first_failed = next((item for item in map_batches if item.record.status is NodeStatus.FAILED), None)
    if first_failed is None:
        return NodeStatus.COMPLETED, None
    assert first_failed.map_batch is not None
    error = first_failed.record.error
    item_id = f"{node.id}[{first_failed.map_batch.failed_key or first_failed.key}]"
    summary = f"{counts.get(NodeStatus.FAILED, 0)} of {item_count(record)} items failed; the first: {item_id}: "
    return NodeStatus.FAILED, NodeError(error.code if error else "failed", summary + (error.message if error else ""))


def _joined_inline(record: Record) -> list[Any] | None:
    """Return the results of all items in order, or `None` if they have to be joined in the payload store."""
    values: list[Any] = []
    for item in record.items:
        if not is_map_batch(item):
            continue
        if item.map_batch is None or item.map_batch.pieces:
            return None
        values += item.record.result or ()
    try:
        return values if len(pydantic_core.to_json(values)) <= MAX_JOINED_INLINE_BYTES else None
    except pydantic_core.PydanticSerializationError:
        # Some results are already in the store.
        return None


MAX_UNBATCHED_ITEMS = 5_000
"""Maximum number of items that are tasks of the run itself: starting and failing all of them in one activation takes
0.2 s."""
MAX_RUN_ITEMS = 1_000_000
"""Maximum number of items of one run and its child runs: a few thousand batches, which stay in memory."""
_MAP_BATCH_COST = 40
"""Cost of a batch in units of the compute budget."""


class RunItems:
    """Items of one run.

    Args:
        numbers: node id -> its number.
        max_in_flight: maximum number of concurrent tasks of the run.
    """

    def __init__(self, plan: CompiledPlan, numbers: Mapping[str, int], *, max_in_flight: int) -> None:
        self._plan = plan
        self._numbers = numbers
        self.max_in_flight = max_in_flight
        self._refs: dict[str, TaskRef] = {}
        """Item id -> its reference."""
        self.node_refs: list[TaskRef | None] = [None] * len(numbers)
        """Node number -> its reference, created once and cached until the node has ended."""
        self._unbatched_count = 0
        self._count = 0
        self.open_counts: dict[int, int] = {}
        """Node number -> number of its tasks that have to end before the node ends."""

    def node_ref(self, number: int) -> TaskRef:
        """Return the reference of a node."""
        ref = self.node_refs[number]
        if ref is None:
            ref = self.node_refs[number] = TaskRef(number)
        return ref

    def find(self, task_id: str) -> TaskRef | None:
        """Return the reference of the node or item with a task id, or `None`."""
        if task_id in self._refs:
            return self._refs[task_id]
        number = self._numbers.get(task_id)
        return None if number is None else self.node_ref(number)

    def ref(self, task_id: str) -> TaskRef:
        """Return the reference of the node or item with a task id.

        Raises:
            KeyError: there is no such node or item.
        """
        ref = self._refs.get(task_id)
        return self.node_ref(self._numbers[task_id]) if ref is None else ref

    def map_concurrency(self, number: int, count: int) -> MapConcurrency:
        """Return the concurrency of the batches of a node with `count` items."""
        node = self._plan.nodes[number]
        tool = self._plan.tools.get(node.tool)
        return map_concurrency(node, tool, count=count, max_in_flight=self.max_in_flight)

    def tasks_of(
        self, number: int, items: Sequence[Any], *, scope: Scope, may_open_requests: bool
    ) -> list[ItemRecord] | NodeError:
        """Return the tasks of a node (its items, or batches of items), or an error.

        Args:
            may_open_requests: whether the items may ask people. Child runs cannot execute such items.

        Raises:
            UnresolvedReference: a key cannot be resolved.
            ComputeBudgetExceeded: resolving the keys exceeds the compute budget.
        """
        node = self._plan.nodes[number]
        if self._count + len(items) > MAX_RUN_ITEMS:
            counts = f"for_each has {len(items):,} items, and other nodes of the run have {self._count:,}"
            hint = "move some items into sub-plans, which are separate runs"
            return NodeError("too_large", f"{counts}; at most {MAX_RUN_ITEMS:,} are allowed in total: {hint}")
        if may_open_requests and self._unbatched_count + len(items) > MAX_UNBATCHED_ITEMS:
            other_items_text = f"the run has {self._unbatched_count:,} other items"
            counts = f"for_each has {len(items):,} items that may ask people, and {other_items_text}"
            return NodeError("too_large", f"{counts}; at most {MAX_UNBATCHED_ITEMS:,} are allowed in total")
        is_batched = not may_open_requests and (
            len(items) > MAP_BATCH_ITEMS or self._unbatched_count + len(items) > MAX_UNBATCHED_ITEMS
        )
        # Without `key` the positions are the keys, and positions are unique.
        keys = [] if is_batched and node.key is None else keys_of(node, items, scope=scope)
        problem = keys if isinstance(keys, NodeError) else self._duplicate_key_error(number, keys)
        if problem is not None or isinstance(keys, NodeError):
            return problem or []
        if not is_batched:
            return [ItemRecord(key, item) for key, item in zip(keys, items, strict=True)]
        if isinstance(items, StoredList):
            # With the projected parts, each batch would store and pass on the parts of all items of the list.
            items = items.without_parts()
        batches = map_batches_of(items, self.map_concurrency(number, len(items)))
        scope.budget.spend(_MAP_BATCH_COST * len(batches))
        records = records_of(batches)
        return self._duplicate_key_error(number, [record.key for record in records]) or records

    def _duplicate_key_error(self, number: int, keys: Sequence[str]) -> NodeError | None:
        """Return the error if a task id with one of these keys is not unique, else `None`."""
        node_id = self._plan.nodes[number].id
        used_ids: set[str] = set()
        for key in keys:
            task_id = f"{node_id}[{key}]"
            if task_id in used_ids or task_id in self._refs or task_id in self._numbers:
                message = f"{task_id!r} names two items or nodes; the keys of {node_id!r} must be unique"
                return NodeError("duplicate_key", message)
            used_ids.add(task_id)
        return None

    def register(self, number: int, record: Record) -> None:
        """Register the ids of the tasks of a node, and count its items."""
        node_id = self._plan.nodes[number].id
        self._refs |= {f"{node_id}[{item.key}]": TaskRef(number, index) for index, item in enumerate(record.items)}
        self._unbatched_count += 0 if is_batched(record) else len(record.items)
        self._count += item_count(record)
