"""The activity that waits for the payload store, so that its outage costs a call no attempt.

It only reads, and deletes what it writes, so Temporal may repeat it. This module must not import workflows.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity

from activities.heartbeats import kept_alive
from activities.store_waits import with_store
from activities.values import Values
from dagwright.core.boundary.limits import STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_AWAIT_STORE
from dagwright.store import PayloadStore, StoreUnavailable
from dagwright.tools.errors import ValueLost

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
