"""A client script whose `fork` stops at fault points: when it has read the other run and started nothing, and when the
new run is there and nobody has been told.

Run as a program in place of `starter.py`; it has the same commands.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from dagwright.client import Runs, Started
from dagwright.contracts.messages import RunInput
from dagwright.forks import Draft, Forks
from tests.support.chaos_tools import FOLDER_VARIABLE, fault_point

READ = "fork-read"
STARTED = "fork-started"

_ready = Forks.ready
_start = Runs.start


async def _held_ready(self: Forks, draft: Draft) -> RunInput:
    beside = await _ready(self, draft)
    (Path(os.environ[FOLDER_VARIABLE]) / f"{READ}-{os.getpid()}").touch()
    fault_point(READ)
    return beside


async def _held_start(self: Runs, *arguments: Any, **options: Any) -> Started:
    started = await _start(self, *arguments, **options)
    fault_point(STARTED)
    return started


if __name__ == "__main__":
    Forks.ready = _held_ready  # type: ignore[method-assign]
    Runs.start = _held_start  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "starter.py"), run_name="__main__")
