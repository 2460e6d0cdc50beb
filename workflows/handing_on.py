"""How the state of a run gets from one execution to the next: in the input, or through the payload store."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from dagwright.contracts import wire
from dagwright.contracts.carries import RunCarry, pieces_of, state_from_text
from dagwright.contracts.limits import OWN_HEARTBEAT_S

_PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""A store that does not answer holds the run up; it must not end it."""
_ATTEMPT = timedelta(minutes=1)


async def put_state(text: str, *, numbers: Iterator[int]) -> list[str]:
    """Puts the state of a run into the store and returns the references of its pieces, in order.

    Args:
        numbers: of the pieces, over all tries of one execution: a try that was given up may still be at work on one.
    """
    refs = []
    for piece, number in zip(pieces_of(text), numbers, strict=False):
        # One after the other: over 4 MB in one workflow task would wedge the run.
        put = await workflow.execute_activity(
            wire.ACTIVITY_PUT_BLOB,
            {"text": piece},
            activity_id=f"{wire.ID_PUT_STATE} {number}",
            start_to_close_timeout=_ATTEMPT,
            heartbeat_timeout=timedelta(seconds=OWN_HEARTBEAT_S),
            retry_policy=_PATIENT,
            summary="keeping the state of the run, to go on in a new history",
            result_type=dict[str, str],
        )
        refs.append(put["ref"])
    return refs


async def state_of(carry: RunCarry, *, time_left: timedelta | None) -> Mapping[str, Any]:
    """Returns the state that the execution before handed on.

    Args:
        time_left: until the deadline of the run.

    Raises:
        ActivityError: it cannot be had.
        ValueError: it is none.
    """
    if not carry.refs:
        return state_from_text(carry.state)
    getting = [
        workflow.execute_activity(
            wire.ACTIVITY_GET_BLOB,
            {"ref": ref},
            activity_id=f"{wire.ID_GET_STATE} {number}",
            start_to_close_timeout=_ATTEMPT,
            heartbeat_timeout=timedelta(seconds=OWN_HEARTBEAT_S),
            schedule_to_close_timeout=time_left,
            retry_policy=_PATIENT,
            summary="fetching the state of the run",
            result_type=dict[str, str],
        )
        for number, ref in enumerate(carry.refs, 1)
    ]
    return state_from_text("".join(got["text"] for got in await asyncio.gather(*getting)))
