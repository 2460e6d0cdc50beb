"""The fork server of the tests starts processes that behave like a new interpreter."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.programs import command_folder, end_programs, running_programs, start_program

pytestmark = pytest.mark.waits

_REPORT_PROGRAM = """\
import json, os, signal, sys, threading
print(json.dumps({
    "arguments": sys.argv,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "name": __name__,
    "path": sys.path[:3],
    "text": sys.stdin.read(),
    "threads": threading.active_count(),
    "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "umask": os.umask(0),
    "descriptors": len([name for name in os.listdir("/proc/self/fd")]) - 1,
}), flush=True)
print("to stderr", file=sys.stderr)
raise SystemExit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return _write_script(tmp_path, _REPORT_PROGRAM)


async def _run_script(script: Path, *, uses_new_interpreter: bool) -> tuple[Any, str, int | None]:
    environment = {**os.environ, "PYTHONPATH": "/first:/second", "ONLY": "here"}
    process = await start_program(
        (str(script),),
        ("a", "b c"),
        folder=script.parent,
        environment=environment,
        stdin=PIPE,
        uses_new_interpreter=uses_new_interpreter,
    )
    stdout, stderr = await process.communicate(b"typed")
    return json.loads(stdout), stderr.decode(), process.returncode


def _write_script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    return path


async def _start_interpreter(program: str | Path, script: Path, **options: Any) -> Process:
    pipes: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    return await asyncio.create_subprocess_exec(program, script.name, "a", "b c", cwd=script.parent, **pipes, **options)


async def test_python_command_that_forks_behaves_like_a_new_interpreter(script: Path) -> None:
    reports = []
    for program in (sys.executable, command_folder() / "python"):
        process = await _start_interpreter(program, script, umask=0o027)
        stdout, stderr = await process.communicate(b"typed")
        report = json.loads(stdout)
        # The command that forks is a shell script, and a shell sets PWD to its current folder.
        environment = {**report["environment"], "PWD": report["folder"]}
        report |= {"arguments": report["arguments"][1:], "environment": environment}
        reports.append((report, stderr, process.returncode))
    interpreter_report, forked_report = reports
    assert forked_report == interpreter_report


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
async def test_forked_program_ends_when_its_command_is_killed(tmp_path: Path, signal_number: signal.Signals) -> None:
    script = _write_script(tmp_path, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    process = await _start_interpreter(command_folder() / "python", script)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    assert pid != process.pid
    process.send_signal(signal_number)
    assert await process.wait() == -signal_number
    await eventually(lambda: not Path(f"/proc/{pid}").exists())


async def test_forked_process_behaves_like_a_new_interpreter(script: Path) -> None:
    forked_result = await _run_script(script, uses_new_interpreter=False)
    assert forked_result == await _run_script(script, uses_new_interpreter=True)
    report, stderr, exit_code = forked_result
    assert (report["arguments"][1:], report["text"], report["threads"]) == (["a", "b c"], "typed", 1)
    assert (report["environment"]["ONLY"], stderr, exit_code) == ("here", "to stderr\n", 3)


async def _start_sleeping_program(folder: Path) -> Any:
    """Start a forked program that sleeps, and return when it runs."""
    script = _write_script(folder, "import time\nprint('running', flush=True)\ntime.sleep(600)\n")
    process = await start_program((str(script),), (), folder=folder, environment=os.environ)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    return process


async def test_return_code_of_a_killed_process_is_the_negative_signal_number(tmp_path: Path) -> None:
    process = await _start_sleeping_program(tmp_path)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert (await process.wait(), process.returncode) == (-signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.parametrize("uses_new_interpreter", [False, True])
async def test_python_environment_variables_apply(tmp_path: Path, uses_new_interpreter: bool) -> None:
    script = _write_script(tmp_path, "import sys\nprint(sys.stdout.encoding)\n")
    environment = {**os.environ, "PYTHONIOENCODING": "iso8859-1"}
    process = await start_program(
        (str(script),), (), folder=tmp_path, environment=environment, uses_new_interpreter=uses_new_interpreter
    )
    assert (await process.communicate())[0] == b"iso8859-1\n"


async def test_program_that_a_test_left_running_is_killed(tmp_path: Path) -> None:
    programs_before = running_programs()
    process = await _start_sleeping_program(tmp_path)
    await end_programs(running_programs() - programs_before)
    assert (process.returncode, running_programs()) == (-signal.SIGKILL, programs_before)
