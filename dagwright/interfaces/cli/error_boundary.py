"""Top-level error handling: every exception becomes a message, a document with `--json`, and an exit code.

The traceback of an internal error goes to a file that the message names, and at the log level `debug` also to stderr.
"""

import errno
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from typer import Abort, TyperException

from dagwright.core.name_hints import not_one_of_message
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.store.private_files import make_private_folder, private_opener

if TYPE_CHECKING:
    from dagwright.settings import Settings


_CODE_OF_ERROR: Final = {
    "dagwright.core.extras.MissingExtra": CommandErrorCode.MISSING_EXTRA,
    "dagwright.core.plugins.PluginError": CommandErrorCode.BAD_PLUGIN,
    "dagwright.settings.SettingsError": CommandErrorCode.INVALID_VALUE,
    "dagwright.tools.errors.ToolLoadError": CommandErrorCode.UNREADABLE,
    "dagwright.plans.templates.TemplatesUnreadable": CommandErrorCode.UNREADABLE,
    "dagwright.llm.prices.PricesUnreadable": CommandErrorCode.INVALID_VALUE,
    "dagwright.store.errors.StoreMismatch": CommandErrorCode.STORE_DIFFERS,
    "dagwright.store.errors.StoreError": CommandErrorCode.STORE_UNAVAILABLE,
    "dagwright.server.errors.ServerUnreachable": CommandErrorCode.SERVER_UNAVAILABLE,
    "dagwright.history.executions.RunNotFound": CommandErrorCode.NOT_FOUND,
    "dagwright.client.errors.RunIdInUse": CommandErrorCode.RUN_ID_IN_USE,
    "dagwright.client.errors.SessionNotFound": CommandErrorCode.NOT_FOUND,
    "dagwright.protocol.sessions.SessionIdInvalid": CommandErrorCode.INVALID_SESSION_ID,
    "dagwright.client.errors.OptionInvalid": CommandErrorCode.INVALID_VALUE,
    "dagwright.client.errors.RunIdInvalid": CommandErrorCode.INVALID_RUN_ID,
}
"""Name of an expected error -> code. The keys are names: importing the classes would slow down most commands."""

_SERVER_ERROR: Final = "temporalio.service.RPCError"
_UNREACHABLE_CODES: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
"""Status codes of a server that does not respond; with other codes, the server rejects the request."""
_BUSY_CODE: Final = "RESOURCE_EXHAUSTED"
_UNREACHABLE_MESSAGE: Final = "the Temporal server does not respond; started runs continue: `watch ID` follows a run"
_DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOG_NAME: Final = "errors.log"
_LIBRARY_MESSAGES: Final = (
    (re.compile(r"^(Invalid value for '[^']*': )Value error, "), r"\1"),
    (re.compile(r"^(Invalid value for '[^']*': )Input should be "), r"\1it must be "),
    (re.compile(r"it must be greater than or equal to "), "it must be at least "),
    (re.compile(r"it must be less than or equal to "), "it must be at most "),
    (re.compile(r"it must be a valid integer(, unable to parse string as an integer)?"), "it must be a whole number"),
)
"""Pattern in the message of a library -> replacement, applied in this order."""

_INVALID_CHOICE_PATTERN: Final = re.compile(r"'([^']*)' is not one of (.+)$")
_CHOICE_PATTERN: Final = re.compile("'([^']*)'")


def run_guarded(command: Callable[[], int], output: Output, *, load_settings: Callable[[], "Settings"]) -> int:
    """Run a command and return its exit code; errors are reported.

    Args:
        load_settings: loads the settings, which name the folder for the log of internal errors.
    """
    try:
        return command()
    except CommandError as error:
        output.problem(str(error), code=error.code)
        return error.code.exit_code
    except TyperException as error:
        output.problem(_usage_sentence(error), code=CommandErrorCode.INVALID_VALUE)
        return ExitCode.REJECTED
    except (KeyboardInterrupt, Abort):
        output.log("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has exited, so the flush at the exit of this process would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    # Top-level handler: unexpected errors become one line, with the traceback in a file.
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            _print_disk_full(error, output)
            return ExitCode.FAILED
        if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("dagwright"):
            missing_text = f"the package {error.name!r} is not installed, and this version of Dagwright needs it"
            output.problem(f"{missing_text}: run `make setup`", code=CommandErrorCode.NOT_INSTALLED)
            return ExitCode.FAILED
        if (expected_error := _expected_error(error)) is not None:
            code, text = expected_error
            output.problem(text, code=code)
            return code.exit_code
        message = f"internal error of Dagwright: {type(error).__name__}: {one_line(str(error))}"
        output.problem(
            f"{message}; its traceback is in {_write_traceback(error, load_settings)}", code=CommandErrorCode.DEFECT
        )
        return ExitCode.FAILED


def end_process(code: int) -> NoReturn:
    """End the process with an exit code."""
    if "temporalio" not in sys.modules:
        sys.exit(code)
    # Threads of the SDK still log while the interpreter shuts down. The process would then end with `Fatal Python
    # error: PyGILState_Release` and SIGABRT. All resources are closed by now, so an immediate exit is safe.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def open_standard_streams() -> None:
    """Open the standard streams that the parent process has closed, so that no other file gets their descriptors.

    A socket with the descriptor of stdout would receive the output of the command.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # `os.open` returns the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _print_disk_full(error: OSError, output: Output) -> None:
    location = str(error.filename or "the output, or the disk of the state folder,")
    message = f"{location} is full: {error.strerror}"
    try:
        output.problem(message, code=CommandErrorCode.DISK_FULL)
    except OSError:
        # stdout is full, so there is no document.
        output.log(message)


def _usage_sentence(error: TyperException) -> str:
    message = one_line(error.format_message()).rstrip(".")
    for pattern, replacement in _LIBRARY_MESSAGES:
        message = pattern.sub(replacement, message)
    if (choice := _INVALID_CHOICE_PATTERN.search(message)) is not None:
        message = f"{message[: choice.start()]}{not_one_of_message(choice[1], _CHOICE_PATTERN.findall(choice[2]))}"
    context = getattr(error, "ctx", None)
    return f"{message}; see `{context.command_path} --help`" if context is not None else message


def _expected_error(error: Exception) -> tuple[CommandErrorCode, str] | None:
    """Return the code and the message of an expected error; `None` for an internal error."""
    text = one_line(str(error), limit=2_000)
    for error_type in type(error).__mro__:
        name = f"{error_type.__module__}.{error_type.__qualname__}"
        if name in _CODE_OF_ERROR:
            return _CODE_OF_ERROR[name], text
        if name == _SERVER_ERROR:
            code_name = getattr(getattr(error, "status", None), "name", "")
            if code_name in _UNREACHABLE_CODES:
                return CommandErrorCode.SERVER_UNAVAILABLE, _UNREACHABLE_MESSAGE
            is_busy = code_name == _BUSY_CODE
            return CommandErrorCode.SERVER_BUSY if is_busy else CommandErrorCode.SERVER_REJECTED, text
    return None


def _write_traceback(error: Exception, load_settings: Callable[[], "Settings"]) -> Path:
    """Write the traceback to a file and return the path. At the log level `debug`, also write it to stderr."""
    text = "".join(traceback.format_exception(error))
    folder = Path(tempfile.gettempdir())
    # The settings or the disk may have caused the error. The message must be shown even if the log cannot be written.
    with suppress(Exception):
        current_settings = load_settings()
        if current_settings.log_level == "debug":
            sys.stderr.write(text)
        make_private_folder(current_settings.state_dir)
        folder = current_settings.state_dir
    path = folder / _LOG_NAME
    with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace", opener=private_opener) as log:
        log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")
    return path
