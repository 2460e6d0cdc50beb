"""Large maps inside of a workflow: the runs of their chunks, from both sides, and the joining of the results."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import Priority, RawValue, RetryPolicy

from dagwright.contracts import limits, wire
from dagwright.contracts.chunk_inputs import ChunkInput
from dagwright.contracts.chunk_runs import (
    chunk_end_to_json,
    join_input,
    own_record,
    pieces_of_results,
)
from dagwright.plan.items import stored_list_to_json
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.tasks import Task
from dagwright.plan.unfilled import unfilled_from_json
from workflows.calls import json_payload

_PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""A store that does not answer holds the map up; it must not end it."""
_JOIN_RETRY = RetryPolicy(maximum_interval=timedelta(minutes=1), maximum_attempts=10)
_JOIN_TIMEOUT = timedelta(minutes=10)
"""Of one attempt: a hundred megabytes are read and written in seconds."""
_HEARTBEAT = timedelta(seconds=10)
"""After which a worker that died in the middle of it is noticed."""


def start_join(scheduler: Scheduler, task: Task) -> tuple[workflow.ActivityHandle[RawValue], int]:
    """Starts the activity that joins the results of a large map; returns it and the bytes of what it is given."""
    encoded = pydantic_core.to_json(join_input(scheduler, task))
    handle = workflow.start_activity(
        wire.ACTIVITY_JOIN_ITEMS,
        RawValue(json_payload(encoded)),
        activity_id=limits.activity_id(task.id),
        result_type=RawValue,
        start_to_close_timeout=_JOIN_TIMEOUT,
        heartbeat_timeout=_HEARTBEAT,
        retry_policy=_JOIN_RETRY,
        summary=limits.summary_of(f"joining the results of {task.node.title or task.node.id}"),
        priority=Priority(priority_key=task.node.priority),
    )
    return handle, len(encoded)


async def items_of_chunk(chunk: ChunkInput, *, time_left: timedelta | None) -> Sequence[Any]:
    """Returns the items of the chunk that this run does, from the payload store if they are there.

    Raises:
        ActivityError: they cannot be had.
        ValueError: they are none.
    """
    if chunk.source is None:
        return chunk.items
    loaded: dict[str, Any] = await workflow.execute_activity(
        wire.ACTIVITY_LOAD_ITEMS,
        stored_list_to_json(chunk.source),
        activity_id=wire.ID_LOAD_ITEMS,
        start_to_close_timeout=timedelta(minutes=2),
        heartbeat_timeout=timedelta(seconds=limits.OWN_HEARTBEAT_S),
        schedule_to_close_timeout=time_left,
        retry_policy=_PATIENT,
        summary="fetching the items",
        result_type=dict[str, Any],
    )
    items = unfilled_from_json(loaded["value"], loaded.get("stored"))
    if not isinstance(items, list):
        raise ValueError("the items of a chunk must be a list")
    return items


async def end_of_chunk(scheduler: Scheduler) -> dict[str, Any]:
    """Returns what this run tells the one above of its chunk; large results go to the store first."""
    pieces = pieces_of_results(own_record(scheduler))
    putting = [
        workflow.execute_activity(
            wire.ACTIVITY_PUT_BLOB,
            {"text": text},
            activity_id=f"{wire.ID_PUT_RESULTS} {number}",
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=timedelta(seconds=limits.OWN_HEARTBEAT_S),
            retry_policy=_PATIENT,
            summary="keeping the results",
            result_type=dict[str, str],
        )
        for number, (text, _) in enumerate(pieces, 1)
    ]
    put = await asyncio.gather(*putting)
    refs = [(each["ref"], count) for each, (_, count) in zip(put, pieces, strict=True)]
    return chunk_end_to_json(scheduler, refs)
