"""The process edge: whatever a command raises becomes one sentence, a document with `--json`, and an exit code.

A traceback is never shown unless the log level is `debug`; it goes to a file that the sentence names.
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
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from typer import Abort, TyperException

from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.store.private_files import make_private_folder, private_opener

if TYPE_CHECKING:
    from dagwright.settings import Settings


class _Answer(NamedTuple):
    status: str
    code: ExitCode
    words: str = ""
    """Stands instead of the text of the error."""


_EXPECTED: Final = {
    "dagwright.core.extras.MissingExtra": _Answer("missing_extra", ExitCode.REFUSED),
    "dagwright.core.plugins.PluginError": _Answer("bad_plugin", ExitCode.REFUSED),
    "dagwright.settings.SettingsError": _Answer("bad_usage", ExitCode.REFUSED),
    "dagwright.tools.errors.ToolLoadError": _Answer("unreadable", ExitCode.REFUSED),
    "dagwright.plans.templates.TemplatesUnreadable": _Answer("unreadable", ExitCode.REFUSED),
    "dagwright.llm.prices.PricesUnreadable": _Answer("bad_usage", ExitCode.REFUSED),
    "dagwright.store.errors.OtherStore": _Answer("other_store", ExitCode.REFUSED),
    "dagwright.store.errors.StoreError": _Answer("no_store", ExitCode.FAILED),
    "dagwright.server.errors.ServerUnreachable": _Answer("no_server", ExitCode.NO_SERVER),
    "dagwright.history.run_reader.RunNotFound": _Answer("not_found", ExitCode.REFUSED),
    "dagwright.client.runs.RunIdInUse": _Answer("id_in_use", ExitCode.REFUSED),
    "dagwright.client.sessions.SessionNotFound": _Answer("not_found", ExitCode.REFUSED),
    "dagwright.protocol.sessions.SessionNameInvalid": _Answer("bad_usage", ExitCode.REFUSED),
    "dagwright.client.runs.IdInvalid": _Answer("bad_usage", ExitCode.REFUSED),
}
"""Errors whose text is the sentence to show. By name: importing their modules would cost commands that need none."""

_SERVER_ERROR: Final = "temporalio.service.RPCError"
_SERVER_LOST: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
"""What the client says if nobody answered; all else is the answer of a server that refuses."""
_LOST: Final = "the Temporal server does not answer, but runs that were started stay: `watch ID` goes on with one"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOG_NAME: Final = "errors.log"
_LIBRARY_WORDS: Final = (
    (re.compile(r"^(Invalid value for '[^']*': )Value error, "), r"\1"),
    (re.compile(r"^(Invalid value for '[^']*': )Input should be "), r"\1it must be "),
    (re.compile(r"it must be greater than or equal to "), "it must be at least "),
    (re.compile(r"it must be less than or equal to "), "it must be at most "),
    (re.compile(r"it must be a valid integer(, unable to parse string as an integer)?"), "it must be a whole number"),
)
"""Words of the libraries that read options, and ours for them, one after the other."""


def guarded(command: Callable[[], int], output: Output, *, settings: Callable[[], "Settings"]) -> int:
    """Runs a command and returns its exit code, whatever it raises.

    Args:
        command: does the work.
        output: of the command.
        settings: reads the settings, for the log of defects.
    """
    try:
        return command()
    except CommandRefused as error:
        output.problem(str(error), status=error.status)
        return error.code
    except TyperException as error:
        output.problem(_usage_sentence(error), status="bad_usage")
        return ExitCode.REFUSED
    except (KeyboardInterrupt, Abort):
        output.tell("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter must not meet the same when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    # The process edge: what nobody expected is told in one line, and kept in full where it can be found.
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            _tell_full(error, output)
            return ExitCode.FAILED
        if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("dagwright"):
            told = f"the package {error.name!r} is not installed here, and this version of Dagwright needs it"
            output.problem(f"{told}: `make setup` brings what is missing", status="not_installed")
            return ExitCode.FAILED
        answer = _expected(error)
        if answer is not None:
            output.problem(answer.words or one_line(str(error), limit=2_000), status=answer.status)
            return answer.code
        sentence = f"a defect of Dagwright: {type(error).__name__}: {one_line(str(error))}"
        output.problem(f"{sentence}; its traceback is in {_keep(error, settings)}", status="defect")
        return ExitCode.FAILED


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code."""
    if "temporalio" not in sys.modules:
        sys.exit(code)
    # Threads of the SDK's core still send log lines while the interpreter shuts down, which then ends in `Fatal Python
    # error: PyGILState_Release` and SIGABRT. Everything of ours is closed by now, so there is nothing to shut down.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def open_standard_streams() -> None:
    """Opens those that whoever started the process has closed: what it opens next would take their place.

    A socket in the place of stdout gets what is written there, and closing it ends the process.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, so this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _tell_full(error: OSError, output: Output) -> None:
    where = str(error.filename or "the output, or the disk of the state folder,")
    words = f"{where} is full: {error.strerror}"
    try:
        output.problem(words, status="disk_full")
    except OSError:
        # It is stdout, so there is no document either.
        output.tell(words)


def _usage_sentence(error: TyperException) -> str:
    message = one_line(error.format_message()).rstrip(".")
    for words, ours in _LIBRARY_WORDS:
        message = words.sub(ours, message)
    context = getattr(error, "ctx", None)
    return f"{message}; see `{context.command_path} --help`" if context is not None else message


def _expected(error: Exception) -> _Answer | None:
    for kind in type(error).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _EXPECTED:
            return _EXPECTED[name]
        if name == _SERVER_ERROR:
            status = getattr(getattr(error, "status", None), "name", "")
            is_lost = status in _SERVER_LOST
            lost = _Answer("no_server", ExitCode.NO_SERVER, words=_LOST)
            return lost if is_lost else _Answer("refused", ExitCode.FAILED)
    return None


def _keep(error: Exception, settings: Callable[[], "Settings"]) -> Path:
    """Writes the traceback to a file and returns its path; to stderr too at the log level `debug`."""
    text = "".join(traceback.format_exception(error))
    folder = Path(tempfile.gettempdir())
    # The settings or the disk may be what is broken, and the sentence about it must still be told.
    with suppress(Exception):
        known = settings()
        if known.log_level == "debug":
            sys.stderr.write(text)
        make_private_folder(known.state_dir)
        folder = known.state_dir
    path = folder / _LOG_NAME
    with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace", opener=private_opener) as log:
        log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")
    return path
