"""Checks of plans in requests: limited in time and memory, one at a time per key, and cancelled with the request.

A plan up to `IN_PROCESS_BYTES` is checked in a thread of the gateway: checks are linear in its size and stop after 100
problems, so they take about 0.1 s, plus at most 0.5 s for name suggestions (`references.HINT_BUDGET`). A larger plan is
checked in a separate process, which is killed after `CHECK_TIMEOUT_S` or when the client disconnects, and whose memory
is limited (`process_pool.MEMORY_BYTES`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.interfaces.http.errors import RETRY_AFTER_S, limit_exceeded
from dagwright.process.process_pool import ProcessLost, ProcessPool

P = ParamSpec("P")
T = TypeVar("T")

IN_PROCESS_BYTES = 16 * 1024
"""Maximum size of a body whose plan is checked in this process."""
CHECK_TIMEOUT_S = 60.0
"""A plan of 8 MiB takes up to 30 s on a busy machine."""
MAX_WAITING = 4
"""Requests of one key that may wait, since its large bodies and plans are processed one at a time."""


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


@dataclass(slots=True)
class PlanChecks:
    """Runs the checks of one gateway.

    Args:
        pool: processes for large plans.
    """

    pool: ProcessPool = field(default_factory=lambda: ProcessPool(timeout_s=CHECK_TIMEOUT_S))
    _turns: dict[str | None, _Turn] = field(default_factory=dict)

    async def run(
        self, key: str | None, size_bytes: int, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a function that checks a plan, and return its result.

        Args:
            key: ID of the caller's key; `None` without keys.
            size_bytes: size of the request's body.
            function: function of a module; its arguments and result must be picklable.

        Raises:
            PlanInvalid: as the function; or the check takes too much time or memory.
            ApiError: too many large plans of this key wait for their check.
        """
        is_large = size_bytes > IN_PROCESS_BYTES
        async with self.turn(key, is_large=is_large):
            if not is_large:
                return await asyncio.to_thread(function, *args, **named)
            try:
                return await self.pool.run(function, *args, **named)
            except TimeoutError:
                raise _too_large(f"checking the plan takes longer than {CHECK_TIMEOUT_S:g} s") from None
            except ProcessLost:
                raise _too_large("checking the plan takes too much memory") from None

    @asynccontextmanager
    async def turn(self, key: str | None, *, is_large: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of a key, and hold it while a plan is checked or a large body is parsed.

        Raises:
            ApiError: it is large, and too many requests of the key wait.
        """
        turn = self._turns.setdefault(key, _Turn())
        if is_large and turn.lock.locked() and turn.waiting >= MAX_WAITING:
            raise limit_exceeded(
                "a key may have one large body or plan processed at a time", retry_after_s=RETRY_AFTER_S
            )
        turn.waiting += 1
        try:
            await turn.lock.acquire()
        finally:
            turn.waiting -= 1
        try:
            yield
        finally:
            turn.lock.release()
            if not (turn.waiting or turn.lock.locked()):
                self._turns.pop(key, None)

    async def close(self) -> None:
        """Stop the processes."""
        await self.pool.close()


def _too_large(message: str) -> PlanInvalid:
    return PlanInvalid([Problem("too_large", message, hint="split it, or start it with the command `dagwright run`")])
