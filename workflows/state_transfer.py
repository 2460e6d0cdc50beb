"""Transfer of the state of a run to the next execution: in the input, or through the payload store."""

import asyncio
import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from temporalio import workflow

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import INTERNAL_HEARTBEAT_S
from dagwright.features.compensation.compensation import NOTHING_TO_COMPENSATE, run_may_have_effects
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.run_snapshot import (
    RunSnapshot,
    SnapshotTooLarge,
    pieces_of,
    snapshot_to_json,
    state_from_text,
    state_to_text,
)
from dagwright.protocol.scheduler_snapshot import state_to_json
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT
from dagwright.workflows.blobs import TextRejected, put_text
from dagwright.workflows.retries import UNLIMITED_ATTEMPTS

MAX_INLINE_CHARACTERS = 4_000
"""Largest state of a child run that its parent run stores inline. The parent run may have hundreds of child runs, and
their states are part of the state of the parent run.
"""


async def put_state(text: str, *, numbers: Iterator[int]) -> list[str]:
    """Store the state of a run and return the references of its pieces, in order.

    Args:
        numbers: numbers of the pieces, unique in one execution: an aborted attempt may still be storing a piece.

    Raises:
        TextRejected: the store has rejected a piece permanently.
    """
    refs = []
    for piece, number in zip(pieces_of(text), numbers, strict=False):
        # In sequence: over 4 MB in one workflow task would block the run.
        activity_id = f"{wire.ID_PUT_STATE} {number}"
        summary = "storing the state of the run to continue as new"
        refs.append(await put_text(piece, activity_id=activity_id, summary=summary))
    return refs


async def create_compensation_snapshot(scheduler: RunScheduler, *, numbers: Iterator[int]) -> Mapping[str, Any] | None:
    """Return the data with which the parent run can compensate this run later. A large state is stored first.

    Args:
        numbers: as in `put_state`.

    Returns:
        The snapshot of the run, `{}` if the run changed nothing, or `None` if the snapshot cannot be stored.
    """
    if not run_may_have_effects(scheduler.state):
        return NOTHING_TO_COMPENSATE
    try:
        state = state_to_text(state_to_json(scheduler))
        refs = await put_state(state, numbers=numbers) if len(state) > MAX_INLINE_CHARACTERS else []
    except (SnapshotTooLarge, TextRejected):
        return None
    return snapshot_to_json(RunSnapshot(0.0, "" if refs else state, refs, deadline_s=math.inf))


async def load_state(snapshot: RunSnapshot, *, time_left: timedelta | None) -> Mapping[str, Any]:
    """Load the state of the previous execution.

    Args:
        time_left: time until the deadline of the run.

    Raises:
        ActivityError: the state cannot be loaded.
        ValueError: the state is invalid.
    """
    if not snapshot.refs:
        return state_from_text(snapshot.state)
    loads = [
        workflow.execute_activity(
            wire.ACTIVITY_GET_BLOB,
            {"ref": ref},
            activity_id=f"{wire.ID_GET_STATE} {number}",
            start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=INTERNAL_HEARTBEAT_S),
            schedule_to_close_timeout=time_left,
            retry_policy=UNLIMITED_ATTEMPTS,
            summary="loading the state of the run",
            result_type=dict[str, str],
        )
        for number, ref in enumerate(snapshot.refs, 1)
    ]
    return state_from_text("".join(piece["text"] for piece in await asyncio.gather(*loads)))
