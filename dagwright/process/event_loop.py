"""The event loop of every process that serves runs: uvloop where the extra `uvloop` is installed.

A worker spends its time on many short steps between the server and Python. On the benchmark of ordinary steps uvloop
takes a sixth off the worker's CPU time (benchmarks/README.md); it does not exist for Windows.
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
"""How long a thread that works hard may keep the loop waiting; Python's own 5 ms add up over a workflow task.

Its part and that of the collections below are told in docs/decisions/0023."""

GARBAGE_THRESHOLDS = 50_000, 20, 5
"""Objects between collections of garbage. A large region is a million objects and none of them is garbage: Python's own
700 look through all of them again and again, which stops every thread and took half of the time to read one. All of
memory is looked through after 5 million new ones: runs that have ended are garbage that only this finds."""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs `main` to its end on a new event loop, as `asyncio.run` does."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and not available on Windows
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


@contextmanager
def few_collections() -> Iterator[None]:
    """Sees to it that garbage is not looked for so often that it stops every thread."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class _HardWork:
    """Sees to it that the loop has its turn soon while threads of this process work hard.

    Only then: where nobody does, a switch every 0.5 ms is 2 to 5 % of what a worker of ordinary steps takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._threads += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                sys.setswitchinterval(self._usual_s)


hard_work = _HardWork()
"""To be entered by a thread that runs what others wrote. There is one, as there is one interval in a process."""
