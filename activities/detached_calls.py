"""Slow calls that left their batch and continue to run. A separate activity adopts each call and returns its result.

This module must not import workflows.
"""

import asyncio
from dataclasses import dataclass

from temporalio import activity
from temporalio.common import RawValue

from dagwright.activities.heartbeats import Heartbeats
from dagwright.core.boundary.limits import DETACHED_CALL_S
from dagwright.tools.context import Progress


class BatchHeartbeats(Heartbeats):
    """Heartbeats of a call in a batch: not sent to the server, but passed to the activity that adopts the call."""

    adopter: Heartbeats | None = None

    def start(self) -> None:
        """Do nothing: the batch sends heartbeats."""

    def beat(self, details: object, progress: Progress | None) -> None:
        """Pass the details to the activity that has adopted the call, if there is one."""
        if self.adopter is not None:
            self.adopter.beat(details, progress)

    def _send(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A running call of a batch."""

    task: "asyncio.Task[RawValue]"
    heartbeats: BatchHeartbeats

    async def adopt(self) -> RawValue:
        """Wait for the call in the current activity, with heartbeats; pass a cancellation on to the call."""
        heartbeats = self.heartbeats.adopter = Heartbeats(activity.info())
        with heartbeats.running():
            while True:
                try:
                    return await asyncio.shield(self.task)
                except asyncio.CancelledError:
                    if self.task.done():
                        raise
                    self.task.cancel()


class DetachedCalls:
    """Slow calls of a worker, by run and activity ID, until they are adopted or expire."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[RunningCall, asyncio.TimerHandle]] = {}

    def add(self, activity_id: str, call: RunningCall) -> None:
        """Store a slow call of the current run; an earlier call with the same activity ID is cancelled."""
        key = (activity.info().workflow_run_id or "", activity_id)
        if key in self._calls:
            # Another attempt of the batch has made the call again.
            self._calls[key][1].cancel()
            self._drop(key)
        timer = asyncio.get_running_loop().call_later(DETACHED_CALL_S, self._drop, key)
        self._calls[key] = call, timer

    def pop(self, info: activity.Info) -> RunningCall | None:
        """Remove and return the running call that an activity continues, if the call runs in this worker."""
        if not self._calls:
            return None
        call, timer = self._calls.pop((info.workflow_run_id or "", info.activity_id), (None, None))
        if timer is not None:
            timer.cancel()
        return call

    def _drop(self, key: tuple[str, str]) -> None:
        call, _ = self._calls.pop(key)
        call.task.cancel()
        # asyncio logs the exception of a task if nothing reads it.
        call.task.add_done_callback(lambda task: task.cancelled() or task.exception())
