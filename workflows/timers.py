"""The workflow's own time, and timers that are made anew where their time changes."""

import asyncio
from collections.abc import Callable

from temporalio import workflow


def now_s() -> float:
    """Returns the workflow's own time in seconds since the epoch."""
    return workflow.now().timestamp()


class Timer:
    """One timer of a run at most, for one purpose.

    Args:
        summary: what the Temporal UI shows of it.
        ring: called when it is due.
    """

    def __init__(self, summary: str, ring: Callable[[], None]) -> None:
        self._summary = summary
        self._ring = ring
        self._sleeping: asyncio.Task[None] | None = None
        self.at: float | None = None
        """When it is due, in seconds since the epoch; `None` if there is none."""

    def set(self, at: float | None) -> None:
        """Makes it anew for a time, or stops it."""
        self.stop()
        if at is None:
            return
        self.at = at
        self._sleeping = asyncio.create_task(workflow.sleep(max(at - now_s(), 0.001), summary=self._summary))
        self._sleeping.add_done_callback(self._end)

    def stop(self) -> None:
        """Stops it, if there is one."""
        if self._sleeping is not None:
            self._sleeping.cancel()
        self._sleeping = self.at = None

    def _end(self, sleeping: "asyncio.Task[None]") -> None:
        if sleeping.cancelled():
            return
        if sleeping is self._sleeping:
            self._sleeping = self.at = None
        self._ring()
