"""Runs a command to its end and tells how long it took and how much memory it needed."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Args:
        code: exit code.
        seconds: from before its start to its end.
        peak_gb: the most memory it had at once, in 10^9 bytes.
        told: the end of what it wrote.
    """

    code: int
    seconds: float
    peak_gb: float
    told: str


def run_to_end(command: Sequence[str]) -> Ended:
    """Runs a command in the root of the checkout; blocks until it ends."""
    with tempfile.TemporaryFile() as output:
        before = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=_ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        told = output.read()[-500:].decode("utf-8", "replace")
    # Linux counts in KiB.
    return Ended(process.returncode, seconds, usage.ru_maxrss * 1024 / 1e9, told)
