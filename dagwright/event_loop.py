"""The event loop of every process that serves runs: uvloop where there is one.

A worker spends its time on many short steps between the server and Python. On the benchmark of ordinary steps uvloop
takes a sixth off the worker's CPU time (benchmarks/README.md); it does not exist for Windows.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs `main` to its end on a new event loop, as `asyncio.run` does."""
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - it cannot be installed everywhere

    return uvloop.run(main)
