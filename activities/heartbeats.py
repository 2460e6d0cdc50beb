"""Keeps an activity alive while its tool works, and carries what the tool says about itself."""

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity

from dagwright.contracts.usage import NONE, USAGE_PLACE, Usage, usage_of_heartbeat
from dagwright.contracts.wire import DETAIL_USAGE
from dagwright.tools.context import Progress

LONGEST_INTERVAL_S = 5.0
"""A cancel reaches an activity only in the answer to a heartbeat, so this bounds how late a tool hears it."""

LATE_S = 1.0
"""A heartbeat that comes so much later than it was due is told; a third of the shortest timeout."""

_LOG = structlog.stdlib.get_logger("activities.heartbeats")


class Heartbeats:
    """Heartbeats of one attempt: what the tool keeps for the next one, its progress, and what models have used so far.

    Must be made inside the activity, on its event loop; `beat` may then be called from any thread.
    """

    def __init__(self, info: activity.Info) -> None:
        # A heartbeat without details would throw away what an earlier attempt left.
        self._details: list[Any] = list(info.heartbeat_details)
        self._usage = usage_of_heartbeat(info.heartbeat_details)
        self._interval_s = _interval_s(info.heartbeat_timeout)
        self._loop = asyncio.get_running_loop()
        self._activity = contextvars.copy_context()
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last_details(self) -> Any:
        """What the tool itself gave to its last heartbeat in an earlier attempt, `None` if nothing."""
        return self._details[0] if self._details else None

    @property
    def usage(self) -> Usage:
        """Returns what the models have used that this attempt and those before it have asked."""
        return self._usage

    def beat(self, details: Any, progress: Progress | None) -> None:
        """Sends a heartbeat soon and keeps its details for those to come; after the call is over, nothing."""
        reported = [] if progress is None else [{"done": progress.done, "total": progress.total}]
        self._details = [details, *reported]
        if not self._is_over:
            self._loop.call_soon_threadsafe(self._send, context=self._activity)

    def add_usage(self, usage: Usage) -> None:
        """Sends a heartbeat with what a model has used, for the next attempt; to be called on the event loop."""
        self._usage += usage
        self._activity.run(self._send)

    @contextmanager
    def sent(self) -> Iterator[None]:
        """Sends a heartbeat at each interval as long as it is used."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Sends a heartbeat at each interval from now on."""
        # A timer and not a task: most calls end before the first heartbeat is due, and a task costs more than they do.
        self._timer = self._loop.call_later(self._interval_s, self._beat_on, context=self._activity)

    def stop(self) -> None:
        """Sends no heartbeat any more."""
        self._is_over = True
        if self._timer is not None:
            self._warn_if_late(self._timer)
            self._timer.cancel()
            self._timer = None

    def _beat_on(self) -> None:
        if self._timer is not None:
            self._warn_if_late(self._timer)
        self._send()
        self.start()

    def _warn_if_late(self, timer: asyncio.TimerHandle) -> None:
        """Tells of an event loop that stood still: nobody on it can heartbeat, so attempts are given up as lost."""
        late_s = self._loop.time() - timer.when()
        if late_s > LATE_S:
            _LOG.warning(
                "the event loop stood still, so no heartbeat could be sent: an async tool must not block; "
                "write it as a plain def, which runs in a thread, or await what takes long",
                late_s=round(late_s, 1),
            )

    def _send(self) -> None:
        if self._is_over:
            return
        if self._usage == NONE:
            activity.heartbeat(*self._details)
        else:
            activity.heartbeat(*[*self._details, None, None][:USAGE_PLACE], {DETAIL_USAGE: self._usage.to_json()})


@contextmanager
def kept_alive() -> Iterator[None]:
    """Sends the heartbeats of the activity it is used in, so that the server soon hears of the death of its worker."""
    with Heartbeats(activity.info()).sent():
        yield


def _interval_s(timeout: timedelta | None) -> float:
    """Returns a third of the timeout: two heartbeats may be lost before the server gives the attempt up."""
    if timeout is None:
        return LONGEST_INTERVAL_S
    return min(timeout.total_seconds() / 3, LONGEST_INTERVAL_S)
