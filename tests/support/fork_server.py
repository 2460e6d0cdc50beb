"""A program that imports the modules of Dagwright, and then forks a process for each request.

Importing the modules takes two to four seconds of CPU time, which tests would otherwise pay for each command. A forked
process is a real process: it has its own environment, folder, standard streams, signals and exit code.
`tests.support.programs` is the client of this program. Nothing here may start a thread or an event loop, because a fork
does not copy threads.

Usage: python fork_server.py LISTENING_SOCKET [MODULE ...]. The server imports MODULE ... instead of Dagwright.
The server ends when its standard input is closed.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = str(Path(__file__).parents[2])
LENGTH_BYTES: Final = 8
"""Size of the length field of a request.

The field is sent before the JSON of the request, together with the descriptors of the standard streams.
"""
_PACKAGES: Final = ("dagwright.interfaces.cli", "dagwright.interfaces.http")
_MODULES: Final = (
    *("worker", "uvloop", "cel", "anyio._backends._asyncio", "alembic.command", "alembic.config"),
    "dagwright_maritime",
)


def _import_modules() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in _MODULES:
        importlib.import_module(name)
    # These calls import the modules that a first command, schema, condition and model call need.
    importlib.import_module("dagwright.interfaces.cli.app").click_command()
    importlib.import_module("dagwright_onboarding.onboarding").onboarding_tools("sqlite://")
    environment = importlib.import_module("dagwright.tools.environment").ToolEnvironment(Path(ROOT))
    importlib.import_module("dagwright.tools.builtin").builtin_tools(environment)
    importlib.import_module("dagwright.core.expressions.condition_parser").compile_cel("true")
    importlib.import_module("dagwright.llm.transport").Transport(
        "http://127.0.0.1", "", read_timeout_s=1, connect_timeout_s=1
    )


def encode_request(
    *,
    program: Sequence[str],
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    interpreter: str,
    has_terminal: bool = False,
    ends_with_client: bool = False,
) -> bytes:
    # The umask can only be read by setting it.
    os.umask(umask := os.umask(0o077))
    request = {
        **{"program": [*program], "arguments": [*arguments], "folder": folder, "environment": dict(environment)},
        **{"interpreter": interpreter, "umask": umask},
        **{"has_terminal": has_terminal, "ends_with_client": ends_with_client},
    }
    return json.dumps(request).encode()


class _ForkServer:
    """Accept requests, and send each client the process ID and then the exit code of its process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        for end in (self._wakeup_reader, self._wakeup_writer):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> dict[str, Any] | None:
        """Serve until standard input closes; return the request in a forked process, None in the server."""
        signal.set_wakeup_fd(self._wakeup_writer.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for source in (self._listener, self._wakeup_reader, 0):
            self._selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is self._wakeup_reader:
                    self._report_exits()
                elif key.data is not None:
                    self._kill(key.fileobj, pid=key.data)
                elif (request := self._accept_and_fork()) is not None:
                    return request

    def _accept_and_fork(self) -> dict[str, Any] | None:
        client, _ = self._listener.accept()
        length_field, streams, _, _ = socket.recv_fds(client, LENGTH_BYTES, 3)
        try:
            request: dict[str, Any] = json.loads(_receive(client, int.from_bytes(length_field, "big")))
        except (EOFError, ValueError):
            # The client is gone because its test ended.
            for stream in (client.detach(), *streams):
                os.close(stream)
            return None
        pid = os.fork()
        if pid:
            self._clients[pid] = client
            if request["ends_with_client"]:
                self._selector.register(client, selectors.EVENT_READ, pid)
            with suppress(OSError):
                client.sendall(b"%d\n" % pid)
        else:
            client.close()
            self._close_server_files()
            for target, stream in enumerate(streams):
                os.dup2(stream, target, inheritable=True)
        for stream in streams:
            os.close(stream)
        return None if pid else request

    def _close_server_files(self) -> None:
        """Close the files of the server in the forked process, and reset the signal handlers to the defaults."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for resource in (self._listener, self._wakeup_reader, self._wakeup_writer, *self._clients.values()):
            resource.close()

    def _kill(self, client: Any, *, pid: int) -> None:
        """Kill the session of a process whose client was killed, because a client cannot forward SIGKILL."""
        self._selector.unregister(client)
        # `os.killpg` finds no group if the process has not started its session yet.
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)

    def _report_exits(self) -> None:
        with suppress(BlockingIOError):
            self._wakeup_reader.recv(4096)
        with suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                with self._clients.pop(child[0]) as client, suppress(OSError):
                    if client in self._selector.get_map():
                        self._selector.unregister(client)
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(child[1]))


def _receive(client: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = client.recv(size - len(parts))
        if not part:
            raise EOFError("the client closed the connection in the middle of a request")
        parts += part
    return bytes(parts)


def _set_up_process(request: dict[str, Any]) -> None:
    """Give this process the environment, folder, terminal and module path of a new interpreter."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.umask(request["umask"])
    sys.executable = request["interpreter"]
    if request["has_terminal"]:
        take_terminal()
    elif request["ends_with_client"]:
        os.setsid()
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # nothing has replaced it
    program = request["program"]
    script_folder = request["folder"] if program[0] == "-m" else str(Path(program[0]).parent)
    python_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [script_folder, *python_path]
    sys.argv = [*program[-1:], *request["arguments"]]


def take_terminal() -> None:
    """Start a session whose terminal is standard input: Ctrl-C there interrupts this process."""
    import fcntl  # noqa: PLC0415 - commands import this module, and few have a terminal
    import termios  # noqa: PLC0415

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main() -> None:
    """Serve requests. In a forked process, run the program of the request."""
    sys.path[0] = ROOT
    if modules := sys.argv[2:]:
        for name in modules:
            importlib.import_module(name)
    else:
        _import_modules()
    gc.freeze()
    request = _ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is None:
        return
    _set_up_process(request)
    if request["program"][0] == "-m":
        runpy.run_module(request["program"][1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(request["program"][0], run_name="__main__")


if __name__ == "__main__":
    main()
