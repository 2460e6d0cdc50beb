"""What events of history tell of arguments and failures, as the workflow is handed them."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import ActivityTaskFailedEventAttributes, ActivityTaskTimedOutEventAttributes
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, RetryState

from dagwright.protocol.messages import read_message

FailedCall = ActivityTaskFailedEventAttributes | ActivityTaskTimedOutEventAttributes


def read_argument(payloads: Sequence[Payload]) -> Any:
    """Returns the one argument of a run or of a message: of several only how many.

    Raises:
        MessageInvalid: it is no JSON.
    """
    return read_message(payloads[0]) if len(payloads) == 1 else [None] * len(payloads) or None


async def error_of_call(ended: FailedCall, activity_id: str, *, converter: DataConverter) -> ActivityError:
    """Returns why a call failed: why there is no other attempt says how many there were."""
    error = ActivityError(
        "",
        scheduled_event_id=ended.scheduled_event_id,
        started_event_id=ended.started_event_id,
        identity="",
        activity_type="",
        activity_id=activity_id,
        retry_state=RetryState(ended.retry_state) if ended.retry_state else None,
    )
    error.__cause__ = await converter.decode_failure(ended.failure)
    return error
