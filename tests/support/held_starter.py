"""A command line whose commands wait at fault points.

`fork` waits after it has read the original run, and again after the new run has started, before the command reports the
new run. A turn of a session waits before it is sent, after it is accepted, and after its run has ended.

Run it as a program instead of `starter.py`; it has the same commands.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from dagwright.client.forks import ForkDraft, Forks
from dagwright.client.runs import Runs
from dagwright.client.sessions import PreparedTurn, Sessions
from dagwright.client.starts import StartedRun
from dagwright.protocol.run_input import RunInput
from tests.support.chaos_tools import FOLDER_VARIABLE, block_at_fault_point

FORK_READ = "fork-read"
FORK_STARTED = "fork-started"
TURN_UNSENT, TURN_SENT, TURN_ENDED = "turn-unsent", "turn-sent", "turn-ended"

_create_run_input = Forks.create_run_input
_start = Runs.start
_send = Sessions._send
_wait_for_turn_end = Sessions.wait_for_turn_end


async def _held_create_run_input(self: Forks, draft: ForkDraft) -> RunInput:
    run_input = await _create_run_input(self, draft)
    (Path(os.environ[FOLDER_VARIABLE]) / f"{FORK_READ}-{os.getpid()}").touch()
    block_at_fault_point(FORK_READ)
    return run_input


async def _held_start(self: Runs, *arguments: Any, **options: Any) -> StartedRun:
    started_run = await _start(self, *arguments, **options)
    block_at_fault_point(FORK_STARTED)
    return started_run


async def _held_send(self: Sessions, session_name: str, turn: PreparedTurn, **options: Any) -> None:
    block_at_fault_point(TURN_UNSENT)
    await _send(self, session_name, turn, **options)
    block_at_fault_point(TURN_SENT)


async def _held_wait_for_turn_end(self: Sessions, session_name: str, run_id: str) -> None:
    block_at_fault_point(TURN_ENDED)
    await _wait_for_turn_end(self, session_name, run_id)


if __name__ == "__main__":
    Forks.create_run_input = _held_create_run_input  # type: ignore[method-assign]
    Runs.start = _held_start  # type: ignore[method-assign]
    Sessions._send = _held_send  # type: ignore[method-assign]
    Sessions.wait_for_turn_end = _held_wait_for_turn_end  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "starter.py"), run_name="__main__")
