"""Store long texts of a run in the payload store: the state of the run, and the results of a map batch.

A store that does not respond delays the run without a limit. A permanent rejection (an operator failed the activity, or
a worker of another application took it) raises `TextRejected`, so that the rejection is not reported as a bug.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, FailureError

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import INTERNAL_HEARTBEAT_S, MAX_FAILURE_MESSAGE_BYTES, MAX_REF_BYTES
from dagwright.core.text import cut_bytes
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.outcomes import is_cancellation
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT
from dagwright.workflows.retries import UNLIMITED_ATTEMPTS


class TextRejected(Exception):
    """A text cannot be stored, and another attempt would fail as well."""


async def put_text(text: str, *, activity_id: str, summary: str) -> str:
    """Store a text of at most a megabyte and return its reference.

    Raises:
        TextRejected: the text cannot be stored; retries would fail as well.
        asyncio.CancelledError: the caller was cancelled.
    """
    try:
        response: RawValue = await workflow.execute_activity(
            wire.ACTIVITY_PUT_BLOB,
            {"text": text},
            activity_id=activity_id,
            start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=INTERNAL_HEARTBEAT_S),
            retry_policy=UNLIMITED_ATTEMPTS,
            summary=summary,
            result_type=RawValue,
        )
        return _ref_of(response)
    except ActivityError as error:
        if is_cancellation(error):
            raise asyncio.CancelledError from error
        cause = error.__cause__
        message = cause.message if isinstance(cause, FailureError) else str(cause)
        raise TextRejected(cut_bytes(message or "no reason given", max_bytes=MAX_FAILURE_MESSAGE_BYTES // 2)) from None


def _ref_of(response: RawValue) -> str:
    try:
        result = read_message(response.payload)
    except MessageInvalid as error:
        raise TextRejected(f"invalid result of {wire.ACTIVITY_PUT_BLOB}: {error}") from None
    ref = result.get("ref") if isinstance(result, Mapping) else None
    if not isinstance(ref, str) or len(ref) > MAX_REF_BYTES:
        raise TextRejected(f"the result of {wire.ACTIVITY_PUT_BLOB} has no reference")
    return ref
