"""Items of large maps: the parent run knows the batches, and the run of a batch knows its items.

If items have keys, only the histories of the batches show which batch has an item. Several histories are read at a
time, and only the start of each.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import child_workflow_id
from dagwright.core.errors import DagwrightError
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import ItemRecord, NodeStatus, Record
from dagwright.core.scheduler.map_items import is_batched, is_map_batch
from dagwright.history.executions import Cursor, RunNotFound

if TYPE_CHECKING:
    from dagwright.history.run_reader import RunReader
    from dagwright.history.run_view import RunView

MAX_FAILED_BATCHES = 10
"""Maximum number of batches with failed items that are listed for one node."""
_MAX_CONCURRENT_READS = 8
_START_OF_ITEMS = Cursor(1, 60)
"""Position in the history of a batch's run at which its items have been loaded."""

OpenReader = Callable[[str], "RunReader"]
"""Run ID -> reader of that run."""


class ItemNotStarted(DagwrightError):
    """The run of the batch with the item has not started."""


async def view_of_item(view: "RunView", task_id: str, *, open_reader: OpenReader) -> "RunView":
    """Return the view of the run that has a node or item. The run of a batch has the items of a large map.

    Returns:
        `view` itself, unless the run of a batch has the item.

    Raises:
        ItemNotStarted: the run of the item has not started.
    """
    candidates = list(_candidates(view, task_id))
    if not candidates:
        return view
    batch = await _batch_with_item(task_id, candidates, view=view, open_reader=open_reader)
    return view if batch is None else await open_reader(batch).read()


def failed_map_batches(node_id: str, record: Record, *, run_id: str) -> list[dict[str, Any]]:
    """Return the batches with failed items, in item order.

    Returns:
        `{"batch", "run_id", "failed", "first", "error"}` for each batch: number of failed items, first failed item
        and its error. `first` is null if the batch failed as a whole.
    """
    failed_batches = [item for item in record.items if is_map_batch(item) and item.record.status is NodeStatus.FAILED]
    return [_failed_map_batch(node_id, batch, run_id) for batch in failed_batches[:MAX_FAILED_BATCHES]]


def _failed_map_batch(node_id: str, item: ItemRecord, run_id: str) -> dict[str, Any]:
    assert item.map_batch is not None
    batch, error = item.map_batch, item.record.error
    return {
        "batch": f"{node_id}[{item.key}]",
        "run_id": child_workflow_id(run_id, f"{node_id}[{item.key}]"),
        "failed": batch.counts.get(NodeStatus.FAILED.value, 0) if batch.counts else batch.count,
        "first": f"{node_id}[{batch.failed_key}]" if batch.failed_key is not None else None,
        "error": error.to_json() if error else None,
    }


def _candidates(view: "RunView", task_id: str) -> Iterator[tuple[CompiledNode, ItemRecord]]:
    """Yield the batches that may have the item, each with the node of the map."""
    if view.scheduler is None or not task_id.endswith("]"):
        return
    for node, record in view.scheduler.state.visible_nodes():
        if is_batched(record) and task_id.startswith(f"{node.id}["):
            key = task_id.removeprefix(f"{node.id}[").removesuffix("]")
            for item in filter(is_map_batch, record.items):
                if node.key is not None or _has_position(item, key):
                    yield node, item


def _has_position(item: ItemRecord, key: str) -> bool:
    batch = item.map_batch
    return batch is not None and key.isdecimal() and batch.first <= int(key) < batch.first + batch.count


async def _batch_with_item(
    task_id: str, candidates: Sequence[tuple[CompiledNode, ItemRecord]], *, view: "RunView", open_reader: OpenReader
) -> str | None:
    """Return the run ID of the first batch that has the item, or `None` if no batch has the item."""
    unstarted_batch_ids: list[str] = []
    for start in range(0, len(candidates), _MAX_CONCURRENT_READS):
        batch_ids = [f"{node.id}[{item.key}]" for node, item in candidates[start : start + _MAX_CONCURRENT_READS]]
        batch_run_ids = [child_workflow_id(view.run_id, batch_id) for batch_id in batch_ids]
        has_item_flags = await asyncio.gather(
            *(_has_item(open_reader(batch_run_id), task_id) for batch_run_id in batch_run_ids)
        )
        if True in has_item_flags:
            return batch_run_ids[has_item_flags.index(True)]
        unstarted_batch_ids += [
            batch_id for batch_id, has_item in zip(batch_ids, has_item_flags, strict=True) if has_item is None
        ]
    if unstarted_batch_ids:
        more_text = f" and {len(unstarted_batch_ids) - 1} more batches" if len(unstarted_batch_ids) > 1 else ""
        raise ItemNotStarted(
            f"{task_id!r} is not known yet: the items of {unstarted_batch_ids[0]!r}{more_text} have not started"
        )
    return None


async def _has_item(reader: "RunReader", task_id: str) -> bool | None:
    """Return whether the run of a batch has an item; `None` if the items of the run are not known yet."""
    try:
        states = await reader.states_at(_START_OF_ITEMS)
    except RunNotFound:
        return None
    return (task_id in states) if states else None
