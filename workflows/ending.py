"""End a cancelled run as Canceled in Temporal, after recording its result document in the history.

Replay: in older versions, a run ended as Completed if a signal had cancelled it. The histories of these runs do not
have the patch marker `ENDS_CANCELED`.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError

from dagwright.core.boundary import wire
from dagwright.workflows.activity_calls import json_payload
from dagwright.workflows.retries import QUICK_FIVE_ATTEMPTS

ENDS_CANCELED = "ends-canceled"

T = TypeVar("T")


async def await_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end, even if the run is cancelled meanwhile.

    Call it only after all nodes have ended, so that a cancellation has nothing left to stop.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


async def end_as_canceled(document: Mapping[str, Any], *, reason: str | None) -> bool:
    """Record the document of a cancelled run, and wait until its workflow has received a cancellation request.

    Args:
        reason: why the run is cancelled; `None` if the cancellation was requested through Temporal.

    Returns:
        Whether the run can end as Canceled; if not, the run has to return its document.
    """
    message = {"document": document, **({"reason": reason} if reason is not None else {})}
    try:
        await await_to_end(_record(pydantic_core.to_json(message)))
    except ActivityError as error:
        workflow.logger.warning("the run cannot end as Canceled", extra={"reason": str(error.cause)})
        return workflow.cancellation_reason() is not None
    while workflow.cancellation_reason() is None:
        # The cancellation request interrupts the wait.
        with suppress(asyncio.CancelledError):
            await workflow.wait_condition(lambda: workflow.cancellation_reason() is not None)
    return True


async def _record(message: bytes) -> None:
    await workflow.execute_local_activity(
        wire.ACTIVITY_END_CANCELLED,
        RawValue(json_payload(message)),
        activity_id=wire.ID_END_CANCELLED,
        result_type=RawValue,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=QUICK_FIVE_ATTEMPTS,
        summary="ending as cancelled",
    )
