"""Keeps an activity alive while its tool works, and carries what the tool says about itself.

The worker sends each heartbeat to the server without delay (`HEARTBEAT_THROTTLE`), and the server writes it to disk, so
this module limits how often heartbeats are sent.
"""

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity

from dagwright.activities.call_starts import CallStarts, CallStopped
from dagwright.core.boundary.usage import (
    NONE,
    USAGE_INDEX,
    Usage,
    earlier_calls,
    started_attempt,
    usage_of_heartbeat,
    wait_of_heartbeat,
)
from dagwright.core.boundary.wire import DETAIL_CALLS, DETAIL_STARTED, DETAIL_USAGE, DETAIL_WAITS_FOR
from dagwright.planning.model_calls.partial_text import TextSoFar
from dagwright.tools.context import Progress

LONGEST_INTERVAL_S = 5.0
"""A cancel reaches an activity only in the answer to a heartbeat, so this bounds how late a tool hears it."""

SHORTEST_INTERVAL_S = 2.0
"""Between two heartbeats in which a tool says something: it may do so a thousand times a second."""

LATE_S = 1.0
"""A heartbeat that comes so much later than it was due is told; a third of the shortest timeout."""

_LOG = structlog.stdlib.get_logger("dagwright.activities.heartbeats")


class Heartbeats:
    """Heartbeats of one attempt: what the tool keeps for the next one, its progress, and what models have used so far.

    Must be made inside the activity, on its event loop; `beat` may then be called from any thread.

    Args:
        starts: records that the tool is called; until then each heartbeat goes the same way, so that none that is still
            on its way can replace the record. Without it nothing is recorded.
    """

    def __init__(self, info: activity.Info, *, starts: CallStarts | None = None) -> None:
        self._info, self._starts = info, starts
        # Without it a heartbeat would remove the record of an earlier attempt, and the next attempt call again.
        self._started = started_attempt(info.heartbeat_details)
        self._is_recording = False
        """Meanwhile no other heartbeat is sent: it would report a start before the server has the record of it."""
        self._calls = (earlier_calls(info.heartbeat_details, info.attempt), info.attempt - 1)
        """How many attempts have called the tool of a `write`, and the last of them."""
        self._is_record_over = False
        """The attempt needs no record any more, so the SDK sends its heartbeats."""
        self._beating: asyncio.Task[None] | None = None
        """Sends a heartbeat before the tool is called."""
        # A heartbeat without details would throw away what an earlier attempt left; its text is of no use any more.
        self._details: list[Any] = list(info.heartbeat_details)[:USAGE_INDEX]
        self._usage = usage_of_heartbeat(info.heartbeat_details)
        self._waits_for: str | None = None
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

    @property
    def earlier_start(self) -> int | None:
        """Return the attempt before this one that has called the tool and did not report its end."""
        return started_attempt(self._info.heartbeat_details)

    @property
    def calls(self) -> int:
        """Return how many attempts have called the tool, this one included; all attempts count without records."""
        return self._info.attempt if self._starts is None else self._calls[0]

    @property
    def has_waited(self) -> bool:
        """Return whether the last heartbeat of an earlier attempt named something that it waited for."""
        return wait_of_heartbeat(self._info.heartbeat_details) is not None

    async def record_start(self) -> None:
        """Record that the tool is about to be called; the server has the record when this returns.

        Raises:
            CallStopped: the tool must not be called.
        """
        if self._starts is None:
            return
        # Heartbeats go on while the call waits for its turn.
        async with self._starts.turns:
            await self._record_start(self._starts)

    async def _record_start(self, starts: CallStarts) -> None:
        if self._beating is not None:
            await self._beating
        before, self._calls = self._calls, (self._calls[0] + 1, self._info.attempt)
        self._started, self._is_recording = self._info.attempt, True
        try:
            await starts.record(self._info.task_token, self._heartbeat_details())
        except (CallStopped, asyncio.CancelledError) as stopped:
            self._started, self._calls, self._is_recording = None, before, False
            if isinstance(stopped, CallStopped):
                self._starts = None
            else:
                # The server may have the record, although the tool is not called.
                self._is_record_over = True
            # The SDK learns of a cancel from the response to a heartbeat that it sends itself.
            self._activity.run(self._send)
            raise
        self._is_recording = False

    async def record_end(self) -> None:
        """Remove the record: the call ended, and is known to have changed nothing."""
        if self._starts is None or self._started is None or self.earlier_start is not None:
            return
        self._started, self._is_record_over = None, True
        # The SDK reports its own last heartbeat with the failure.
        self._activity.run(self._send)
        with suppress(CallStopped):
            await self._starts.record(self._info.task_token, self._heartbeat_details())

    async def _record_beat(self) -> None:
        if self._starts is not None:
            with suppress(CallStopped):
                await self._starts.record(self._info.task_token, self._heartbeat_details())

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

    def wait_for(self, reason: str | None) -> None:
        """Send a heartbeat soon with the reason why the attempt waits, beside what the tool keeps.

        Call it on the event loop.

        Args:
            reason: `None` if it does not wait any more.
        """
        self._waits_for = reason
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
        if self._is_over or self._is_recording:
            return
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._sent_at = self._loop.time()
        if self._starts is None or self._started is not None or self._is_record_over:
            activity.heartbeat(*self._heartbeat_details())
        elif self._beating is None or self._beating.done():
            self._beating = self._loop.create_task(self._record_beat())

    def _heartbeat_details(self) -> list[Any]:
        """Returns the details of a heartbeat, each part in its place."""
        beside: dict[str, Any] = {} if self._usage == NONE else {DETAIL_USAGE: self._usage.to_json()}
        if self._started is not None:
            beside[DETAIL_STARTED] = self._started
        if self._waits_for is not None:
            beside[DETAIL_WAITS_FOR] = self._waits_for
        if self._calls[0]:
            beside[DETAIL_CALLS] = [*self._calls]
        if not beside and self._text is None:
            return self._details
        details = [*[*self._details, None, None][:USAGE_INDEX], beside or None]
        return details if self._text is None else [*details, self._text.to_json()]


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
