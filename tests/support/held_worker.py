"""A worker whose payload store waits at two fault points.

The first is after writing a file, which still has a temporary name. The second is before reading a file.

Run it as a program instead of `worker.py`; it has the same options.
"""

import os
import runpy
import stat
from pathlib import Path

from dagwright.store import folder
from tests.support.chaos_tools import block_at_fault_point

AFTER_WRITE = "store-writing"
BEFORE_READ = "store-reading"

_sync = os.fsync
_get = folder.FolderStore._get


def _held_sync(descriptor: int) -> None:
    _sync(descriptor)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        block_at_fault_point(AFTER_WRITE)


def _held_get(self: folder.FolderStore, ref: str) -> bytes:
    block_at_fault_point(BEFORE_READ)
    return _get(self, ref)


if __name__ == "__main__":
    os.fsync = _held_sync  # type: ignore[assignment]  # the store passes file descriptors
    folder.FolderStore._get = _held_get  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
