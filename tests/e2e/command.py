"""The command line as a separate process: start it, read its output, interrupt it, run it on a terminal."""

import asyncio
import codecs
import fcntl
import json
import os
import pty
import shlex
import signal
import struct
import termios
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagwright.testing import ModelServer
from tests.support.chaos import model_environment
from tests.support.eventually import eventually
from tests.support.programs import RunningProcess, start_program

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240.0
SCREEN_TIMEOUT_S = 90.0
"""Seconds until a terminal must show an expected text."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """Output and exit code of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            raise AssertionError(f"stdout is not a JSON document: {self}") from None

    def check_success(self) -> "ProcessResult":
        """Return this result; fail with its whole output if its exit code is not 0."""
        assert self.code == 0, f"exit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        return self


class Terminal:
    """A command on a pseudo-terminal; a test reads its output and types its input."""

    def __init__(self, process: RunningProcess, master: int) -> None:
        self.process = process
        self.screen = ""
        """All output so far."""
        self._master = master
        self._loop = asyncio.get_running_loop()
        self._search_start = 0
        self._output_event = asyncio.Event()
        self._is_over = False
        self._read_task = asyncio.create_task(asyncio.to_thread(self._read))

    async def wait_for_text(self, expected_text: str) -> None:
        """Wait until `expected_text` appears in the output, after the text of the previous wait."""
        try:
            async with asyncio.timeout(SCREEN_TIMEOUT_S):
                while (position := self.screen.find(expected_text, self._search_start)) < 0:
                    if self._is_over:
                        # An error of the decoder is raised here.
                        await self._read_task
                        raise AssertionError(f"{expected_text!r} did not appear; the output was:\n{self.screen}")
                    self._output_event.clear()
                    await self._output_event.wait()
        except TimeoutError:
            raise AssertionError(f"{expected_text!r} did not appear; the output was:\n{self.screen}") from None
        self._search_start = position + len(expected_text)

    def type_text(self, text: str) -> None:
        """Type a text; `\\r` is Enter, `\\x03` Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, text.encode())

    async def wait_for_exit(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), TIMEOUT_S)
        await self._read_task
        return code

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            # Reading the terminal of an ended process raises an error instead of returning an end of file.
            with suppress(OSError):
                while part := os.read(self._master, 65_536):
                    self._loop.call_soon_threadsafe(self._append, decoder.decode(part))
            decoder.decode(b"", final=True)
        finally:
            os.close(self._master)
            self._loop.call_soon_threadsafe(self._finish_reading)

    def _append(self, part: str) -> None:
        self.screen += part
        self._output_event.set()

    def _finish_reading(self) -> None:
        self._is_over = True
        self._output_event.set()


class CommandLine:
    """Start commands of Dagwright, or other programs, in one folder with one environment.

    Args:
        uses_new_interpreter: start a new interpreter for each command, instead of a fork.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        uses_new_interpreter: bool = False,
    ) -> None:
        self.folder = folder
        self.uses_new_interpreter = uses_new_interpreter
        self.environment = dict(environment)

    def with_variables(self, **variables: str) -> "CommandLine":
        """Return commands in the same folder with additional environment variables."""
        environment = {**self.environment, **variables}
        return CommandLine(self.folder, environment, uses_new_interpreter=self.uses_new_interpreter)

    async def start(self, *arguments: str, program: tuple[str, ...] | None = None) -> RunningProcess:
        return await self._start(arguments, program=program, PYTHONPATH=str(ROOT))

    async def __call__(self, *arguments: str, stdin_text: str | None = None) -> ProcessResult:
        process = await self._start(arguments, streams={"stdin": DEVNULL if stdin_text is None else PIPE})
        return await wait_for_exit(process, stdin_text=stdin_text)

    async def run_on_terminal(
        self, *arguments: str, answers: str = "", program: tuple[str, ...] | None = None
    ) -> tuple[int, str]:
        """Run a command on a new terminal; return its exit code and the whole screen."""
        terminal = await self.open_terminal(*arguments, program=program)
        terminal.type_text(answers)
        return await terminal.wait_for_exit(), terminal.screen

    async def open_terminal(self, *arguments: str, program: tuple[str, ...] | None = None) -> Terminal:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        # This terminal does not report the position of its cursor.
        variables = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        streams = {"stdin": slave, "stdout": slave, "stderr": slave, "has_terminal": True}
        process = await self._start(arguments, program=program, streams=streams, **variables)
        os.close(slave)
        return Terminal(process, master)

    async def _start(
        self,
        arguments: Sequence[str],
        *,
        program: tuple[str, ...] | None = None,
        streams: Mapping[str, Any] | None = None,
        **variables: str,
    ) -> RunningProcess:
        return await start_program(
            program or ("starter.py",),
            arguments,
            folder=self.folder,
            environment={**self.environment, **variables},
            uses_new_interpreter=self.uses_new_interpreter,
            **(streams or {}),
        )


async def wait_for_exit(process: RunningProcess, *, stdin_text: str | None = None) -> ProcessResult:
    stdin = None if stdin_text is None else stdin_text.encode()
    stdout, stderr = await asyncio.wait_for(process.communicate(stdin), TIMEOUT_S)
    assert process.returncode is not None
    return ProcessResult(process.returncode, stdout.decode(), stderr.decode())


async def kill_process(process: RunningProcess) -> None:
    process.send_signal(signal.SIGKILL)
    await wait_for_exit(process)


async def stop_process(process: RunningProcess) -> None:
    """Send SIGTERM to a process, and wait until the process has ended."""
    process.send_signal(signal.SIGTERM)
    await wait_for_exit(process)


async def wait_for_run_status(commands: CommandLine, run_id: str, status: str) -> dict[str, Any]:
    """Wait until the run has this status; return the JSON output of the command `status`."""
    documents: list[dict[str, Any]] = []

    async def has_status() -> bool:
        documents.append((await commands("status", run_id, "--json")).document)
        return bool(documents[-1].get("status") == status)

    await eventually(has_status)
    return documents[-1]


async def read_line_with(process: RunningProcess, expected_text: str) -> str:
    """Read the stdout of a process up to the line with `expected_text`, and return this line."""
    assert process.stdout is not None
    lines = []
    async with asyncio.timeout(TIMEOUT_S):
        async for line in process.stdout:
            lines.append(line.decode())
            if expected_text in lines[-1]:
                return lines[-1]
        errors = "" if process.stderr is None else (await process.stderr.read()).decode()
    raise AssertionError(f"{expected_text!r} did not appear; the output was:\n{''.join(lines)}{errors}")


def with_model(commands: CommandLine, model_server: ModelServer) -> CommandLine:
    return commands.with_variables(**model_environment(model_server))


async def commands_of_make(target: str) -> list[list[str]]:
    """Return the words of each command that a target of the Makefile runs."""
    make = await asyncio.create_subprocess_exec("make", "-n", target, cwd=ROOT, stdout=PIPE)
    script, _ = await make.communicate()
    # If this make runs inside another make, the output also lists the folders that make enters and leaves.
    return [shlex.split(line) for line in script.decode().splitlines() if not line.startswith("make")]


async def demo_program_of(target: str) -> tuple[str, ...]:
    """Return the last command of a target of the Makefile, without the interpreter."""
    interpreter, *program = (await commands_of_make(target))[-1]
    assert interpreter == ".venv/bin/python"
    return tuple(program)
