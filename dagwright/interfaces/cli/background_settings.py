"""The settings of each process that serves the runs of a folder: none takes a part of a run with others in silence.

All of one queue take a part of every run, whoever starts it. So a command is refused where something else that serves
runs of the folder has other settings, be it in the background or another command. Beside the lock of each process lies
`<name>.settings`: a salt, and a digest of each setting that a run may depend on; no setting stands there in clear.
Those in the background are in `workers/`, commands in `serving/`.
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

from dagwright.features.explain.reasons import listed
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.server import Daemon, LocalServer, named_server
from dagwright.server.locks import take_lock
from dagwright.settings import Settings, app_settings
from dagwright.store.private_files import make_private_folder

OTHER_SETTINGS = "other_settings"
"""The status of what is refused."""

GATEWAY = "gateway"
"""What the gateway is called among the processes in the background."""

_PLACE = frozenset({"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "DAGWRIGHT_TASK_QUEUE"})
"""Where these differ two processes serve other runs."""
FILES_ROOT = "DAGWRIGHT_FILES_ROOT"
"""The current folder where it is not set, so it differs between commands that are started in two folders."""
_TURN_S = 30.0
"""How long others may be at starting something: each takes a tenth of a second."""
_DIGEST_ROUNDS = 100


class OtherSettings(CommandRefused):
    """Another process that serves runs of the folder has other settings.

    Args:
        difference: which process, and which variables differ.
        remedy: what that means for the command, and what to do.
        is_elsewhere: it serves another server, namespace or queue.
    """

    def __init__(self, difference: str, remedy: str, *, is_elsewhere: bool = False) -> None:
        super().__init__(f"{difference}{remedy}", status=OTHER_SETTINGS)
        self.difference = difference
        self.is_elsewhere = is_elsewhere


def refuse_other_settings(settings: Settings, *, ignored: frozenset[str] = frozenset()) -> None:
    """Refuse a command if another process that serves runs of its folder has other settings.

    Args:
        ignored: variables that may differ.

    Raises:
        OtherSettings: there is one; the message names the variables that differ.
        ServerUnreachable: Temporal's own variables cannot be read.
    """
    for daemon, names in _others(_background(settings), settings, ignored):
        raise _other_daemon(daemon, names, settings)
    for command, names in _others(_commands(settings), settings, ignored):
        if names is not None and _PLACE & {*names}:
            continue
        raise _other_command(command, names, settings)


def _other_daemon(daemon: Daemon, names: list[str] | None, settings: Settings) -> OtherSettings:
    what = f"the {daemon.name.partition('-')[0]} in the background of {settings.state_dir}"
    if names is None:
        return OtherSettings(f"{what} does not say which settings it has", ": end it with `dagwright down`")
    ways = "give the same, or end it with `dagwright down` (`watch --no-worker` only looks)"
    does = "continues with it" if daemon.name.startswith(GATEWAY) else "would take a part of the work"
    if is_elsewhere := bool(_PLACE & {*names}):
        # Nothing of what it does would go wrong, but it is found by its name, whatever it serves.
        does, ways = "serves that alone", f"{ways}, or take another DAGWRIGHT_STATE_DIR"
    difference = f"{what} was started with another value of {_setting_words(names, settings)}"
    return OtherSettings(difference, f", and {does}: {ways}", is_elsewhere=is_elsewhere)


def _other_command(command: Daemon, names: list[str] | None, settings: Settings) -> OtherSettings:
    which = f"a command that serves runs of {settings.state_dir} (process {command.name.partition('-')[0]})"
    difference = "unknown settings" if names is None else f"another value of {_setting_words(names, settings)}"
    fix = "end it first" if names is None else "end it first, or give the same"
    fix = f"{fix} (`watch --no-worker` only looks)"
    return OtherSettings(f"{which} has {difference}", f", and would take a part of the work: {fix}")


@asynccontextmanager
async def turn_of_background(settings: Settings) -> AsyncIterator[None]:
    """Lets one process at a time compare settings and begin to serve with its own.

    Raises:
        CommandRefused: another one does not come to an end with it.
        OSError: the state folder cannot be written.
    """
    make_private_folder(settings.state_dir)
    try:
        descriptor = await take_lock(settings.state_dir / "workers.lock", timeout_s=_TURN_S)
    except TimeoutError as error:
        raise CommandRefused(f"another command is starting a worker: {error}", status="no_worker") from error
    try:
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def serving_beside(settings: Settings) -> AsyncIterator[None]:
    """Notes for as long as the block lasts that this process serves runs with its settings.

    Raises:
        OtherSettings: another process that serves runs of the folder has others.
    """
    if not _is_writable(settings.state_dir):
        # Nothing can be started in the background from there either.
        refuse_other_settings(settings)
        yield
        return
    command = Daemon(settings.state_dir / "serving", f"{os.getpid()}-{secrets.token_hex(4)}")
    async with turn_of_background(settings):
        refuse_other_settings(settings)
        _forget_dead(settings)
        keep_settings(command, settings)
        descriptor = await take_lock(command.lock_path, timeout_s=1)
    try:
        yield
    finally:
        _forget(command)
        os.close(descriptor)


def keep_settings(daemon: Daemon, settings: Settings) -> None:
    """Notes the settings of a process that is started next; none of that name may run."""
    salt = secrets.token_hex(16)
    of_runs = _settings_of_runs(settings)
    record = {"salt": salt, "settings": {name: _digest(salt, value) for name, value in of_runs.items()}}
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


def _background(settings: Settings) -> list[Daemon]:
    """Returns what runs in the background: workers first, which take a part of runs; the gateway starts them."""
    running = [daemon for daemon in LocalServer(settings).workers() if daemon.is_running()]
    return sorted(running, key=lambda daemon: daemon.name.startswith(GATEWAY))


def _commands(settings: Settings) -> list[Daemon]:
    folder = settings.state_dir / "serving"
    known = [Daemon(folder, path.stem) for path in sorted(folder.glob("*.lock"))]
    return [command for command in known if command.is_running()]


def _forget_dead(settings: Settings) -> None:
    """Removes what commands that were killed have left; it has to be this process's turn."""
    for path in (settings.state_dir / "serving").glob("*.lock"):
        if not (command := Daemon(path.parent, path.stem)).is_running():
            _forget(command)


def _forget(command: Daemon) -> None:
    command.lock_path.unlink(missing_ok=True)
    _record_path(command).unlink(missing_ok=True)


def _setting_words(names: Sequence[str], settings: Settings) -> str:
    """List the names of settings; an unset root of the file tools is named with its default."""
    unset = f"{FILES_ROOT} (not set here, so it is the current folder, {settings.files_root})"
    return listed(
        [unset if name == FILES_ROOT and "files_root" not in settings.model_fields_set else name for name in names]
    )


def _others(
    processes: Iterable[Daemon], settings: Settings, ignored: frozenset[str]
) -> Iterator[tuple[Daemon, list[str] | None]]:
    """Yields the processes whose settings differ: with the names of these, `None` if they are not known."""
    mine: dict[str, str] = {}
    for process in processes:
        mine = mine or _settings_of_runs(settings)
        try:
            record = json.loads(_record_path(process).read_text(encoding="utf-8"))
            salt, theirs = str(record["salt"]), dict(record["settings"])
        except (OSError, ValueError, KeyError, TypeError):
            yield process, None
            continue
        digests = {name: _digest(salt, value) for name, value in mine.items()}
        compared = {*digests, *theirs} - ignored
        if names := sorted(name for name in compared if digests.get(name) != theirs.get(name)):
            yield process, names


def _record_path(process: Daemon) -> Path:
    return process.folder / f"{process.name}.settings"


def _settings_of_runs(settings: Settings) -> dict[str, str]:
    apps = (each.of_runs() for each in app_settings(settings))
    return reduce(or_, apps, {**named_server(), **settings.of_runs()})


def _digest(salt: str, value: str) -> str:
    # Slow on purpose: a password in an address may be short.
    return hashlib.pbkdf2_hmac("sha256", value.encode(errors="surrogateescape"), salt.encode(), _DIGEST_ROUNDS).hex()
