"""Commands that exit although a step does not end."""

import signal
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.waits

_ENDLESS_COMMAND = """
import asyncio
import pytest

from dagwright.interfaces.cli import process_exit
from dagwright.interfaces.cli.command_loop import run_async
from dagwright.interfaces.cli.output import Output

process_exit.EXIT_TIMEOUT_S = %s

async def ignore_cancellation():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def work(interrupt_handling):
    print("ready", flush=True)
    %s
    await ignore_cancellation()

raise SystemExit(run_async(work, Output()))
"""
_EXIT_MESSAGE = "a step does not end; exiting without waiting for it"
_PIPES: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _start_process(first_statement: str, *, exit_timeout_s: float = 0.3) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS_COMMAND % (exit_timeout_s, first_statement)], **_PIPES)
    assert _read_line(process) == "ready\n"
    return process


_BOTH_SIGNALS = """import os, signal
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
"""
_WRITE_IN_PROGRESS = """from dagwright.process.drain import writes_in_flight
    interrupt_handling.exit_watchdog.start(3)
    with writes_in_flight.counting_call():
        await asyncio.sleep(2)
        print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("first_statement", "exit_timeout_s", "stop_signal", "expected"),
    [
        ("pass", 0.3, signal.SIGTERM, (130, "", ["interrupted", _EXIT_MESSAGE])),
        # Both signals arrive at the same time.
        (_BOTH_SIGNALS, 60, None, (130, "", ["interrupted"])),
        ("interrupt_handling.exit_watchdog.start(3)", 0.3, None, (3, "", [_EXIT_MESSAGE])),
        ("interrupt_handling.exit_watchdog.start(3); return 0", 0.3, None, (0, "", [])),
        # A write in progress ends first.
        (_WRITE_IN_PROGRESS, 0.3, None, (3, "done\n", [_EXIT_MESSAGE])),
    ],
)
def test_command_exits_although_a_step_does_not_end(
    first_statement: str,
    exit_timeout_s: float,
    stop_signal: signal.Signals | None,
    expected: tuple[int, str, list[str]],
) -> None:
    with _start_process(first_statement, exit_timeout_s=exit_timeout_s) as process:
        if stop_signal is not None:
            process.send_signal(stop_signal)
        output, error_output = process.communicate(timeout=60)
    assert (process.returncode, output, error_output.splitlines()) == expected


def test_second_ctrl_c_exits_although_a_step_blocks_the_loop() -> None:
    blocking_statements = """
    try:
        await asyncio.sleep(60)
    finally:
        print("blocks", flush=True)
        time.sleep(60)
    """
    with _start_process("import time" + blocking_statements, exit_timeout_s=60) as process:
        process.send_signal(signal.SIGINT)
        assert _read_line(process) == "blocks\n"
        process.send_signal(signal.SIGINT)
        _, error_output = process.communicate(timeout=30)
    assert (process.returncode, error_output.splitlines()) == (130, ["interrupted"])


_SERVER_PROGRAM = """
import asyncio
from dagwright.interfaces.cli.process_exit import create_stop_event

async def main():
    stop_event = create_stop_event()
    print("ready", flush=True)
    await stop_event.wait()
    print("drains", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_second_sigterm_ends_a_process_that_drains() -> None:
    with subprocess.Popen([sys.executable, "-c", _SERVER_PROGRAM], **_PIPES) as process:
        for line in ("ready\n", "drains\n"):
            assert _read_line(process) == line
            process.send_signal(signal.SIGTERM)
        _, error_output = process.communicate(timeout=30)
    assert (process.returncode, error_output) == (130, "")
