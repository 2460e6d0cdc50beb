"""Puts long texts of a run's own into the payload store: its state, and the results of a chunk.

A store that does not answer holds the run up, for as long as it takes. What is refused for good (somebody failed the
activity by hand, or a worker that is not ours took it) is told as `TextRefused`, so that no defect is made of it.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, FailureError

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import INTERNAL_HEARTBEAT_S, MESSAGE_LIMIT_BYTES, REF_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.outcomes import is_cancellation
from dagwright.workflows.calls import OWN_ATTEMPT
from dagwright.workflows.retries import UNLIMITED


class TextRefused(Exception):
    """A text cannot be put into the payload store, and another attempt would not change that."""


async def put_text(text: str, *, activity_id: str, summary: str) -> str:
    """Puts a text of at most a megabyte into the payload store and returns its reference.

    Raises:
        TextRefused: it was refused for good.
        asyncio.CancelledError: whoever waits for it was told to stop.
    """
    try:
        answer: RawValue = await workflow.execute_activity(
            wire.ACTIVITY_PUT_BLOB,
            {"text": text},
            activity_id=activity_id,
            start_to_close_timeout=OWN_ATTEMPT,
            heartbeat_timeout=timedelta(seconds=INTERNAL_HEARTBEAT_S),
            retry_policy=UNLIMITED,
            summary=summary,
            result_type=RawValue,
        )
        return _ref_of(answer)
    except ActivityError as error:
        if is_cancellation(error):
            raise asyncio.CancelledError from error
        cause = error.__cause__
        told = cause.message if isinstance(cause, FailureError) else str(cause)
        raise TextRefused(cut_bytes(told or "no reason given", max_bytes=MESSAGE_LIMIT_BYTES // 2)) from None


def _ref_of(answer: RawValue) -> str:
    try:
        told = read_message(answer.payload)
    except MessageInvalid as error:
        raise TextRefused(f"what {wire.ACTIVITY_PUT_BLOB} answered cannot be read: {error}") from None
    ref = told.get("ref") if isinstance(told, Mapping) else None
    if not isinstance(ref, str) or len(ref) > REF_BYTES:
        raise TextRefused(f"{wire.ACTIVITY_PUT_BLOB} answered with no reference")
    return ref
