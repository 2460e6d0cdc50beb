"""Start the programs of this repository, in a process that the fork server forks or with a new interpreter.

The fork server (`tests.support.fork_server`) has imported the modules, so a forked process costs hundredths of a CPU
second instead of seconds.
"""

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.support.fork_server import LENGTH_BYTES, encode_request, take_terminal
from tests.support.forked_command import write_commands

ROOT: Final = Path(__file__).parents[2]
_SERVER: Final = ROOT / "tests" / "support" / "fork_server.py"
_INTERPRETER_VARIABLES: Final = ("PYTHON", "LC_", "LANG", "LD_", "TZ")
"""Prefixes of variables that the interpreter reads only at its start.

For these variables, a forked process uses the values of the fork server."""
SHARED_FORK_SERVER: Final = "TEST_FORK_SERVER"
"""Environment variable: folder of the fork server that `scripts/run_tests.py` runs for all its processes."""


class ForkedProcess:
    """A process that the fork server has forked, with the methods of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, status_reader: StreamReader, connection: StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: StreamWriter | None = None
        self.stdout: StreamReader | None = None
        self.stderr: StreamReader | None = None
        self._status_reader = status_reader
        self._connection = connection
        self._exit_task = asyncio.create_task(self._read_status())
        _RUNNING.add(self)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code, or the negative number of the signal."""
        return await asyncio.shield(self._exit_task)

    async def communicate(self, text: bytes | None = None) -> tuple[bytes, bytes]:
        """Write `text` to standard input, read everything and wait for the end."""
        _, stdout, stderr, _ = await asyncio.gather(
            self._write(text), _read(self.stdout), _read(self.stderr), self.wait()
        )
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _write(self, text: bytes | None) -> None:
        if self.stdin is None:
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            if text:
                self.stdin.write(text)
                await self.stdin.drain()
        self.stdin.close()

    async def _read_status(self) -> int:
        try:
            line = await self._status_reader.readline()
            assert line, "the fork server has ended"
            self.returncode = int(line)
        finally:
            # If the event loop ends first, the process still runs.
            self.kill()
            self._connection.close()
            _RUNNING.discard(self)
        return self.returncode


_RUNNING: Final[set[ForkedProcess]] = set()
"""Processes that have not ended: a failed test may leave some of them."""


def running_programs() -> frozenset[ForkedProcess]:
    return frozenset(_RUNNING)


async def end_programs(programs: Iterable[ForkedProcess]) -> None:
    for program in programs:
        program.kill()
        await program.wait()


async def _read(stream: StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


RunningProcess: TypeAlias = Process | ForkedProcess
"""A process, however it was started."""


async def start_program(
    program: Sequence[str],
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: Any = DEVNULL,
    stdout: Any = PIPE,
    stderr: Any = PIPE,
    has_terminal: bool = False,
    uses_new_interpreter: bool = False,
) -> RunningProcess:
    """Start a program of this repository.

    Args:
        program: `(script,)` or `("-m", module)`; a script is relative to the repository.
        stdin: as for `asyncio.create_subprocess_exec`; the same applies to `stdout` and `stderr`.
        has_terminal: whether standard input becomes the terminal of the process.
        uses_new_interpreter: whether to start a new interpreter instead of forking.
    """
    resolved_program = [str(ROOT / part) if part.endswith(".py") else part for part in program]
    if uses_new_interpreter or _changes_interpreter_settings(environment):
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *resolved_program, *arguments),
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=take_terminal if has_terminal else None,
        )
    message = encode_request(
        program=resolved_program,
        arguments=arguments,
        folder=str(folder),
        environment=environment,
        interpreter=str(command_folder() / "python"),
        has_terminal=has_terminal,
    )
    return await _fork(message, streams=(stdin, stdout, stderr))


def _changes_interpreter_settings(environment: Mapping[str, str]) -> bool:
    def settings(variables: Mapping[str, str]) -> dict[str, str]:
        names = [name for name in variables if name.startswith(_INTERPRETER_VARIABLES) and name != "PYTHONPATH"]
        return {name: variables[name] for name in names}

    return settings(environment) != settings(os.environ)


async def _fork(message: bytes, *, streams: tuple[Any, Any, Any]) -> ForkedProcess:
    process_descriptors: list[int] = []
    local_descriptors: list[int | None] = []
    try:
        for number, stream in enumerate(streams):
            process_descriptor, local_descriptor = _descriptors_of(stream, is_input=number == 0)
            process_descriptors.append(process_descriptor)
            local_descriptors.append(local_descriptor)
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        connection.connect(str(_fork_server() / "socket"))
        socket.send_fds(connection, [len(message).to_bytes(LENGTH_BYTES, "big")], process_descriptors)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        writer.write(message)
        pid = await reader.readline()
        assert pid, "the fork server has ended"
    finally:
        for descriptor in process_descriptors:
            os.close(descriptor)
    process = ForkedProcess(int(pid), reader, writer)
    stdin, stdout, stderr = local_descriptors
    process.stdin = None if stdin is None else await _writer(stdin)
    process.stdout = None if stdout is None else await _reader(stdout)
    process.stderr = None if stderr is None else await _reader(stderr)
    return process


def _descriptors_of(stream: Any, *, is_input: bool) -> tuple[int, int | None]:
    """Return the descriptor for the process, and the descriptor for this process if the stream is a pipe."""
    if stream == DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if stream != PIPE:
        return os.dup(stream if isinstance(stream, int) else stream.fileno()), None
    read_end, write_end = os.pipe()
    return (read_end, write_end) if is_input else (write_end, read_end)


async def _reader(descriptor: int) -> StreamReader:
    reader = StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


async def _writer(descriptor: int) -> StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    return StreamWriter(transport, protocol, None, loop)


def write_script(path: Path, body: str) -> Path:
    """Write a shell script that can be run as a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def command_folder(*modules: str) -> Path:
    """Return the folder of the commands `dagwright` and `python`, which run programs in the fork server.

    Args:
        modules: modules that a separate fork server imports instead of Dagwright.
    """
    return _fork_server(*modules) / "bin"


@cache
def _fork_server(*modules: str) -> Path:
    """Return the folder of the shared fork server, or of a new fork server that ends with this process."""
    if not modules and (shared_folder := os.environ.get(SHARED_FORK_SERVER)):
        return Path(shared_folder)
    folder = Path(tempfile.mkdtemp(prefix="fork-server-"))
    atexit.register(_end_fork_server, _start_fork_server(folder, *modules), folder)
    return folder


def _start_fork_server(folder: Path, *modules: str) -> "subprocess.Popen[bytes]":
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("wb") as log:
        listener.bind(address)
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, str(_SERVER), str(listener.fileno()), *modules],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
    write_commands(folder / "bin", address=address)
    return server


def _end_fork_server(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    server.communicate()
    shutil.rmtree(folder)


def main() -> None:
    """Run a fork server until standard input is closed. The first argument is the folder of the server."""
    server = _start_fork_server(Path(sys.argv[1]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.communicate()


if __name__ == "__main__":
    main()
