"""How a command ends: exit codes, and the one error that commands raise themselves.

CommandRefused      what was asked cannot be done; carries sentence, status word and exit code
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of a command means (docs/cli.md)."""

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
    """Returns the exit code for the state of a run; a run that still goes on is no failure."""
    return _OF_STATUS.get(status, ExitCode.COMPLETED)


class CommandRefused(Exception):
    """A command can not do what was asked.

    Args:
        message: one sentence that says what is wrong and what to do.
        status: the word for it in the JSON document.
        code: exit code.
    """

    def __init__(self, message: str, *, status: str = "bad_usage", code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
