"""Draining: how long running calls continue after a process was requested to stop.

All calls have `GRACE_S` to finish. Calls of `write` tools must not be repeated, so they may continue after this time,
until their own timeout or the limit `DAGWRIGHT_DRAIN_S`. All other calls are cancelled after this time, and Temporal
retries them on another worker.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE_S = 10.0


def grace_s(limit_s: float | None) -> float:
    """Return the seconds that all calls may continue after a process was requested to stop.

    Args:
        limit_s: `DAGWRIGHT_DRAIN_S`, if it is set.
    """
    return GRACE_S if limit_s is None else min(GRACE_S, limit_s)


def drain_s(remaining_s: float, *, limit_s: float | None) -> float:
    """Return the seconds that the call of a `write` tool may continue after the grace period.

    Args:
        remaining_s: time until the call's own timeout.
        limit_s: `DAGWRIGHT_DRAIN_S`, if it is set; counted from the start of the grace period.
    """
    if limit_s is None:
        return max(0.0, remaining_s)
    return max(0.0, min(remaining_s, limit_s - grace_s(limit_s)))


class WriteCallCounter:
    """Thread-safe counter of the running calls of `write` tools in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._ended_at = float("-inf")

    @contextmanager
    def counting_call(self) -> Iterator[None]:
        """Count one call until the block ends."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                self._ended_at = self._clock()

    @property
    def count(self) -> int:
        """Number of running calls."""
        return self._count

    def quiet_s(self) -> float:
        """Return the seconds since the last call ended: 0 during a call, infinite if there was no call."""
        with self._lock:
            return 0.0 if self._count else self._clock() - self._ended_at


writes_in_flight = WriteCallCounter()
"""The counter of this process. The process waits for the counted calls before it exits."""
