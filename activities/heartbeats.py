"""Keeps an activity alive while its tool works, and carries what the tool says about itself.

The worker hands on at once what is sent here (`HEARTBEAT_THROTTLE`), so how often that is is decided here: each is
written to the disk of the server.
"""

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity

from dagwright.contracts.text_so_far import TextSoFar
from dagwright.contracts.usage import NONE, USAGE_PLACE, Usage, usage_of_heartbeat
from dagwright.contracts.wire import DETAIL_USAGE
from dagwright.tools.context import Progress

LONGEST_INTERVAL_S = 5.0
"""A cancel reaches an activity only in the answer to a heartbeat, so this bounds how late a tool hears it."""

SHORTEST_INTERVAL_S = 2.0
"""Between two heartbeats in which a tool says something: it may do so a thousand times a second."""

LATE_S = 1.0
"""A heartbeat that comes so much later than it was due is told; a third of the shortest timeout."""

_LOG = structlog.stdlib.get_logger("activities.heartbeats")


class Heartbeats:
    """Heartbeats of one attempt: what the tool keeps for the next one, its progress, and what models have used so far.

    Must be made inside the activity, on its event loop; `beat` may then be called from any thread.
    """

    def __init__(self, info: activity.Info) -> None:
        # A heartbeat without details would throw away what an earlier attempt left; its text is of no use any more.
        self._details: list[Any] = list(info.heartbeat_details)[:USAGE_PLACE]
        self._usage = usage_of_heartbeat(info.heartbeat_details)
        self._interval_s = _interval_s(info.heartbeat_timeout)
        self._loop = asyncio.get_running_loop()
        self._activity = contextvars.copy_context()
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._text: TextSoFar | None = None
        self._sent_at = -SHORTEST_INTERVAL_S
        self._soon: asyncio.TimerHandle | None = None
        """Sends what has been said since the last heartbeat."""

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
            self._loop.call_soon_threadsafe(self._send_soon, context=self._activity)

    def add_usage(self, usage: Usage) -> None:
        """Sends a heartbeat soon with what a model has used, for the next attempt; to be called on the event loop."""
        self._usage += usage
        self._activity.run(self._send_soon)

    def tell(self, text: TextSoFar) -> None:
        """Sends a heartbeat at once with what has been written so far, for whoever looks; to be called on the event
        loop, at a pace that the caller keeps."""
        self._text = text
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
        if self._soon is not None:
            # The next attempt goes on from it.
            self._activity.run(self._send)
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

    def _send_soon(self) -> None:
        wait_s = self._sent_at + SHORTEST_INTERVAL_S - self._loop.time()
        if wait_s <= 0:
            self._send()
        elif self._soon is None and not self._is_over:
            self._soon = self._loop.call_later(wait_s, self._send)

    def _send(self) -> None:
        if self._is_over:
            return
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._sent_at = self._loop.time()
        activity.heartbeat(*self._told())

    def _told(self) -> list[Any]:
        """Returns the details of a heartbeat, each part in its place."""
        if self._usage == NONE and self._text is None:
            return self._details
        usage = None if self._usage == NONE else {DETAIL_USAGE: self._usage.to_json()}
        told = [*[*self._details, None, None][:USAGE_PLACE], usage]
        return told if self._text is None else [*told, self._text.to_json()]


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
