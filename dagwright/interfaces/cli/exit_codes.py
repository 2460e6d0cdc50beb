"""Exit codes, the statuses of refused commands, and the error that commands raise.

CommandRefused      the command cannot be executed; has a message and a status, which has an exit code
"""

from enum import IntEnum
from typing import Final, Self

from dagwright.core.error_codes import DescribedCode


class ExitCode(IntEnum):
    """Exit code of a command; the reference is generated from the descriptions."""

    COMPLETED = 0
    """The run completed or is still open, or the command has done its work."""
    FAILED = 1
    """The run failed or completed with failures, no request arrived in time, rows of a file were refused, the payload
    store, the database or the disk cannot be used, or a defect of Dagwright ended the command."""
    REFUSED = 2
    """The command, its plan or its settings are invalid, the run does not exist, or the run refuses the command."""
    CANCELLED = 3
    """The run was cancelled."""
    NO_SERVER = 4
    """No server or no worker is available."""
    INTERRUPTED = 130
    """The command was interrupted; with `--json` no document is written."""


_OF_STATUS = {
    "failed": ExitCode.FAILED,
    "completed_with_failures": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def exit_code_of(status: str) -> ExitCode:
    """Return the exit code for the state of a run; 0 for an open run."""
    return _OF_STATUS.get(status, ExitCode.COMPLETED)


_LATER: Final = True
"""Marks a status as retryable."""


class Refusal(DescribedCode):
    """Status of a refused command, from which the reference is generated.

    Members also have an `exit_code`, and whether the same command may succeed later (`is_retryable`).
    """

    exit_code: ExitCode
    is_retryable: bool

    def __new__(cls, status: str, exit_code: ExitCode, meaning: str, remedy: str, is_retryable: bool = False) -> Self:
        """Create a member from its row."""
        facts = {"exit_code": exit_code, "is_retryable": is_retryable}
        return cls.create_member(status, meaning=meaning, remedy=remedy, **facts)

    BAD_PLUGIN = (
        "bad_plugin",
        ExitCode.REFUSED,
        "A plugin cannot be loaded.",
        "Correct or uninstall the distribution that the message names.",
    )
    BAD_USAGE = (
        "bad_usage",
        ExitCode.REFUSED,
        "An option, an argument or a setting is invalid.",
        "Correct it; `--help` lists the options.",
    )
    DEFECT = (
        "defect",
        ExitCode.FAILED,
        "A defect of Dagwright.",
        "Report it with the traceback, whose file the message names.",
    )
    DISK_FULL = ("disk_full", ExitCode.FAILED, "The disk is full.", "Free space, and repeat the command.", _LATER)
    EMPTY_GOAL = ("empty_goal", ExitCode.REFUSED, "The request in words is empty.", "Describe the task in text.")
    ID_IN_USE = ("id_in_use", ExitCode.REFUSED, "Another run has the ID.", "Choose another `--id`.")
    INTERRUPTED = (
        "interrupted",
        ExitCode.INTERRUPTED,
        "The command was interrupted.",
        "Repeat it; it continues.",
        _LATER,
    )
    INVALID = ("invalid", ExitCode.REFUSED, "The session refuses the request.", "See the message.")
    INVALID_FIELD = (
        "invalid_field",
        ExitCode.REFUSED,
        "An argument or the request is not a valid text.",
        "Give it in UTF-8.",
    )
    INVALID_POLICY = (
        "invalid_policy",
        ExitCode.REFUSED,
        "The file of a policy is invalid.",
        "Correct it at the pointer of the message.",
    )
    MISSING_EXTRA = (
        "missing_extra",
        ExitCode.REFUSED,
        "The feature needs an extra that is not installed.",
        "Install it as the message says.",
    )
    MISSING_INPUT = ("missing_input", ExitCode.REFUSED, "An input of the plan has no value.", "Give it with `--input`.")
    NEED_UNKNOWN = (
        "need_unknown",
        ExitCode.FAILED,
        "Runs may need any of the stored values, so none is removed.",
        "Repeat the command when the server responds.",
        _LATER,
    )
    NO_DATABASE = (
        "no_database",
        ExitCode.FAILED,
        "The database cannot be used.",
        "Start it, or correct the setting that the message names.",
        _LATER,
    )
    NO_GATEWAY = (
        "no_gateway",
        ExitCode.FAILED,
        "The gateway has not started.",
        "See its log, which the message names.",
        _LATER,
    )
    NO_KEY = (
        "no_key",
        ExitCode.REFUSED,
        "There is no key for the model service.",
        "Set `OPENAI_API_KEY`, or `OPENAI_BASE_URL` for a service without keys.",
    )
    NO_MODEL = ("no_model", ExitCode.REFUSED, "No model is configured.", "Use `--model`, or set `DAGWRIGHT_MODEL`.")
    NO_REQUEST = (
        "no_request",
        ExitCode.FAILED,
        "No request has arrived within `--wait`.",
        "`dagwright explain ID` shows why a run waits; repeat the command.",
        _LATER,
    )
    NO_SERVER = (
        "no_server",
        ExitCode.NO_SERVER,
        "No Temporal server responds, or none can be started.",
        "Start it with `dagwright up`, or correct the address.",
        _LATER,
    )
    NO_STORE = (
        "no_store",
        ExitCode.FAILED,
        "The payload store cannot be used.",
        "Repair the [store](../deploy/store-outages.md).",
        _LATER,
    )
    NO_TOOLS = (
        "no_tools",
        ExitCode.REFUSED,
        "There is no tool for the request.",
        "Name tools with `--tools` or `--agents`.",
    )
    NO_WORKER = (
        "no_worker",
        ExitCode.NO_SERVER,
        "No worker serves the session or the run.",
        "Start one with `dagwright up`.",
        _LATER,
    )
    NOT_ANSWERED = (
        "not_answered",
        ExitCode.REFUSED,
        "The request is still open.",
        "Answer it with `dagwright feedback`.",
    )
    NOT_CONFIRMED = ("not_confirmed", ExitCode.REFUSED, "The command needs a confirmation.", "Add `--yes`.")
    NOT_FOUND = (
        "not_found",
        ExitCode.REFUSED,
        "The run, node, session, request, agent or key does not exist.",
        "Check the name.",
    )
    NOT_INSTALLED = ("not_installed", ExitCode.FAILED, "A package is missing.", "Run `make setup`.")
    NOT_STARTED = (
        "not_started",
        ExitCode.REFUSED,
        "The run of a turn could not be started.",
        "Send the message again.",
        _LATER,
    )
    OTHER_SETTINGS = (
        "other_settings",
        ExitCode.REFUSED,
        "A background worker has other settings.",
        "Use the same settings, or end the worker with `dagwright down`.",
    )
    OTHER_STORE = (
        "other_store",
        ExitCode.REFUSED,
        "The workers of the task queue use another payload store.",
        "Use the settings of the workers.",
    )
    REFUSED = ("refused", ExitCode.REFUSED, "The run refuses the command.", "See the message.")
    REJECTED = ("rejected", ExitCode.REFUSED, "A person rejected the plan.", "Ask again with other words.")
    SERVER_REFUSED = ("server_refused", ExitCode.FAILED, "The Temporal server refuses the request.", "See the message.")
    SESSION_BUSY = (
        "session_busy",
        ExitCode.REFUSED,
        "Another turn of the session runs.",
        "Repeat the command when it has ended.",
        _LATER,
    )
    SESSION_CHANGED = (
        "session_changed",
        ExitCode.REFUSED,
        "The session changed while the turn was prepared.",
        "Repeat the command.",
        _LATER,
    )
    SESSION_ENDING = (
        "session_ending",
        ExitCode.REFUSED,
        "The session is being ended.",
        "Repeat the command, or use another session.",
        _LATER,
    )
    TOO_LARGE = ("too_large", ExitCode.REFUSED, "The request is over a limit.", "Shorten it; see [limits](limits.md).")
    UNREADABLE = (
        "unreadable",
        ExitCode.REFUSED,
        "A file cannot be read, or its content is invalid.",
        "Correct the file that the message names.",
    )
    WORKER_STARTING = (
        "worker_starting",
        ExitCode.FAILED,
        "Another command is starting a worker.",
        "Repeat the command.",
        _LATER,
    )

    @classmethod
    def of(cls, code: str) -> "Refusal":
        """Return the status with the code of a rejected turn or request; `REFUSED` for an unknown code."""
        return next((refusal for refusal in cls if refusal == code), cls.REFUSED)


class CommandRefused(Exception):
    """A command cannot be executed.

    Args:
        message: one sentence with the problem and the fix.
    """

    def __init__(self, message: str, *, status: Refusal = Refusal.BAD_USAGE) -> None:
        super().__init__(message)
        self.status = status
