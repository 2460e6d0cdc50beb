"""Errors of finding and starting a search server.

    NoSearchServer            base class
    ├── NotRunning            no server is configured, and none runs in the state folder: start or configure a server
    │   └── NeverStarted      no server has ever run there: waiting does not help
    ├── ProgramMissing        Java or Maven is not installed: install it, or configure a server
    ├── InstallFailed         the server could not be downloaded or compiled
    └── StartFailed           the process ended or did not answer; with the last lines of its log

Each message is one sentence with a hint, followed by log lines if there are any.
"""

from collections.abc import Sequence


class NoSearchServer(Exception):
    """No search server is available."""


class NotRunning(NoSearchServer):
    """No server is configured, and none runs in the state folder."""


class NeverStarted(NotRunning):
    """No server is configured, and none has ever run in the state folder."""


class ProgramMissing(NoSearchServer):
    """A required program is not on the path."""

    def __init__(self, program: str, message: str) -> None:
        super().__init__(message)
        self.program = program


class InstallFailed(NoSearchServer):
    """Maven could not download the server, or Java could not compile its launcher."""


class StartFailed(NoSearchServer):
    """The server process ended, or did not answer in time.

    Args:
        lines: the last log lines of this start, oldest first; may be empty.
    """

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__("\n".join([message, *(f"  {line}" for line in lines)]))
        self.lines = tuple(lines)
