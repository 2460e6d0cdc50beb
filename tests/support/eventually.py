"""Waiting for a condition with a deadline, for everything that a test can only look at from outside."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_POLL_S = 0.02


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, timeout_s: float = 120.0) -> None:
    """Waits until `condition` holds.

    The deadline is for what never happens: a machine that is busy may take long over what does.

    Raises:
        AssertionError: it does not within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(condition, '__name__', condition)} did not hold in {timeout_s:g} s")
        await asyncio.sleep(_POLL_S)
