"""The commands `dagwright` and `python` for tests: shell scripts that run programs in the fork server.

`write_commands` creates a folder for the start of `PATH`. A command there passes a program to the fork server, with the
environment, folder, umask and standard streams of the command. The command forwards signals to the program, and ends
with the exit code of the program. If the command is killed, the program is killed too.

The command `python` passes only scripts, `dagwright` and examples to the fork server. For all other arguments, it
starts the interpreter of the tests. `sys.executable` of each program is this command. The commands must not import
packages, because each command would pay for the import.
"""

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from tests.support.fork_server import LENGTH_BYTES, ROOT, encode_request

_COMMAND: Final = """\
#!/bin/sh
exec "{python}" -S -c "
import sys
sys.path[0] = '{root}'
from tests.support.forked_command import main
main('{address}')
" {name} "$@"
"""
_FORKED_MODULE_PREFIXES: Final = ("examples.",)


def write_commands(folder: Path, *, address: str) -> None:
    """Write the commands to a new folder. They use the fork server at the socket `address`."""
    folder.mkdir()
    for name in ("dagwright", "python"):
        command = folder / name
        text = _COMMAND.format(python=sys.executable, root=ROOT, address=address, name=name)
        command.write_text(text, encoding="utf-8")
        command.chmod(0o755)


def main(address: str) -> NoReturn:
    """Run the command in the arguments of this process, and end with its exit code."""
    _, name, *arguments = sys.argv
    if name == "dagwright":
        _run(address, [f"{ROOT}/starter.py"], arguments)
    if arguments and arguments[0].endswith(".py"):
        _run(address, [os.path.realpath(arguments[0])], arguments[1:])
    if arguments[:3] == ["-P", "-m", "dagwright"]:
        _run(address, [f"{ROOT}/starter.py"], arguments[3:])
    if arguments[:1] == ["-m"] and arguments[1].startswith(_FORKED_MODULE_PREFIXES):
        _run(address, arguments[:2], arguments[2:])
    os.execv(sys.executable, [sys.executable, *arguments])


def _run(address: str, program: list[str], arguments: list[str]) -> NoReturn:
    message = encode_request(
        program=program,
        arguments=arguments,
        folder=str(Path.cwd()),
        environment=os.environ,
        interpreter=str(Path(address).parent / "bin" / "python"),
        ends_with_client=True,
    )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(message).to_bytes(LENGTH_BYTES, "big")], [0, 1, 2])
        connection.sendall(message)
        responses = connection.makefile("rb")
        pid = int(responses.readline())
        for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signal_number, lambda received_number, _: _forward(received_number, pid))
        code = int(responses.readline())
    if code < 0:
        with suppress(OSError):  # SIGKILL cannot have a handler.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _forward(number: int, pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
