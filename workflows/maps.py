"""Start the activities of large maps, which load items, and store and join results."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeError, Task
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.map_batch_messages import MapBatchInput
from dagwright.protocol.map_batch_runs import (
    join_input,
    load_items_message,
    map_batch_end_to_json,
    map_batch_failure_to_json,
    pieces_of_results,
    record_of_map,
)
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT, json_payload, priority_of
from dagwright.workflows.blobs import TextRejected, put_text
from dagwright.workflows.retries import JOIN_ITEMS_RETRIES, UNLIMITED_ATTEMPTS


def start_join(scheduler: RunScheduler, task: Task) -> tuple[workflow.ActivityHandle[RawValue], int]:
    """Start the activity that joins the results of a large map; return its handle and the size of its input."""
    encoded = pydantic_core.to_json(join_input(scheduler, task))
    handle = workflow.start_activity(
        wire.ACTIVITY_JOIN_ITEMS,
        RawValue(json_payload(encoded)),
        activity_id=limits.activity_id(task.id),
        result_type=RawValue,
        start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
        heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
        retry_policy=JOIN_ITEMS_RETRIES,
        summary=limits.summary_of(f"joining the results of {task.node.title or task.node.id}"),
        priority=priority_of(task.node.priority),
    )
    return handle, len(encoded)


async def load_map_batch_items(
    map_batch: MapBatchInput, node: CompiledNode, *, time_left: timedelta | None
) -> Sequence[Any]:
    """Return the items of the map batch of this run; stored items are loaded from the payload store.

    Args:
        node: the map node.
        time_left: time until the deadline of the run.

    Raises:
        ActivityError: the items cannot be loaded.
        ValueError: the items are invalid.
    """
    if map_batch.source is None:
        return map_batch.items
    response: dict[str, Any] = await workflow.execute_activity(
        wire.ACTIVITY_LOAD_ITEMS,
        load_items_message(map_batch.source, node),
        activity_id=wire.ID_LOAD_ITEMS,
        start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
        heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
        schedule_to_close_timeout=time_left,
        retry_policy=UNLIMITED_ATTEMPTS,
        summary="loading the items",
        result_type=dict[str, Any],
    )
    items = value_from_json(response["value"], response.get("stored"))
    if not isinstance(items, list):
        raise ValueError("the items of a map batch must be a list")
    return items


async def store_map_batch_results(scheduler: RunScheduler) -> dict[str, Any]:
    """Store large results of the map batch of this run, and return the report of the batch.

    If the store rejects the results, the report has the status `failed`, although the items of the batch are done.
    """
    pieces = pieces_of_results(record_of_map(scheduler))
    uploads = [
        put_text(text, activity_id=f"{wire.ID_PUT_RESULTS} {number}", summary="storing the results")
        for number, (text, _) in enumerate(pieces, 1)
    ]
    try:
        refs = await asyncio.gather(*uploads)
    except TextRejected as error:
        message = f"the items are done, but the payload store permanently rejected their results: {error}"
        return map_batch_failure_to_json(scheduler, NodeError(wire.ERROR_STORE_REJECTED, message))
    return map_batch_end_to_json(scheduler, [(ref, count) for ref, (_, count) in zip(refs, pieces, strict=True)])
