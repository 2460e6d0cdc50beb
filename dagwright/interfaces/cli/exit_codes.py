"""Exit codes, the error codes of failed commands, and `CommandError`, which commands raise."""

from enum import IntEnum
from typing import Final, Self

from dagwright.core.error_codes import DescribedCode


class ExitCode(IntEnum):
    """Exit code of a command. The reference page is generated from the descriptions."""

    COMPLETED = 0
    """The run completed or is still open, or the command has done its work."""
    FAILED = 1
    """The run failed or completed with failures; or no feedback request arrived in time; or rows of a file were
    rejected; or the payload store, the database or the disk cannot be used; or a defect of Dagwright ended the
    command."""
    REJECTED = 2
    """The command, its plan or its settings are invalid, the run does not exist, or the run rejects the command."""
    CANCELLED = 3
    """The run was cancelled."""
    NO_SERVER = 4
    """No server or no worker is available."""
    INTERRUPTED = 130
    """The command was interrupted; with `--json` no document is written."""


_EXIT_CODE_OF_RUN_STATUS = {
    "failed": ExitCode.FAILED,
    "completed_with_failures": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def exit_code_of(status: str) -> ExitCode:
    """Return the exit code for the state of a run; 0 for an open run."""
    return _EXIT_CODE_OF_RUN_STATUS.get(status, ExitCode.COMPLETED)


_RETRYABLE: Final = True
"""Marks an error code as retryable."""


class CommandErrorCode(DescribedCode):
    """Error code of a failed command. The reference page is generated from the members.

    A member also has an `exit_code`, and `is_retryable`: whether the same command may succeed later.
    """

    exit_code: ExitCode
    is_retryable: bool

    def __new__(cls, code: str, exit_code: ExitCode, meaning: str, remedy: str, is_retryable: bool = False) -> Self:
        """Create a member from a tuple of the class body."""
        attributes = {"exit_code": exit_code, "is_retryable": is_retryable}
        return cls.create_member(code, meaning=meaning, remedy=remedy, **attributes)

    ANSWER_REJECTED = (
        "answer_rejected",
        ExitCode.REJECTED,
        "The answer is invalid, no node of the run can open a request with this ID, or the run has ended.",
        "Send an answer that matches a request of `dagwright inbox`.",
    )
    BAD_PLUGIN = (
        "bad_plugin",
        ExitCode.REJECTED,
        "A plugin cannot be loaded.",
        "Correct or uninstall the distribution that the message names.",
    )
    COMMAND_REJECTED = ("command_rejected", ExitCode.REJECTED, "The run rejects the command.", "See the message.")
    DATABASE_UNAVAILABLE = (
        "database_unavailable",
        ExitCode.FAILED,
        "The database cannot be used.",
        "Start it, or correct the setting that the message names.",
        _RETRYABLE,
    )
    DEFECT = (
        "defect",
        ExitCode.FAILED,
        "A defect of Dagwright.",
        "Report it with the traceback; the message names its file.",
    )
    DISK_FULL = ("disk_full", ExitCode.FAILED, "The disk is full.", "Free space, and repeat the command.", _RETRYABLE)
    EMPTY_REQUEST = (
        "empty_request",
        ExitCode.REJECTED,
        "The request in natural language is empty.",
        "Describe the task in text.",
    )
    FORK_REJECTED = ("fork_rejected", ExitCode.REJECTED, "The fork is not possible.", "See the message.")
    GATEWAY_UNAVAILABLE = (
        "gateway_unavailable",
        ExitCode.FAILED,
        "The gateway has not started.",
        "See its log, which the message names.",
        _RETRYABLE,
    )
    INTERRUPTED = (
        "interrupted",
        ExitCode.INTERRUPTED,
        "The command was interrupted.",
        "Repeat the command; a started run continues.",
        _RETRYABLE,
    )
    INVALID = ("invalid", ExitCode.REJECTED, "The session rejects the turn.", "See the message.")
    INVALID_FIELD = (
        "invalid_field",
        ExitCode.REJECTED,
        "An argument or the request in natural language is not a valid text.",
        "Give it in UTF-8.",
    )
    INVALID_RUN_ID = (
        "invalid_run_id",
        ExitCode.REJECTED,
        "The ID is not valid for a run.",
        "Choose an ID that the message allows.",
    )
    INVALID_SESSION_ID = (
        "invalid_session_id",
        ExitCode.REJECTED,
        "The ID is not valid for a session.",
        "Choose an ID that the message allows.",
    )
    INVALID_VALUE = (
        "invalid_value",
        ExitCode.REJECTED,
        "An option, an argument, a setting or the file of a policy is invalid.",
        "Correct it; `--help` lists the options.",
    )
    MISSING_EXTRA = (
        "missing_extra",
        ExitCode.REJECTED,
        "The feature needs an extra that is not installed.",
        "Install it as the message says.",
    )
    MISSING_INPUT = (
        "missing_input",
        ExitCode.REJECTED,
        "An input of the plan has no value.",
        "Give it with `--input`.",
    )
    MODEL_KEY_MISSING = (
        "model_key_missing",
        ExitCode.REJECTED,
        "There is no key for the model service.",
        "Set `OPENAI_API_KEY`, or `OPENAI_BASE_URL` for a service without keys.",
    )
    MODEL_NOT_SET = (
        "model_not_set",
        ExitCode.REJECTED,
        "No model is configured.",
        "Use `--model`, or set `DAGWRIGHT_MODEL`.",
    )
    NEEDED_VALUES_UNKNOWN = (
        "needed_values_unknown",
        ExitCode.FAILED,
        "It is unknown which stored values the runs need, so none is removed.",
        "Repeat the command when the server responds.",
        _RETRYABLE,
    )
    NOT_ANSWERED = (
        "not_answered",
        ExitCode.REJECTED,
        "No answer was given, so the feedback request is still open.",
        "Answer it with `dagwright feedback`.",
    )
    NOT_CONFIRMED = ("not_confirmed", ExitCode.REJECTED, "The command needs a confirmation.", "Add `--yes`.")
    NOT_FOUND = (
        "not_found",
        ExitCode.REJECTED,
        "The run, node, session, request, agent or key does not exist.",
        "Check the name.",
    )
    NOT_INSTALLED = ("not_installed", ExitCode.FAILED, "A package is missing.", "Run `make setup`.")
    NOT_STARTED = (
        "not_started",
        ExitCode.REJECTED,
        "The run of a turn could not be started.",
        "Send the message again.",
        _RETRYABLE,
    )
    NO_OPEN_REQUEST = (
        "no_open_request",
        ExitCode.REJECTED,
        "The run has no open request, or the form of the answer needs an open request with this ID.",
        "`dagwright inbox` lists the open requests.",
    )
    NO_REQUEST = (
        "no_request",
        ExitCode.FAILED,
        "No feedback request has arrived within `--wait`.",
        "`dagwright explain ID` shows why a run waits; repeat the command.",
        _RETRYABLE,
    )
    NO_TOOLS = (
        "no_tools",
        ExitCode.REJECTED,
        "There is no tool for the request.",
        "Name tools with `--tools` or `--agents`.",
    )
    NO_WORKER = (
        "no_worker",
        ExitCode.NO_SERVER,
        "No worker serves the session or the run.",
        "Start one with `dagwright up`.",
        _RETRYABLE,
    )
    REJECTED = ("rejected", ExitCode.REJECTED, "A person rejected the plan.", "Ask again with other words.")
    RUN_ENDED = (
        "run_ended",
        ExitCode.REJECTED,
        "The run has ended, so it accepts no commands.",
        "Start another run, or fork the ended run.",
    )
    RUN_ID_IN_USE = ("run_id_in_use", ExitCode.REJECTED, "Another run has the ID.", "Choose another `--id`.")
    SERVER_BUSY = (
        "server_busy",
        ExitCode.FAILED,
        "The Temporal server is overloaded.",
        "Repeat the command.",
        _RETRYABLE,
    )
    SERVER_REJECTED = (
        "server_rejected",
        ExitCode.FAILED,
        "The Temporal server rejects the request.",
        "See the message.",
    )
    SERVER_UNAVAILABLE = (
        "server_unavailable",
        ExitCode.NO_SERVER,
        "No Temporal server responds, or none can be started.",
        "Start it with `dagwright up`, or correct the address.",
        _RETRYABLE,
    )
    SESSION_BUSY = (
        "session_busy",
        ExitCode.REJECTED,
        "Another turn of the session runs.",
        "Repeat the command when that turn has ended.",
        _RETRYABLE,
    )
    SESSION_CHANGED = (
        "session_changed",
        ExitCode.REJECTED,
        "The session changed while the turn was prepared.",
        "Repeat the command.",
        _RETRYABLE,
    )
    SESSION_ENDING = (
        "session_ending",
        ExitCode.REJECTED,
        "The session is being ended.",
        "Repeat the command, or use another session.",
        _RETRYABLE,
    )
    SETTINGS_DIFFER = (
        "settings_differ",
        ExitCode.REJECTED,
        "A background worker has other settings.",
        "Use the same settings, or end the worker with `dagwright down`.",
    )
    STORE_DIFFERS = (
        "store_differs",
        ExitCode.REJECTED,
        "The workers of the task queue use another payload store.",
        "Use the settings of the workers.",
    )
    STORE_UNAVAILABLE = (
        "store_unavailable",
        ExitCode.FAILED,
        "The payload store cannot be used.",
        "Repair the [store](../deploy/store-outages.md).",
        _RETRYABLE,
    )
    TOO_LARGE = (
        "too_large",
        ExitCode.REJECTED,
        "The request in natural language, or the turn, is over a limit.",
        "Shorten it; see [limits](limits.md).",
    )
    UNREADABLE = (
        "unreadable",
        ExitCode.REJECTED,
        "A file cannot be read, or its content is invalid.",
        "Correct the file that the message names.",
    )
    WORKER_STARTING = (
        "worker_starting",
        ExitCode.FAILED,
        "Another command is starting a worker.",
        "Repeat the command.",
        _RETRYABLE,
    )

    @classmethod
    def of(cls, code: str) -> "CommandErrorCode":
        """Return the code of a rejected turn or request; `COMMAND_REJECTED` for an unknown code."""
        return next((member for member in cls if member == code), cls.COMMAND_REJECTED)


class CommandError(Exception):
    """A command cannot be executed.

    Args:
        message: one sentence with the problem and the fix.
    """

    def __init__(self, message: str, *, code: CommandErrorCode = CommandErrorCode.INVALID_VALUE) -> None:
        super().__init__(message)
        self.code = code
