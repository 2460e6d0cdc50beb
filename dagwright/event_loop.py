"""The event loop of every process that serves runs: uvloop where there is one.

A worker spends its time on many short steps between the server and Python. On the benchmark of ordinary steps uvloop
takes a sixth off the worker's CPU time (benchmarks/README.md); it does not exist for Windows.
"""

import asyncio
import gc
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that works on a region may keep the loop waiting; Python's own 5 ms add up over a workflow task.

Its part and that of the collections below are told in docs/decisions/0023."""

GARBAGE_THRESHOLDS = 50_000, 20, 5
"""Objects between collections of garbage. A large region is a million objects and none of them is garbage: Python's own
700 look through all of them again and again, which stops every thread and took half of the time to read one. All of
memory is looked through after 5 million new ones: runs that have ended are garbage that only this finds."""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs `main` to its end on a new event loop, as `asyncio.run` does."""
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - it cannot be installed everywhere

    return uvloop.run(main)


@contextmanager
def shared_with_threads() -> Iterator[None]:
    """Sees to it that the loop has its turn soon while threads of this process work hard, as regions do."""
    interval_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.set_threshold(*thresholds)
