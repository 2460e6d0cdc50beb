"""What can keep a search server from being had.

    NoSearchServer            no search server could be had; all below are such
    ├── NotRunning            none is named, and none runs in the state folder: start one, or name one
    │   └── NeverStarted      nor did one ever run there: waiting is of no use
    ├── ProgramMissing        Java or Maven is not on this machine: install it, or name a server
    ├── InstallFailed         the server's parts could not be fetched or compiled
    └── StartFailed           the process ended or did not answer; with the last lines of its log

Each text is one sentence that says what to do, with the lines of a log behind it where there is one.
"""

from collections.abc import Sequence


class NoSearchServer(Exception):
    """No search server could be had."""


class NotRunning(NoSearchServer):
    """No server is named in the settings and none runs in the state folder."""


class NeverStarted(NotRunning):
    """No server is named in the settings, and none has ever run in the state folder."""


class ProgramMissing(NoSearchServer):
    """A program that the server needs is not on the path."""

    def __init__(self, program: str, message: str) -> None:
        super().__init__(message)
        self.program = program


class InstallFailed(NoSearchServer):
    """Maven could not fetch the server's parts, or Java could not compile its launcher."""


class StartFailed(NoSearchServer):
    """The server's process ended, or did not answer in time.

    Args:
        lines: the last lines that this start wrote to the log, oldest first; may be empty.
    """

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__("\n".join([message, *(f"  {line}" for line in lines)]))
        self.lines = tuple(lines)
