"""The event loop of every process that serves runs: uvloop if the extra `uvloop` is installed.

A worker spends its time on many short steps between the Temporal server and Python. On the benchmark of ordinary steps
uvloop reduces the CPU time of the worker by a sixth (benchmarks/README.md). uvloop is not available on Windows.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

SWITCH_INTERVAL_S = 0.0005
"""How long a busy thread may delay the event loop; Python's default of 5 ms adds up over a workflow task.

docs/decisions/0023 describes the effect of this setting and of the thresholds in `GARBAGE_THRESHOLDS`.
"""

GARBAGE_THRESHOLDS = 50_000, 20, 5
"""Allocations between garbage collections. A large region has a million live objects: with Python's default of 700 the
collector scans them again and again, which stops all threads and took half of the time to read a region. A full
collection runs after 5 million allocations, because only a full collection frees runs that have ended.
"""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` to completion on a new event loop, as `asyncio.run` does."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and not available on Windows
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


@contextmanager
def fewer_garbage_collections() -> Iterator[None]:
    """Reduce the frequency of garbage collections, which stop all threads."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class _ShortSwitchInterval:
    """A short switch interval while threads run code of users, so that the event loop waits less.

    The switch interval is not changed at other times: switching every 0.5 ms costs a worker 2 to 5 % of its CPU time
    for ordinary steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_count = 0
        self._default_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._thread_count:
                self._default_s = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._thread_count += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._thread_count -= 1
            if not self._thread_count:
                sys.setswitchinterval(self._default_s)


short_switch_interval = _ShortSwitchInterval()
"""Entered by threads that run code of users. There is one instance because the switch interval is global to the
process.
"""
