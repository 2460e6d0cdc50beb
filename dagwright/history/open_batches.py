"""Call batches in the history of a run. The input of a batch activity contains its calls."""

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
        self._activity_ids_by_batch: dict[str, list[str]] = {}
        """Activity id of a batch -> activity ids that the calls in its input would have as separate activities."""

    def add(self, attributes: ActivityTaskScheduledEventAttributes) -> list[str]:
        """Add a batch; return the activity ids of the calls in its input, or an empty list if the input is invalid."""
        try:
            calls = read_call_batch(read_argument(attributes.input.payloads)).calls
        except (MessageInvalid, ValueError):
            return []
        activity_ids = [call.activity_id for call in calls]
        self._activity_ids_by_batch[attributes.activity_id] = activity_ids
        return activity_ids

    def activity_ids_of(self, activity_id: str) -> list[str]:
        """Return the activity ids of the calls in the input of a batch; for any other activity, return only
        `activity_id`."""
        return self._activity_ids_by_batch.get(activity_id, [activity_id])

    def end(
        self,
        scheduler: "RunScheduler | None",
        activity_id: str,
        result: Payload | None,
        *,
        task_of: Callable[[str], str | None],
        at: float,
    ) -> bool:
        """Apply the end of a call batch; return whether the activity is a call batch.

        Tasks of calls without a result keep the status `running`, because the run makes the calls again.

        Args:
            result: `None` if the activity failed or was cancelled.
        """
        activity_ids = self._activity_ids_by_batch.pop(activity_id, None)
        if activity_ids is None or scheduler is None:
            return activity_ids is not None
        batch_result = CallBatchResult() if result is None else read_call_batch_result(result)
        task_ids = [task_id for id_of_call in activity_ids if (task_id := task_of(id_of_call)) is not None]
        apply_call_batch(scheduler, batch_result, calls=task_ids, at=at)
        return True
