"""Time of the workflow, and timers whose time can be changed."""

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
        on_fire: called when the timer fires.
    """

    def __init__(self, summary: str, on_fire: Callable[[], None]) -> None:
        self._summary = summary
        self._on_fire = on_fire
        self._sleep: asyncio.Task[None] | None = None
        self.at: float | None = None
        """Time at which the timer fires, in seconds since the epoch; `None` if the timer is stopped."""

    def set(self, at: float | None) -> None:
        """Set the time at which the timer fires; `None` stops the timer."""
        self.stop()
        if at is None:
            return
        self.at = at
        self._sleep = asyncio.create_task(workflow.sleep(max(at - now_s(), 0.001), summary=self._summary))
        self._sleep.add_done_callback(self._end)

    def stop(self) -> None:
        """Stop the timer."""
        if self._sleep is not None:
            self._sleep.cancel()
        self._sleep = self.at = None

    def _end(self, sleep: "asyncio.Task[None]") -> None:
        if sleep.cancelled():
            return
        if sleep is self._sleep:
            self._sleep = self.at = None
        self._on_fire()
