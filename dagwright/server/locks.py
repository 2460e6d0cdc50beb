"""File locks that the kernel releases when the last process that holds them exits for any reason.

They show reliably whether a process is running: a PID can be reused by another process, a file lock cannot. The
module requires POSIX.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

_POLL_INTERVAL_S = 0.05


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the exclusive lock on `path`; `None` if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. Concurrent checks do not disturb each other: they use shared locks."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return is_file_locked(descriptor)
    finally:
        os.close(descriptor)


def is_file_locked(descriptor: int) -> bool:
    """Return whether a process holds the lock of an open file, which may have been deleted."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


async def acquire_lock(path: Path, *, timeout_s: float, on_wait: Callable[[], None] | None = None) -> int:
    """Wait for the exclusive lock on `path` and return the descriptor that holds it.

    Args:
        timeout_s: seconds to wait, > 0.
        on_wait: called once if the lock is not free within a second.

    Raises:
        TimeoutError: another process still holds the lock.
    """
    started_at = time.monotonic()
    while (descriptor := try_lock(path)) is None:
        waited_s = time.monotonic() - started_at
        if waited_s > timeout_s:
            raise TimeoutError(f"{path} is still locked after {timeout_s:g} s")
        if on_wait is not None and waited_s > 1:
            on_wait()
            on_wait = None
        await asyncio.sleep(_POLL_INTERVAL_S)
    return descriptor


@asynccontextmanager
async def holding_lock(
    path: Path, *, timeout_s: float, on_wait: Callable[[], None] | None = None
) -> AsyncIterator[None]:
    """Hold the exclusive lock on `path` during the block; arguments and errors as in `acquire_lock`."""
    descriptor = await acquire_lock(path, timeout_s=timeout_s, on_wait=on_wait)
    try:
        yield
    finally:
        os.close(descriptor)
