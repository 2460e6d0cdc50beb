"""Call batches in the history of a run: their calls, from the input of the activity."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes

from dagwright.history.task_batches import read_argument
from dagwright.protocol.call_batches import (
    CallBatchResult,
    apply_call_batch,
    read_call_batch,
    read_call_batch_result,
)
from dagwright.protocol.messages import MessageInvalid

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


class OpenCallBatches:
    """The call batches in flight."""

    def __init__(self) -> None:
        self._calls: dict[str, list[str]] = {}
        """Activity id of a batch -> the ids that its first calls would have as activities."""

    def add(self, scheduled: ActivityTaskScheduledEventAttributes) -> list[str]:
        """Add a batch and return the activity ids of its first calls; none if another version has made it."""
        try:
            calls = read_call_batch(read_argument(scheduled.input.payloads)).calls
        except (MessageInvalid, ValueError):
            return []
        names = [call.activity_id for call in calls]
        self._calls[scheduled.activity_id] = names
        return names

    def names_of(self, activity: str) -> list[str]:
        """Return the activity ids of the first calls of a batch; for any other activity its own id."""
        return self._calls.get(activity, [activity])

    def end(
        self,
        scheduler: "RunScheduler | None",
        activity: str,
        result: Payload | None,
        *,
        task_of: Callable[[str], str | None],
        at: float,
    ) -> bool:
        """Apply the end of an activity if it is a batch, and return whether it is one.

        Calls without a result keep running, because the run makes them again.

        Args:
            result: `None` if the activity failed or was cancelled.
        """
        names = self._calls.pop(activity, None)
        if names is None or scheduler is None:
            return names is not None
        batch_result = CallBatchResult() if result is None else read_call_batch_result(result)
        calls = [task_id for name in names if (task_id := task_of(name)) is not None]
        apply_call_batch(scheduler, batch_result, calls=calls, at=at)
        return True
