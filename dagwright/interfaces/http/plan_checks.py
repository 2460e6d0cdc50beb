"""Checks of plans in requests: limited in time and memory, one at a time per API key, and cancelled with the request.

A plan up to `IN_PROCESS_BYTES` is checked in a thread of the gateway: checks are linear in its size and stop after 100
problems, so they take about 0.1 s, plus at most 0.5 s for name suggestions (`name_hints.DEFAULT_HINT_COST`). A larger
plan is checked in a separate process with limited memory (`process_pool.MEMORY_BYTES`). The process is killed after
`CHECK_TIMEOUT_S`, or when the client disconnects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.interfaces.http.errors import RETRY_AFTER_S, rate_limit_error
from dagwright.process.process_pool import ProcessLost, ProcessPool

P = ParamSpec("P")
T = TypeVar("T")

IN_PROCESS_BYTES = 16 * 1024
"""Maximum size of a body whose plan is checked in this process."""
CHECK_TIMEOUT_S = 60.0
"""Twice the time that a plan of 8 MiB takes on a busy machine."""
MAX_WAITING_REQUESTS = 4
"""Large bodies and plans of one API key are processed one at a time, and at most this many of them wait."""


@dataclass(slots=True)
class _KeyLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting_count: int = 0


@dataclass(slots=True)
class PlanChecks:
    """Runs the checks of one gateway.

    Args:
        pool: processes for large plans.
    """

    pool: ProcessPool = field(default_factory=lambda: ProcessPool(timeout_s=CHECK_TIMEOUT_S))
    _locks: dict[str | None, _KeyLock] = field(default_factory=dict)

    async def run(
        self, key_id: str | None, size_bytes: int, function: Callable[P, T], *args: P.args, **keywords: P.kwargs
    ) -> T:
        """Run a function that checks a plan, and return its result.

        Args:
            key_id: ID of the caller's key; `None` without keys.
            size_bytes: size of the request's body.
            function: a module-level function; its arguments and result must be picklable.

        Raises:
            PlanInvalid: the function raised it, or took too much time or memory.
            ApiError: too many large plans of this key wait for their check.
        """
        is_large = size_bytes > IN_PROCESS_BYTES
        async with self.hold_lock(key_id, rejects_if_busy=is_large):
            if not is_large:
                return await asyncio.to_thread(function, *args, **keywords)
            try:
                return await self.pool.run(function, *args, **keywords)
            except TimeoutError:
                raise _too_large_error(f"checking the plan takes longer than {CHECK_TIMEOUT_S:g} s") from None
            except ProcessLost:
                raise _too_large_error("checking the plan takes too much memory") from None

    @asynccontextmanager
    async def hold_lock(self, key_id: str | None, *, rejects_if_busy: bool = False) -> AsyncIterator[None]:
        """Hold the lock of an API key while a plan is checked or a large body is parsed.

        Args:
            rejects_if_busy: whether to reject a request if too many requests of the key wait.

        Raises:
            ApiError: too many requests of the key wait.
        """
        key_lock = self._locks.setdefault(key_id, _KeyLock())
        if rejects_if_busy and key_lock.lock.locked() and key_lock.waiting_count >= MAX_WAITING_REQUESTS:
            raise rate_limit_error(
                "a key may have one large body or plan processed at a time", retry_after_s=RETRY_AFTER_S
            )
        key_lock.waiting_count += 1
        try:
            await key_lock.lock.acquire()
        finally:
            key_lock.waiting_count -= 1
        try:
            yield
        finally:
            key_lock.lock.release()
            if not (key_lock.waiting_count or key_lock.lock.locked()):
                self._locks.pop(key_id, None)

    async def close(self) -> None:
        """Stop the processes."""
        await self.pool.close()


def _too_large_error(message: str) -> PlanInvalid:
    return PlanInvalid(
        [Problem("too_large", message, hint="split the plan, or start it with the command `dagwright run`")]
    )
