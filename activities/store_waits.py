"""Waits for a payload store that does not answer, and tells the server so meanwhile.

For whoever heartbeats and has time, such as a region: an outage costs it no attempt and no node. This module must not
import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from activities.heartbeats import Heartbeats
from activities.values import Load, Loaded, Values
from dagwright.contracts.wire import DETAIL_WAITS_FOR
from dagwright.store import StoreUnavailable
from dagwright.tools.context import Cancellation
from dagwright.tools.errors import ResultNotKept, ValueNotLoaded

T = TypeVar("T")

LONGEST_PAUSE_S = 15.0
"""Rest before the store is asked again; the first is half a second, and each twice as long as the one before."""
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
        self._is_told = heartbeats.last_details is not None

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Returns what is asked for, as soon as the store answers.

        Raises:
            asyncio.CancelledError: the attempt was told to stop.
        """
        pause_s = 0.5
        while True:
            try:
                answer = await ask()
            except (StoreUnavailable, ValueNotLoaded, ResultNotKept) as error:
                self._heartbeats.beat({DETAIL_WAITS_FOR: str(error)}, None)
                self._is_told = True
                await self._rest(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                if self._is_told:
                    self._heartbeats.beat(None, None)
                self._is_told = False
                return answer

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
