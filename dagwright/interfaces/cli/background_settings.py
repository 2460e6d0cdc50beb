"""Compare the settings of the processes that serve the runs of a state folder.

Any worker of a task queue may execute a part of any run. A command is therefore rejected if another process that serves
runs of the folder, in the background or as a command, has other settings. Each process has a file `<name>.settings`
next to its lock. The file has a salt and digests of the settings on which a run may depend, not the settings
themselves. Files of background processes are in `workers/`, files of commands in `serving/`.
"""

import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from pathlib import Path

from dagwright.features.explain.reasons import join_names
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.server import Daemon, LocalServer, configured_server
from dagwright.server.locks import acquire_lock
from dagwright.settings import Settings, app_settings
from dagwright.store.private_files import make_private_folder

GATEWAY = "gateway"
"""Name of the gateway among the background processes."""

_SERVER_SETTINGS = frozenset({"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "DAGWRIGHT_TASK_QUEUE"})
"""Settings that select the server and the task queue: processes that differ in them serve different runs."""
FILES_ROOT = "DAGWRIGHT_FILES_ROOT"
"""Setting whose default is the current folder, so that commands in different folders have different values."""
_LOCK_TIMEOUT_S = 30.0
"""Seconds to wait for the start lock, which a process usually holds for a tenth of a second."""
_DIGEST_ROUNDS = 100


class SettingsDiffer(CommandError):
    """Another process that serves runs of the folder has other settings.

    Args:
        difference: the process and the variables that differ.
        consequence_and_fix: the consequence for the command, and the fix.
        serves_other_runs: whether the process uses another server, namespace or task queue.
    """

    def __init__(self, difference: str, consequence_and_fix: str, *, serves_other_runs: bool = False) -> None:
        super().__init__(f"{difference}{consequence_and_fix}", code=CommandErrorCode.SETTINGS_DIFFER)
        self.difference = difference
        self.serves_other_runs = serves_other_runs


def reject_other_settings(settings: Settings, *, ignored_names: frozenset[str] = frozenset()) -> None:
    """Reject a command if another process that serves runs of its folder has other settings.

    Args:
        ignored_names: variables that may differ.

    Raises:
        SettingsDiffer: a process differs; the message names the variables.
        ServerUnreachable: Temporal's environment variables or its config file cannot be read.
    """
    for daemon, names in _processes_that_differ(_background_processes(settings), settings, ignored_names):
        raise _daemon_differs_error(daemon, names, settings)
    for command, names in _processes_that_differ(_running_commands(settings), settings, ignored_names):
        if names is not None and _SERVER_SETTINGS & {*names}:
            continue
        raise _command_differs_error(command, names, settings)


def _daemon_differs_error(daemon: Daemon, names: list[str] | None, settings: Settings) -> SettingsDiffer:
    subject = f"the {daemon.name.partition('-')[0]} in the background of {settings.state_dir}"
    if names is None:
        return SettingsDiffer(f"{subject} has unknown settings", ": end it with `dagwright down`")
    fix = "use the same value, or end it with `dagwright down` (`watch --no-worker` still works)"
    consequence = "keeps that value" if daemon.name.startswith(GATEWAY) else "would take part in the run"
    if serves_other_runs := bool(_SERVER_SETTINGS & {*names}):
        # The process would not take part in the run, but no second background process can have the same name.
        consequence, fix = "serves only runs with that value", f"{fix}, or use another DAGWRIGHT_STATE_DIR"
    difference = f"{subject} was started with another value of {_settings_text(names, settings)}"
    return SettingsDiffer(difference, f", and {consequence}: {fix}", serves_other_runs=serves_other_runs)


def _command_differs_error(command: Daemon, names: list[str] | None, settings: Settings) -> SettingsDiffer:
    subject = f"a command that serves runs of {settings.state_dir} (process {command.name.partition('-')[0]})"
    difference = "unknown settings" if names is None else f"another value of {_settings_text(names, settings)}"
    fix = "end it first" if names is None else "end it first, or use the same value"
    fix = f"{fix} (`watch --no-worker` still works)"
    return SettingsDiffer(f"{subject} has {difference}", f", and would take part in the run: {fix}")


@asynccontextmanager
async def start_lock(settings: Settings) -> AsyncIterator[None]:
    """Hold the start lock, so that only one process at a time compares settings and starts to serve.

    Raises:
        CommandError: another process does not release the lock.
        OSError: the state folder cannot be written.
    """
    make_private_folder(settings.state_dir)
    try:
        descriptor = await acquire_lock(settings.state_dir / "workers.lock", timeout_s=_LOCK_TIMEOUT_S)
    except TimeoutError as error:
        raise CommandError(
            f"another command is starting a worker: {error}", code=CommandErrorCode.WORKER_STARTING
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def serving_with_settings(settings: Settings) -> AsyncIterator[None]:
    """While the block lasts, record that this process serves runs with its settings.

    Raises:
        SettingsDiffer: another process that serves runs of the state folder has other settings.
    """
    if not _is_writable(settings.state_dir):
        # The settings cannot be recorded in this folder, so they are only compared.
        reject_other_settings(settings)
        yield
        return
    command = Daemon(settings.state_dir / "serving", f"{os.getpid()}-{secrets.token_hex(4)}")
    async with start_lock(settings):
        reject_other_settings(settings)
        _remove_dead_commands(settings)
        record_settings(command, settings)
        descriptor = await acquire_lock(command.lock_path, timeout_s=1)
    try:
        yield
    finally:
        _remove_files(command)
        os.close(descriptor)


def record_settings(daemon: Daemon, settings: Settings) -> None:
    """Record the settings of a process before it is started. A process of this name must not be running."""
    salt = secrets.token_hex(16)
    run_settings = _settings_of_runs(settings)
    record = {"salt": salt, "settings": {name: _digest(salt, value) for name, value in run_settings.items()}}
    make_private_folder(settings.state_dir)
    make_private_folder(daemon.folder)
    path = _record_path(daemon)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(record, file)


def _is_writable(folder: Path) -> bool:
    try:
        make_private_folder(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _background_processes(settings: Settings) -> list[Daemon]:
    """Return the background processes, workers first, so that an error names a worker rather than the gateway."""
    running_daemons = [daemon for daemon in LocalServer(settings).workers() if daemon.is_running()]
    return sorted(running_daemons, key=lambda daemon: daemon.name.startswith(GATEWAY))


def _running_commands(settings: Settings) -> list[Daemon]:
    folder = settings.state_dir / "serving"
    daemons = [Daemon(folder, path.stem) for path in sorted(folder.glob("*.lock"))]
    return [command for command in daemons if command.is_running()]


def _remove_dead_commands(settings: Settings) -> None:
    """Remove the files of commands that were killed; the caller holds the start lock."""
    for path in (settings.state_dir / "serving").glob("*.lock"):
        if not (command := Daemon(path.parent, path.stem)).is_running():
            _remove_files(command)


def _remove_files(command: Daemon) -> None:
    command.lock_path.unlink(missing_ok=True)
    _record_path(command).unlink(missing_ok=True)


def _settings_text(names: Sequence[str], settings: Settings) -> str:
    """Join the names of settings. If `DAGWRIGHT_FILES_ROOT` is not set, add its default to its name."""
    files_root_text = f"{FILES_ROOT} (not set here, so it is the current folder, {settings.files_root})"
    return join_names(
        [
            files_root_text if name == FILES_ROOT and "files_root" not in settings.model_fields_set else name
            for name in names
        ]
    )


def _processes_that_differ(
    processes: Iterable[Daemon], settings: Settings, ignored_names: frozenset[str]
) -> Iterator[tuple[Daemon, list[str] | None]]:
    """Yield each process whose settings differ, with the names of the settings that differ.

    If the record of a process is unreadable, yield `None` instead of the names.
    """
    settings_of_this_process: dict[str, str] = {}
    for process in processes:
        settings_of_this_process = settings_of_this_process or _settings_of_runs(settings)
        try:
            record = json.loads(_record_path(process).read_text(encoding="utf-8"))
            salt, recorded_digests = str(record["salt"]), dict(record["settings"])
        except (OSError, ValueError, KeyError, TypeError):
            yield process, None
            continue
        digests = {name: _digest(salt, value) for name, value in settings_of_this_process.items()}
        compared_names = {*digests, *recorded_digests} - ignored_names
        if names := sorted(name for name in compared_names if digests.get(name) != recorded_digests.get(name)):
            yield process, names


def _record_path(process: Daemon) -> Path:
    return process.folder / f"{process.name}.settings"


def _settings_of_runs(settings: Settings) -> dict[str, str]:
    settings_of_apps = (app.settings_of_runs() for app in app_settings(settings))
    return reduce(or_, settings_of_apps, {**configured_server(), **settings.settings_of_runs()})


def _digest(salt: str, value: str) -> str:
    # The digest is slow on purpose, because a password in a URL may be short.
    return hashlib.pbkdf2_hmac("sha256", value.encode(errors="surrogateescape"), salt.encode(), _DIGEST_ROUNDS).hex()
