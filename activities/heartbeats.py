"""Heartbeats of an activity while its tool runs, with the details that the tool reports.

The worker sends each heartbeat to the server without delay (`HEARTBEAT_THROTTLE`), and the server writes it to disk, so
this module limits how often heartbeats are sent.
"""

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity

from dagwright.activities.call_starts import CallStarts, CallStopped
from dagwright.core.boundary.usage_reports import (
    NO_USAGE,
    USAGE_INDEX,
    DeferralReport,
    Usage,
    earlier_call_count,
    earlier_deferrals,
    started_attempt,
    store_wait_reason,
    usage_of_heartbeat,
)
from dagwright.core.boundary.wire import (
    DETAIL_CALLS,
    DETAIL_DEFERRED,
    DETAIL_LIMITED_BY,
    DETAIL_STARTED,
    DETAIL_STORE_ERROR,
    DETAIL_USAGE,
)
from dagwright.planning.model_calls.heartbeat_text import HeartbeatText
from dagwright.tools.context import Progress

MAX_INTERVAL_S = 5.0
"""Maximum interval of heartbeats. An activity receives a cancellation only in the response to its next heartbeat."""

MIN_INTERVAL_S = 2.0
"""Minimum interval of heartbeats with details: a tool may report a thousand times a second."""

LATE_S = 1.0
"""Delay above which a late heartbeat is logged: a third of the shortest heartbeat timeout."""

_LOG = structlog.stdlib.get_logger("dagwright.activities.heartbeats")


class Heartbeats:
    """Heartbeats of one attempt: the tool's details for the next attempt, its progress, and the token usage.

    For a `write` call, the heartbeats also contain the *start record*: the number of the attempt that calls the tool.
    Create this object inside the activity, on its event loop; `beat` may then be called from any thread.

    Args:
        starts: sends the start record; `None` for a call without a start record. Until the start record is sent,
            `starts` also sends every heartbeat, so that no heartbeat in flight can overwrite the record.
    """

    def __init__(self, info: activity.Info, *, starts: CallStarts | None = None) -> None:
        self._temporal_attempt = info.attempt
        self._deferrals = earlier_deferrals(info.heartbeat_details, info.attempt)
        # Deferred attempts do not count.
        info = replace(info, attempt=info.attempt - self._deferrals.count)
        self._info, self._starts = info, starts
        # Each heartbeat repeats the start record: a heartbeat without the record would delete the record, and the next
        # attempt would repeat the call.
        self._recorded_start = started_attempt(info.heartbeat_details)
        self._is_recording = False
        """Whether the start record is being sent. Meanwhile no other heartbeat is sent: it would contain the record,
        before the server has acknowledged the record."""
        self._call_count_and_attempt = (earlier_call_count(info.heartbeat_details, info.attempt), info.attempt - 1)
        """Number of attempts of a `write` call that have called the tool, and the last of these attempts."""
        self._earlier_call_count_and_attempt = self._call_count_and_attempt
        self._is_record_obsolete = False
        """Whether the attempt no longer needs the start record, so that the SDK sends the heartbeats again."""
        self._send_task: asyncio.Task[None] | None = None
        """The task that sends a heartbeat before the tool is called."""
        # A heartbeat without details would discard the details of an earlier attempt. The partial text of that attempt
        # is obsolete, so the text is not repeated.
        self._details: list[Any] = list(info.heartbeat_details)[:USAGE_INDEX]
        self._usage = usage_of_heartbeat(info.heartbeat_details)
        self._store_error: str | None = None
        self._limit_reason: str | None = None
        self._interval_s = _interval_s(info.heartbeat_timeout)
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._text: HeartbeatText | None = None
        self._sent_at = -MIN_INTERVAL_S
        self._details_timer: asyncio.TimerHandle | None = None
        """The timer that sends the details reported since the last heartbeat."""

    @property
    def last_details(self) -> Any:
        """The details of the tool's last heartbeat in an earlier attempt, `None` if there is no such heartbeat."""
        return self._details[0] if self._details else None

    @property
    def usage(self) -> Usage:
        """Return the token usage of this attempt and all earlier attempts."""
        return self._usage

    @property
    def earlier_started_attempt(self) -> int | None:
        """Return the number of an earlier attempt that called the tool and did not report the end of the call."""
        return started_attempt(self._info.heartbeat_details)

    @property
    def call_count(self) -> int:
        """Return how many attempts, including this attempt, have called the tool.

        Without records, every attempt counts.
        """
        return self._info.attempt if self._starts is None else self._call_count_and_attempt[0]

    @property
    def info(self) -> activity.Info:
        """Information about the activity; its attempt number does not count deferred attempts."""
        return self._info

    @property
    def deferral_count(self) -> int:
        """Return how many earlier attempts were deferred."""
        return self._deferrals.count

    @property
    def deferred_state(self) -> Any:
        """Return the state that the previous attempt left if it was deferred, else `None`."""
        return self._deferrals.state

    async def record_deferral(self, state: Any) -> None:
        """Report to the next attempt that this attempt does not count; this attempt must then fail.

        Args:
            state: JSON for the next attempt.
        """
        if self._send_task is not None:
            await self._send_task
        self._call_count_and_attempt = self._earlier_call_count_and_attempt
        self._deferrals = DeferralReport(self._deferrals.count + 1, self._temporal_attempt, state)
        # The SDK repeats its own last heartbeat with the failure, so its last heartbeat must contain the deferral.
        self._is_record_obsolete = True
        self._context.run(self._send)

    @property
    def has_waited_for_store(self) -> bool:
        """Return whether the last heartbeat of an earlier attempt reported a wait for the payload store."""
        return store_wait_reason(self._info.heartbeat_details) is not None

    async def record_start(self) -> None:
        """Record that the tool is about to be called; when this returns, the server has the record.

        Raises:
            CallStopped: the tool must not be called.
        """
        if self._starts is None:
            return
        # Heartbeats continue while the call waits for a record slot.
        async with self._starts.record_slots:
            await self._record_start(self._starts)

    async def _record_start(self, starts: CallStarts) -> None:
        if self._send_task is not None:
            await self._send_task
        self._call_count_and_attempt = (self._call_count_and_attempt[0] + 1, self._info.attempt)
        self._recorded_start, self._is_recording = self._info.attempt, True
        try:
            await starts.record(self._info.task_token, self._heartbeat_details())
        except (CallStopped, asyncio.CancelledError) as error:
            self._recorded_start, self._call_count_and_attempt, self._is_recording = (
                None,
                self._earlier_call_count_and_attempt,
                False,
            )
            if isinstance(error, CallStopped):
                self._starts = None
            else:
                # The server may have the record although the tool is not called.
                self._is_record_obsolete = True
            # The SDK receives a cancellation only in the response to a heartbeat that the SDK sends.
            self._context.run(self._send)
            raise
        self._is_recording = False

    async def record_end(self) -> None:
        """Remove the record: the call ended and has certainly changed nothing."""
        if self._starts is None or self._recorded_start is None or self.earlier_started_attempt is not None:
            return
        self._recorded_start, self._is_record_obsolete = None, True
        # The SDK repeats its own last heartbeat with the failure, so its last heartbeat must not contain the record.
        self._context.run(self._send)
        with suppress(CallStopped):
            await self._starts.record(self._info.task_token, self._heartbeat_details())

    async def _send_acknowledged(self) -> None:
        if self._starts is not None:
            with suppress(CallStopped):
                await self._starts.record(self._info.task_token, self._heartbeat_details())

    def beat(self, details: Any, progress: Progress | None) -> None:
        """Send a heartbeat soon and repeat its details in later heartbeats; do nothing after the end of the call."""
        progress_details = [] if progress is None else [{"done": progress.done, "total": progress.total}]
        self._details = [details, *progress_details]
        if not self._is_over:
            self._loop.call_soon_threadsafe(self._send_soon, context=self._context)

    def add_usage(self, usage: Usage) -> None:
        """Send a heartbeat soon with the added token usage, for the next attempt. Call this on the event loop."""
        self._usage += usage
        self._context.run(self._send_soon)

    def report_store_wait(self, reason: str | None) -> None:
        """Send a heartbeat soon with the reason why the attempt waits for the payload store.

        Call this method on the event loop.

        Args:
            reason: `None` if the attempt no longer waits.
        """
        self._store_error = reason
        self._context.run(self._send_soon)

    def report_limit(self, reason: str | None) -> None:
        """Send a heartbeat soon with the call limit that the attempt waits for.

        Call this method on the event loop.

        Args:
            reason: `None` if the attempt no longer waits.
        """
        if self._limit_reason != reason:
            self._limit_reason = reason
            self._context.run(self._send_soon)

    def report_text(self, text: HeartbeatText) -> None:
        """Send a heartbeat at once with the partial text; call this method on the event loop, at a limited rate."""
        self._text = text
        self._context.run(self._send)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send a heartbeat at each interval inside the `with` block."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Start sending a heartbeat at each interval."""
        # A timer instead of a task: most calls end before the first heartbeat, and a task costs more than such a call.
        self._timer = self._loop.call_later(self._interval_s, self._on_timer, context=self._context)

    def stop(self) -> None:
        """Stop sending heartbeats."""
        if self._details_timer is not None:
            # The next attempt continues from the latest details.
            self._context.run(self._send)
        self._is_over = True
        if self._timer is not None:
            self._warn_if_late(self._timer)
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        if self._timer is not None:
            self._warn_if_late(self._timer)
        self._send()
        self.start()

    def _warn_if_late(self, timer: asyncio.TimerHandle) -> None:
        """Log a warning if the event loop was blocked, because all attempts on the loop may then time out."""
        late_s = self._loop.time() - timer.when()
        if late_s > LATE_S:
            _LOG.warning(
                "the event loop was blocked, so no heartbeat could be sent: an async tool must not block; "
                "write the tool as a plain def, which runs in a thread, or await slow operations",
                late_s=round(late_s, 1),
            )

    def _send_soon(self) -> None:
        wait_s = self._sent_at + MIN_INTERVAL_S - self._loop.time()
        if wait_s <= 0:
            self._send()
        elif self._details_timer is None and not self._is_over:
            self._details_timer = self._loop.call_later(wait_s, self._send)

    def _send(self) -> None:
        if self._is_over or self._is_recording:
            return
        if self._details_timer is not None:
            self._details_timer.cancel()
            self._details_timer = None
        self._sent_at = self._loop.time()
        if self._starts is None or self._recorded_start is not None or self._is_record_obsolete:
            activity.heartbeat(*self._heartbeat_details())
        elif self._send_task is None or self._send_task.done():
            self._send_task = self._loop.create_task(self._send_acknowledged())

    def _heartbeat_details(self) -> list[Any]:
        """Return the details of a heartbeat, each part at its index."""
        reported: dict[str, Any] = {} if self._usage == NO_USAGE else {DETAIL_USAGE: self._usage.to_json()}
        if self._recorded_start is not None:
            reported[DETAIL_STARTED] = self._recorded_start
        if self._store_error is not None:
            reported[DETAIL_STORE_ERROR] = self._store_error
        if self._limit_reason is not None:
            reported[DETAIL_LIMITED_BY] = self._limit_reason
        if self._deferrals.count:
            report = {"count": self._deferrals.count, "attempt": self._deferrals.attempt}
            # The state is for the attempt directly after the deferred attempt, not for later attempts.
            is_new = self._deferrals.attempt == self._temporal_attempt and self._deferrals.state is not None
            reported[DETAIL_DEFERRED] = report | ({"state": self._deferrals.state} if is_new else {})
        if self._call_count_and_attempt[0]:
            reported[DETAIL_CALLS] = [*self._call_count_and_attempt]
        if not reported and self._text is None:
            return self._details
        details = [*[*self._details, None, None][:USAGE_INDEX], reported or None]
        return details if self._text is None else [*details, self._text.to_json()]


@contextmanager
def heartbeating() -> Iterator[None]:
    """Send heartbeats for the current activity, so that the server soon detects the death of the worker."""
    with Heartbeats(activity.info()).running():
        yield


def _interval_s(timeout: timedelta | None) -> float:
    """Return a third of the timeout: two heartbeats may be lost before the attempt times out."""
    if timeout is None:
        return MAX_INTERVAL_S
    return min(timeout.total_seconds() / 3, MAX_INTERVAL_S)
