"""Time of the workflow, and timers that are replaced when their time changes."""

import asyncio
from collections.abc import Callable

from temporalio import workflow


def now_s() -> float:
    """Return the time of the workflow in seconds since the epoch."""
    return workflow.now().timestamp()


class Timer:
    """One timer of a run for one purpose.

    Args:
        summary: summary in the Temporal UI.
        ring: called when the timer fires.
    """

    def __init__(self, summary: str, ring: Callable[[], None]) -> None:
        self._summary = summary
        self._ring = ring
        self._sleeping: asyncio.Task[None] | None = None
        self.at: float | None = None
        """Time at which it fires, in seconds since the epoch; `None` if it is stopped."""

    def set(self, at: float | None) -> None:
        """Replace the timer, or stop it."""
        self.stop()
        if at is None:
            return
        self.at = at
        self._sleeping = asyncio.create_task(workflow.sleep(max(at - now_s(), 0.001), summary=self._summary))
        self._sleeping.add_done_callback(self._end)

    def stop(self) -> None:
        """Stop the timer."""
        if self._sleeping is not None:
            self._sleeping.cancel()
        self._sleeping = self.at = None

    def _end(self, sleeping: "asyncio.Task[None]") -> None:
        if sleeping.cancelled():
            return
        if sleeping is self._sleeping:
            self._sleeping = self.at = None
        self._ring()
