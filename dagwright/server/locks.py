"""File locks that the kernel frees when their last owner dies, however it dies.

They are what makes "is it still there?" a question with a sure answer: a pid can be used again by another
process, a lock on a file can not. POSIX only.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

_POLL_S = 0.05


def try_lock(path: Path) -> int | None:
    """Returns a descriptor that owns the exclusive lock on `path`, or None if somebody else has it."""
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
    """Tells whether some process owns the lock; two that ask at once do not mistake each other for it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return is_owned(descriptor)
    finally:
        os.close(descriptor)


def is_owned(descriptor: int) -> bool:
    """Tells whether some process owns the lock of an open file, which may have been deleted."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


async def take_lock(path: Path, *, timeout_s: float, on_wait: Callable[[], None] | None = None) -> int:
    """Waits for the exclusive lock on `path` and returns the descriptor that owns it.

    Args:
        timeout_s: seconds to wait, > 0.
        on_wait: called once if the lock is not free within a second.

    Raises:
        TimeoutError: somebody else still has it.
    """
    started = time.monotonic()
    while (descriptor := try_lock(path)) is None:
        waited_s = time.monotonic() - started
        if waited_s > timeout_s:
            raise TimeoutError(f"{path} is still locked after {timeout_s:g} s")
        if on_wait is not None and waited_s > 1:
            on_wait()
            on_wait = None
        await asyncio.sleep(_POLL_S)
    return descriptor


@asynccontextmanager
async def locked(path: Path, *, timeout_s: float, on_wait: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Owns the exclusive lock on `path` inside the block; arguments and errors are those of `take_lock`."""
    descriptor = await take_lock(path, timeout_s=timeout_s, on_wait=on_wait)
    try:
        yield
    finally:
        os.close(descriptor)
