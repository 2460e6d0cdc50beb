"""Commands that wait for a step which refuses to end."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.waits

_STUBBORN = """
import asyncio
import pytest

from dagwright.interfaces.cli import leaving
from dagwright.interfaces.cli.async_runs import run_async
from dagwright.interfaces.cli.output import Output

leaving.LEAVING_S = %s

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
_LEFT = "a step does not end, so the command exits without it"


def _started(first: str, *, leaving_s: float = 0.3) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _STUBBORN % (leaving_s, first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_command_that_was_told_to_end_leaves_a_step_that_does_not() -> None:
    with _started("pass") as process:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()) == (130, ["interrupted", _LEFT])


def test_second_ctrl_c_leaves_a_step_that_blocks_the_loop() -> None:
    blocks = """
    try:
        await asyncio.sleep(60)
    finally:
        print("blocks", flush=True)
        time.sleep(60)
    """
    with _started("import time" + blocks, leaving_s=60) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "blocks\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.splitlines()) == (130, ["interrupted"])


def test_two_ctrl_c_that_come_at_once_leave_at_once() -> None:
    both = """
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    """
    with _started("import os, signal" + both, leaving_s=60) as process:
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.splitlines()) == (130, ["interrupted"])


def test_command_whose_run_has_ended_leaves_a_step_that_does_not() -> None:
    with _started("farewell.way_out.open(3)") as process:
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()) == (3, [_LEFT])


def test_command_that_ends_by_itself_is_left_alone() -> None:
    with _started("farewell.way_out.open(3); return 0") as process:
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


def test_command_does_not_leave_a_write_behind_that_still_works() -> None:
    work = """
    from dagwright.worker.drain import writes_in_flight
    farewell.way_out.open(3)
    with writes_in_flight.counted():
        await asyncio.sleep(2)
        print("done", flush=True)
    """
    with _started(work) as process:
        written, said = process.communicate(timeout=60)
    assert (process.returncode, written, said.splitlines()) == (3, "done\n", [_LEFT])


_SERVER = """
import asyncio
from dagwright.interfaces.cli.leaving import stop_signal

async def main():
    stopped = stop_signal()
    print("ready", flush=True)
    await stopped.wait()
    print("drains", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_second_sigterm_ends_a_process_that_drains() -> None:
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "drains\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")
