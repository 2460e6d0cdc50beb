"""Wait for a payload store that does not answer, so that its outage costs a call no attempt."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio import activity

from dagwright.activities.heartbeats import Heartbeats, kept_alive
from dagwright.activities.values import Load, Loaded, Values
from dagwright.core.boundary.limits import STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_AWAIT_STORE
from dagwright.store import PayloadStore, StoreUnavailable
from dagwright.tools.context import Cancellation
from dagwright.tools.errors import ResultNotKept, ValueLost, ValueNotLoaded

AwaitStore = Callable[[dict[str, Any]], Awaitable[None]]

_LEAST_PROBE_BYTES = 64
_CLOCK_MARGIN = timedelta(minutes=5)
"""By how much the clock of the store may be ahead of this one."""


def await_store_activity(store: PayloadStore, values: Values) -> AwaitStore:
    """Return the activity `await_store`."""

    @activity.defn(name=ACTIVITY_AWAIT_STORE)
    async def await_store(message: dict[str, Any]) -> None:
        """Return when the store takes a new value and has those of the message.

        A value that is lost does not delay the call, which reports it.

        Args:
            message: `refs` of values, `size_bytes` of the value to write, `pause_s` before the store is asked.
        """

        async def probe() -> None:
            await _put_and_delete(store, int(message.get("size_bytes", 0)))
            with suppress(ValueLost):
                await values.load([str(ref) for ref in message.get("refs", ())])

        if (pause_s := float(message.get("pause_s", 0.0))) > 0:
            with kept_alive():
                await asyncio.sleep(pause_s)
        await with_store(probe)

    return await_store


async def _put_and_delete(store: PayloadStore, size_bytes: int) -> None:
    """Check that the store takes a value of a size.

    The bytes are new each time: a value that is in the store already takes no space, and a full disk would accept it.
    """
    size_bytes = min(max(size_bytes, _LEAST_PROBE_BYTES), STORED_VALUE_LIMIT_BYTES)
    ref = await store.put(await asyncio.to_thread(os.urandom, size_bytes))
    # The clean-up of the store finds a probe that could not be deleted.
    with suppress(StoreUnavailable):
        await store.delete(ref, renewed_before=datetime.now(UTC) + _CLOCK_MARGIN)


T = TypeVar("T")

LONGEST_PAUSE_S = 15.0
"""Rest before the store is asked again; the first is half a second, and each twice as long as the one before."""
STORE_MARGIN_S = 10.0
"""Before the end of an attempt, its result waits no longer for the store: the last try may take 8 s."""
_LOOK_S = 0.2
"""How often somebody who waits looks whether he shall stop."""


class StoreWaits:
    """The waits of one attempt.

    Args:
        heartbeats: of the attempt; they have begun.
        cancellation: tells that the attempt shall stop.
    """

    def __init__(self, heartbeats: Heartbeats, cancellation: Cancellation) -> None:
        self._heartbeats = heartbeats
        self._cancellation = cancellation
        # What an attempt before this one told stands until something else is told.
        self._is_told = heartbeats.has_waited

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request to the store, however long the store does not answer.

        Raises:
            asyncio.CancelledError: the attempt was cancelled.
        """
        return await self.until(math.inf, ask, is_wanted=lambda: True)

    async def until(self, give_up_at: float, ask: Callable[[], Awaitable[T]], *, is_wanted: Callable[[], bool]) -> T:
        """Return the result of a request to the store, as soon as the store answers.

        Args:
            give_up_at: of the monotonic clock.
            is_wanted: whether to continue waiting.

        Raises:
            asyncio.CancelledError: the attempt was cancelled.
            StoreUnavailable, ValueNotLoaded, ResultNotKept: the store did not answer in time.
        """
        pause_s = 0.5
        try:
            while True:
                try:
                    return await ask()
                except (StoreUnavailable, ValueNotLoaded, ResultNotKept) as error:
                    if time.monotonic() + pause_s >= give_up_at or not is_wanted():
                        raise
                    self._heartbeats.wait_for(str(error))
                    self._is_told = True
                    await self._rest(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S, max(0.1, give_up_at - time.monotonic()))
        finally:
            if self._is_told:
                self._heartbeats.wait_for(None)
            self._is_told = False

    async def _rest(self, pause_s: float) -> None:
        # Who waits for a thread is no part of the attempt's own task, so nothing but a look tells it to stop.
        for _ in range(max(1, round(pause_s / _LOOK_S))):
            if self._cancellation.is_requested:
                raise asyncio.CancelledError
            await asyncio.sleep(_LOOK_S)

    def loader(self, values: Values, loop: asyncio.AbstractEventLoop) -> Load:
        """Returns what loads values into a thread; it raises `concurrent.futures.CancelledError` when it shall stop."""

        async def loaded(refs: Sequence[str]) -> Mapping[str, Loaded]:
            return await self.patiently(lambda: values.load(refs))

        return lambda refs: asyncio.run_coroutine_threadsafe(loaded(refs), loop).result()


async def with_store(ask: Callable[[], Awaitable[T]]) -> T:
    """Send an internal activity's request to the store, and heartbeat until the store answers."""
    heartbeats = Heartbeats(activity.info())
    with heartbeats.sent():
        return await StoreWaits(heartbeats, Cancellation()).patiently(ask)
