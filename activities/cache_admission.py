"""Decide when to look up cached results of pure tools.

Most calls of pure tools take microseconds, less than a lookup. So each tool has a number of allowed lookups: a slow
call increases this number, and a lookup without a result decreases it. The results of a slow tool are always looked up.
The results of a fast tool are looked up once or twice per process, and again after a call that was slow by chance. This
module must not import workflows.
"""

import time

CACHED_CALL_MIN_S = 0.005
"""Minimum duration of a call whose result is cached."""
_INITIAL_LOOKUPS = 2
"""Allowed lookups of each tool in a new process, which does not know yet which tools are slow."""
_LOOKUPS_PER_SLOW_CALL = 2
"""Number of allowed lookups that a slow call adds."""
_MAX_LOOKUPS = 8
"""Upper limit of the allowed lookups of each tool."""
_MAX_GIL_WAIT_S = 0.25
"""A thread never waits this long for the interpreter lock, so a longer call counts with its whole duration."""
_TICK_S = 0.002


class CacheAdmission:
    """Decisions about lookups, from recorded durations of pure tools and of the store.

    Threads share this object without a lock, because a lost update is harmless.
    """

    def __init__(self) -> None:
        self._remaining_lookups: dict[str, int] = {}
        self._call_durations_s: dict[str, float] = {}
        self._store_latency_s = 0.0

    def should_look_up(self, tool: str) -> bool:
        """Return whether to look up a result of the tool."""
        return self._remaining_lookups.get(tool, _INITIAL_LOOKUPS) > 0

    def should_query_store(self, tool: str) -> bool:
        """Return whether to query the store: only if the tool is slower than the store or its duration is unknown."""
        call_s = self._call_durations_s.get(tool)
        return call_s is None or call_s > self._store_latency_s

    def record_store_latency(self, took_s: float) -> None:
        """Record the response time of the store."""
        self._store_latency_s = took_s if not self._store_latency_s else 0.8 * self._store_latency_s + 0.2 * took_s

    def record_lookup(self, tool: str, *, cached_call_s: float | None) -> None:
        """Record a lookup.

        Args:
            cached_call_s: duration of the call that made the result; `None` if no result was found.
        """
        if cached_call_s is not None:
            self._call_durations_s[tool] = cached_call_s
        else:
            self._remaining_lookups[tool] = self._remaining_lookups.get(tool, _INITIAL_LOOKUPS) - 1

    def record_slow_call(self, tool: str, took_s: float) -> None:
        """Record a slow call."""
        self._call_durations_s[tool] = took_s
        self._remaining_lookups[tool] = min(
            self._remaining_lookups.get(tool, _INITIAL_LOOKUPS) + _LOOKUPS_PER_SLOW_CALL, _MAX_LOOKUPS
        )


def seconds_without_waiting(took_s: float, *, cpu_s: float) -> float:
    """Return the duration of a call without the time that its thread waited for the interpreter lock.

    Args:
        took_s: wall-clock time.
        cpu_s: CPU time of the thread.
    """
    return took_s if took_s > _MAX_GIL_WAIT_S else max(min(cpu_s, took_s), 0.0)


class CpuClock:
    """Measure the CPU time of calls in a thread, without the time that the thread waits on a busy machine.

    Reading the CPU time takes as long as a short call, so it is read every 2 ms and after a call that looks slow.
    The clock belongs to the thread that created it.
    """

    def __init__(self) -> None:
        self._mark(time.time())

    def _mark(self, now: float) -> None:
        self._marked_at, self._marked_cpu_s = now, time.thread_time()
        self.next_tick_at = now + _TICK_S
        """Seconds since the epoch at which `tick` is due."""

    def tick(self, now: float) -> None:
        """Record the time before a call."""
        self._mark(now)

    def cpu_seconds(self, started_at: float, now: float) -> float:
        """Return a lower bound of a call's CPU time in seconds; for a call over 0.25 s, return the whole duration."""
        took_s = now - started_at
        # Before the call, the thread cannot have used more CPU time than the time that elapsed.
        cpu_s = time.thread_time() - self._marked_cpu_s - max(started_at - self._marked_at, 0.0)
        return seconds_without_waiting(took_s, cpu_s=cpu_s)
