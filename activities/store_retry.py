"""Wait for a payload store that does not respond, so that a store outage uses up no attempt of a call."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio import activity

from dagwright.activities.heartbeats import Heartbeats, heartbeating
from dagwright.activities.values import LargeValues, Load, LoadedValue
from dagwright.core.boundary.limits import STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_AWAIT_STORE
from dagwright.store import PayloadStore, StoreUnavailable
from dagwright.tools.context import Cancellation
from dagwright.tools.errors import ArgumentNotLoaded, ResultNotStored, ValueLost

AwaitStore = Callable[[dict[str, Any]], Awaitable[None]]

_MIN_PROBE_BYTES = 64
_CLOCK_MARGIN = timedelta(minutes=5)
"""Maximum difference between the clocks of the store and this machine."""


def await_store_activity(store: PayloadStore, values: LargeValues) -> AwaitStore:
    """Return the activity `await_store`."""

    @activity.defn(name=ACTIVITY_AWAIT_STORE)
    async def await_store(message: dict[str, Any]) -> None:
        """Wait until the store accepts a new value and returns the values that the message names.

        A lost value does not extend the wait: the call that needs the value reports the loss.

        Args:
            message: `refs` of values, `size_bytes` of the value to write, `pause_s` before the first request.
        """

        async def probe() -> None:
            await _put_and_delete(store, int(message.get("size_bytes", 0)))
            with suppress(ValueLost):
                await values.load([str(ref) for ref in message.get("refs", ())])

        if (pause_s := float(message.get("pause_s", 0.0))) > 0:
            with heartbeating():
                await asyncio.sleep(pause_s)
        await retry_store_request(probe)

    return await_store


async def _put_and_delete(store: PayloadStore, size_bytes: int) -> None:
    """Check that the store accepts a value of a given size.

    The bytes are new each time: a value that is already stored takes no space, so a full disk would accept it.
    """
    size_bytes = min(max(size_bytes, _MIN_PROBE_BYTES), STORED_VALUE_LIMIT_BYTES)
    ref = await store.put(await asyncio.to_thread(os.urandom, size_bytes))
    # The clean-up of the store finds a probe that could not be deleted.
    with suppress(StoreUnavailable):
        await store.delete(ref, renewed_before=datetime.now(UTC) + _CLOCK_MARGIN)


T = TypeVar("T")

MAX_PAUSE_S = 15.0
"""Maximum pause between requests to the store; the first pause is half a second, and each pause doubles the previous
pause."""
STORE_MARGIN_S = 10.0
"""Time before the end of an attempt at which a result stops waiting for the store; the last request may take 8 s."""
_POLL_INTERVAL_S = 0.2
"""How often a wait checks for cancellation."""


class StoreRetry:
    """Retries of one attempt while the payload store does not respond.

    Args:
        heartbeats: heartbeats of the attempt; they have started.
        cancellation: shows whether the attempt was cancelled.
    """

    def __init__(self, heartbeats: Heartbeats, cancellation: Cancellation) -> None:
        self._heartbeats = heartbeats
        self._cancellation = cancellation
        # If an earlier attempt reported a wait, the server shows the reason until another heartbeat replaces it.
        self._is_wait_reported = heartbeats.has_waited_for_store

    async def retry(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until the store responds, without a time limit, and return the result.

        Raises:
            asyncio.CancelledError: the attempt was cancelled.
        """
        return await self.retry_until(math.inf, request, should_continue=lambda: True)

    async def retry_until(
        self, give_up_at: float, request: Callable[[], Awaitable[T]], *, should_continue: Callable[[], bool]
    ) -> T:
        """Return the result of a request to the store as soon as the store responds.

        Args:
            give_up_at: time on the monotonic clock.
            should_continue: returns whether to continue waiting.

        Raises:
            asyncio.CancelledError: the attempt was cancelled.
            StoreUnavailable, ArgumentNotLoaded, ResultNotStored: the store did not respond in time.
        """
        pause_s = 0.5
        try:
            while True:
                try:
                    return await request()
                except (StoreUnavailable, ArgumentNotLoaded, ResultNotStored) as error:
                    if time.monotonic() + pause_s >= give_up_at or not should_continue():
                        raise
                    self._heartbeats.report_store_wait(str(error))
                    self._is_wait_reported = True
                    await self._pause(pause_s)
                    pause_s = min(2 * pause_s, MAX_PAUSE_S, max(0.1, give_up_at - time.monotonic()))
        finally:
            if self._is_wait_reported:
                self._heartbeats.report_store_wait(None)
            self._is_wait_reported = False

    async def _pause(self, pause_s: float) -> None:
        # Poll: a request from a thread runs outside the attempt's task, so a cancellation does not interrupt it.
        for _ in range(max(1, round(pause_s / _POLL_INTERVAL_S))):
            if self._cancellation.is_requested:
                raise asyncio.CancelledError
            await asyncio.sleep(_POLL_INTERVAL_S)

    def loader(self, values: LargeValues, loop: asyncio.AbstractEventLoop) -> Load:
        """Return a blocking loader for threads, which raises `concurrent.futures.CancelledError` on cancellation."""

        async def load(refs: Sequence[str]) -> Mapping[str, LoadedValue]:
            return await self.retry(lambda: values.load(refs))

        return lambda refs: asyncio.run_coroutine_threadsafe(load(refs), loop).result()


async def retry_store_request(request: Callable[[], Awaitable[T]]) -> T:
    """Send an internal activity's request to the store, and heartbeat until the store responds."""
    heartbeats = Heartbeats(activity.info())
    with heartbeats.running():
        return await StoreRetry(heartbeats, Cancellation()).retry(request)
