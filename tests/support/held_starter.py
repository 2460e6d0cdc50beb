"""A client script whose commands stop at fault points: `fork` when it has read the other run and started nothing, and
when the new run exists without a report; a turn of a session before it is sent, when it was accepted and not yet
followed, and when its run has ended.

Run it as a program instead of `starter.py`; it has the same commands.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from dagwright.client.forks import ForkDraft, Forks
from dagwright.client.runs import Runs
from dagwright.client.sessions import PreparedTurn, Sessions
from dagwright.client.starts import Started
from dagwright.protocol.run_input import RunInput
from tests.support.chaos_tools import FOLDER_VARIABLE, fault_point

READ = "fork-read"
STARTED = "fork-started"
UNSENT, SENT, ENDED = "turn-unsent", "turn-sent", "turn-ended"

_ready = Forks.create_run_input
_start = Runs.start
_send = Sessions._send
_settled = Sessions.wait_for_turn_end


async def _held_ready(self: Forks, draft: ForkDraft) -> RunInput:
    input_fields = await _ready(self, draft)
    (Path(os.environ[FOLDER_VARIABLE]) / f"{READ}-{os.getpid()}").touch()
    fault_point(READ)
    return input_fields


async def _held_start(self: Runs, *arguments: Any, **options: Any) -> Started:
    started = await _start(self, *arguments, **options)
    fault_point(STARTED)
    return started


async def _held_send(self: Sessions, name: str, turn: PreparedTurn, **options: Any) -> None:
    fault_point(UNSENT)
    await _send(self, name, turn, **options)
    fault_point(SENT)


async def _hold_turn_end(self: Sessions, name: str, run: str) -> None:
    fault_point(ENDED)
    await _settled(self, name, run)


if __name__ == "__main__":
    Forks.create_run_input = _held_ready  # type: ignore[method-assign]
    Runs.start = _held_start  # type: ignore[method-assign]
    Sessions._send = _held_send  # type: ignore[method-assign]
    Sessions.wait_for_turn_end = _hold_turn_end  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "starter.py"), run_name="__main__")
