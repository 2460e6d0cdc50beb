"""Wait for a condition with a deadline, for everything that a test can only observe from outside."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 0.15
"""Slow conditions are checked less often, because a query takes some ms of CPU time in the test and in the server."""


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, timeout_s: float = 120.0) -> None:
    """Wait until `condition` holds; raise AssertionError after the timeout."""
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        result = condition()
        if result if isinstance(result, bool) else await result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(condition, '__name__', condition)} did not hold in {timeout_s:g} s")
        await asyncio.sleep(pause_s)
        pause_s = min(1.2 * pause_s, _MAX_PAUSE_S)
