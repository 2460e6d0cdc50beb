"""Items of large maps, for whoever looks: the run above knows its chunks, and the run of a chunk knows its items.

Where an item has a key of its own only the runs of the chunks know which of them has it, so they are asked: as many at
once as `list` does, and only for their beginnings.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dagwright.core.boundary.limits import child_workflow_id
from dagwright.core.errors import DagwrightError
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import ItemRecord, NodeStatus, Record
from dagwright.core.scheduler.map_batches import is_chunk, is_cut
from dagwright.history.executions import Offset
from dagwright.history.run_reader import RunFeed, RunNotFound, RunView

FAILURES_TOLD = 10
"""Chunks with failed items that are told of one node."""
_ASKED_AT_ONCE = 8
_BEGINNING = Offset(1, 60)
"""Where a run that does a chunk has its items, whatever it had to load before."""

OpenFeed = Callable[[str], RunFeed]
"""Workflow id -> feed of that run."""


class ItemNotBegun(DagwrightError):
    """The run of the chunk that an item is in has not been started."""


async def view_of_item(view: RunView, task_id: str, *, feed: OpenFeed) -> RunView:
    """Returns the view of the run that knows a node or an item: that of its chunk for an item of a large map.

    Returns:
        The same view for everything else, and for what nobody knows.

    Raises:
        ItemNotBegun: no run does that item yet.
    """
    candidates = list(_candidates(view, task_id))
    if not candidates:
        return view
    found = await _first_with(task_id, candidates, view=view, feed=feed)
    return view if found is None else await feed(found).read()


def failures_of(node_id: str, record: Record, *, workflow_id: str) -> list[dict[str, Any]]:
    """Returns where the items of a large map failed, in item order, for some chunks.

    Returns:
        `{"batch", "run_id", "failed", "first", "error"}` for each of them: how many of its items failed, the
        first of them, and why that one did. Of a chunk that failed as a whole `first` is null.
    """
    failed = [item for item in record.items if is_chunk(item) and item.record.status is NodeStatus.FAILED]
    return [_failure_of(node_id, item, workflow_id) for item in failed[:FAILURES_TOLD]]


def _failure_of(node_id: str, item: ItemRecord, workflow_id: str) -> dict[str, Any]:
    assert item.chunk is not None
    chunk, error = item.chunk, item.record.error
    return {
        "batch": f"{node_id}[{item.key}]",
        "run_id": child_workflow_id(workflow_id, f"{node_id}[{item.key}]"),
        "failed": chunk.counts.get(NodeStatus.FAILED.value, 0) if chunk.counts else chunk.count,
        "first": f"{node_id}[{chunk.failed_key}]" if chunk.failed_key is not None else None,
        "error": error.to_json() if error else None,
    }


def _candidates(view: RunView, task_id: str) -> Iterator[tuple[CompiledNode, ItemRecord]]:
    """Yields the chunks that may have an item, with their node."""
    if view.scheduler is None or not task_id.endswith("]"):
        return
    for node, record in view.scheduler.state.shown():
        if is_cut(record) and task_id.startswith(f"{node.id}["):
            key = task_id.removeprefix(f"{node.id}[").removesuffix("]")
            for item in filter(is_chunk, record.items):
                if node.key is not None or _has_position(item, key):
                    yield node, item


def _has_position(item: ItemRecord, key: str) -> bool:
    chunk = item.chunk
    return chunk is not None and key.isdecimal() and chunk.first <= int(key) < chunk.first + chunk.count


async def _first_with(
    task_id: str, candidates: Sequence[tuple[CompiledNode, ItemRecord]], *, view: RunView, feed: OpenFeed
) -> str | None:
    """Returns the workflow id of the first chunk that has an item, or `None` if no chunk has it."""
    not_begun: list[str] = []
    for first in range(0, len(candidates), _ASKED_AT_ONCE):
        names = [f"{node.id}[{item.key}]" for node, item in candidates[first : first + _ASKED_AT_ONCE]]
        ids = [child_workflow_id(view.workflow_id, name) for name in names]
        answers = await asyncio.gather(*(_has_item(feed(workflow_id), task_id) for workflow_id in ids))
        if True in answers:
            return ids[answers.index(True)]
        not_begun += [name for name, answer in zip(names, answers, strict=True) if answer is None]
    if not_begun:
        told = f"the items of {not_begun[0]!r}" + (f" and of {len(not_begun) - 1} more" if len(not_begun) > 1 else "")
        raise ItemNotBegun(f"{task_id!r} is not known yet: {told} have not begun")
    return None


async def _has_item(feed: RunFeed, task_id: str) -> bool | None:
    """Tells whether the run of a chunk has an item; `None` if it does not know its items yet."""
    try:
        known = await feed.states_at(_BEGINNING)
    except RunNotFound:
        return None
    return (task_id in known) if known else None
