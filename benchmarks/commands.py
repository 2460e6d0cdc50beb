"""Run a command and measure its duration and memory."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Outcome of a command.

    Args:
        seconds: duration, including the start of the program.
        peak_gb: peak memory, in 10^9 bytes.
        last_output: the end of the output.
    """

    exit_code: int
    seconds: float
    peak_gb: float
    last_output: str


def run_to_end(command: Sequence[str]) -> CommandOutcome:
    """Run a command in the root of the checkout; block until it ends."""
    with tempfile.TemporaryFile() as output:
        started_at = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=_ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started_at
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        last_output = output.read()[-500:].decode("utf-8", "replace")
    # On Linux, `ru_maxrss` is in KiB.
    return CommandOutcome(process.returncode, seconds, usage.ru_maxrss * 1024 / 1e9, last_output)
