"""Exit codes, and the error that commands raise.

CommandRefused      the command cannot be executed; has a message, a status and an exit code
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Meaning of the exit codes (docs/reference/cli.md)."""

    COMPLETED = 0
    FAILED = 1
    REFUSED = 2
    CANCELLED = 3
    NO_SERVER = 4
    INTERRUPTED = 130


_OF_STATUS = {
    "failed": ExitCode.FAILED,
    "completed_with_failures": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def exit_code_of(status: str) -> ExitCode:
    """Return the exit code for the state of a run; 0 for an open run."""
    return _OF_STATUS.get(status, ExitCode.COMPLETED)


class CommandRefused(Exception):
    """A command cannot be executed.

    Args:
        message: one sentence with the problem and the fix.
        status: status in the JSON document.
        code: exit code.
    """

    def __init__(self, message: str, *, status: str = "bad_usage", code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
