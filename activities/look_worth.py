"""Whether it is worth to look for results of pure tools, most of whose calls take microseconds.

A look takes longer than such a call, so a tool has to show that it is slow: a slow call is worth some looks, and each
look that finds nothing costs one. A quick tool is looked for once or twice in each process and after the odd call that
was disturbed, a slow one always. This module must not import workflows.
"""

import time

SLOW_S = 0.005
"""What a call has to take for its result to be kept."""
_FIRST_LOOKS = 2
"""A new process does not know which tools are slow."""
_SLOW_CALL_LOOKS = 2
_MOST_LOOKS = 8
_WAITING_S = 0.25
"""Longer than a thread ever waits for its turn: a call that takes so long waits for something else."""
_TICK_S = 0.002


class LookWorth:
    """What is known of pure tools and of the store; safe across threads as long as a lost count does no harm."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}
        self._call_s: dict[str, float] = {}
        self._store_s = 0.0

    def of(self, tool: str) -> bool:
        """Tells whether it is worth to look for a result of the tool."""
        return self._looks.get(tool, _FIRST_LOOKS) > 0

    def of_store(self, tool: str) -> bool:
        """Tells whether it is worth to look in the store, which may be far away."""
        known_s = self._call_s.get(tool)
        return known_s is None or known_s > self._store_s

    def asked_store(self, took_s: float) -> None:
        """Takes note of how long the store took to answer."""
        self._store_s = took_s if not self._store_s else 0.8 * self._store_s + 0.2 * took_s

    def looked(self, tool: str, *, found_s: float | None) -> None:
        """Takes note of a look.

        Args:
            found_s: how long the call took whose result was found, if one was.
        """
        if found_s is not None:
            self._call_s[tool] = found_s
        else:
            self._looks[tool] = self._looks.get(tool, _FIRST_LOOKS) - 1

    def called(self, tool: str, took_s: float) -> None:
        """Takes note of a slow call."""
        self._call_s[tool] = took_s
        self._looks[tool] = min(self._looks.get(tool, _FIRST_LOOKS) + _SLOW_CALL_LOOKS, _MOST_LOOKS)


def call_seconds(took_s: float, *, worked_s: float) -> float:
    """Returns how long a call takes where nobody disturbs it.

    Args:
        took_s: by the clock on the wall.
        worked_s: time of the thread that made it.
    """
    return took_s if took_s > _WAITING_S else max(min(worked_s, took_s), 0.0)


class WorkClock:
    """Tells how long the calls of a thread work, not counting what it waits for its turn on a busy machine.

    To read the time of a thread takes as long as many a call, so it is read every 2 ms, and after a call that looks
    slow. Belongs to the thread that made it.
    """

    def __init__(self) -> None:
        self._mark(time.time())

    def _mark(self, now: float) -> None:
        self._at, self._worked_s = now, time.thread_time()
        self.due = now + _TICK_S
        """Seconds since the epoch at which `tick` is due."""

    def tick(self, now: float) -> None:
        """Takes note of the time before a call."""
        self._mark(now)

    def worked(self, started_at: float, now: float) -> float:
        """Returns the seconds that a call has worked for at least, or that it took if it waited for something long."""
        took_s = now - started_at
        # What was before the call can not have worked for longer than it took.
        worked_s = time.thread_time() - self._worked_s - max(started_at - self._at, 0.0)
        return call_seconds(took_s, worked_s=worked_s)
