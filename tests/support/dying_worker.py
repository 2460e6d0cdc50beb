"""A worker that dies in the middle of a workflow task when a test requires it.

Run it as a program instead of `worker.py`; it has the same options.
"""

import os
import runpy
import signal
from pathlib import Path

from temporalio import workflow

from dagwright.protocol.history_limits import HistoryUse
from dagwright.workflows.engine import Engine
from tests.support.chaos_tools import FOLDER_VARIABLE

DEATH_FILE = "die-in-a-workflow-task"
"""File in the folder of the tools. If it exists, the worker deletes it and dies."""

_original_dispatch = Engine._dispatch


async def _dispatch_or_die(self: Engine, history_use: HistoryUse, at: float) -> HistoryUse:
    death_file = Path(os.environ[FOLDER_VARIABLE]) / DEATH_FILE
    if not workflow.unsafe.is_replaying() and death_file.exists():
        death_file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return await _original_dispatch(self, history_use, at)


if __name__ == "__main__":
    Engine._dispatch = _dispatch_or_die  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
