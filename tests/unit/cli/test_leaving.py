"""Commands that wait for a step which refuses to end."""

import signal
import subprocess
import sys

_STUBBORN = """
import asyncio
from dagwright.cli import leaving
from dagwright.cli.async_runs import run_async
from dagwright.cli.output import Output

leaving.LEAVING_S = 0.3

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def work(farewell):
    print("ready", flush=True)
    %s
    await stubborn()

raise SystemExit(run_async(work, Output()))
"""
_LEFT = "a step does not end, so the command leaves it behind"


def _started(first: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _STUBBORN % first]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_command_that_was_told_to_end_leaves_a_step_that_does_not() -> None:
    with _started("pass") as process:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()) == (130, ["interrupted", _LEFT])


def test_command_whose_run_has_ended_leaves_a_step_that_does_not() -> None:
    with _started("farewell.way_out.open(3)") as process:
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()) == (3, [_LEFT])


def test_command_that_ends_by_itself_is_left_alone() -> None:
    with _started("farewell.way_out.open(3); return 0") as process:
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
