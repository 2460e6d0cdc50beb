"""The settings that each process in the background was started with: no command runs on others in silence.

Workers of one folder share a queue, so each takes a part of every run, whoever starts it. Beside the lock of each lies
`<name>.settings`: a salt, and a digest of each setting that a run may depend on; no setting stands there in clear.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping

from dagwright.cli.exits import CommandRefused
from dagwright.plan.reasons import listed
from dagwright.server import Daemon, LocalServer, named_server
from dagwright.settings import Settings

OTHER_SETTINGS = "other_settings"
"""The status of what is refused."""


def refuse_other_settings(settings: Settings, *, advice: str = "") -> None:
    """Refuses a command if what runs in the background of its folder has other settings than it has itself.

    Args:
        advice: what else can be done about it.

    Raises:
        CommandRefused: it has; the message names the variables that differ.
        NoServer: Temporal's own variables cannot be read.
    """
    ways = f"give the same{advice}, or end it with `dagwright down`"
    mine: Mapping[str, str] | None = None
    for daemon in LocalServer(settings).workers():
        if not daemon.is_running():
            continue
        mine = mine or _settings_of_runs(settings)
        names = _names_that_differ(daemon, mine)
        what = f"the {daemon.name.partition('-')[0]} in the background of {settings.state_dir}"
        if names is None:
            told = f"{what} does not say which settings it has: end it with `dagwright down`"
            raise CommandRefused(told, status=OTHER_SETTINGS)
        if names:
            told = (
                f"{what} was started with another value of {listed(names)}, and would take a part of the work: {ways}"
            )
            raise CommandRefused(told, status=OTHER_SETTINGS)


def keep_settings(daemon: Daemon, settings: Settings) -> None:
    """Notes the settings of a process that is started next; none of that name may run."""
    salt = secrets.token_hex(16)
    of_runs = _settings_of_runs(settings)
    record = {"salt": salt, "settings": {name: _digest(salt, value) for name, value in of_runs.items()}}
    daemon.folder.mkdir(parents=True, exist_ok=True)
    path = daemon.folder / f"{daemon.name}.settings"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(record, file)


def _names_that_differ(daemon: Daemon, mine: Mapping[str, str]) -> list[str] | None:
    """Returns the variables that differ, sorted; `None` if nothing is known of those of the process."""
    try:
        record = json.loads((daemon.folder / f"{daemon.name}.settings").read_text(encoding="utf-8"))
        salt, theirs = str(record["salt"]), dict(record["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    digests = {name: _digest(salt, value) for name, value in mine.items()}
    return sorted(name for name in {*digests, *theirs} if digests.get(name) != theirs.get(name))


def _settings_of_runs(settings: Settings) -> dict[str, str]:
    return {**named_server(), **settings.of_runs()}


def _digest(salt: str, value: str) -> str:
    # Slow on purpose: a password in an address may be short.
    return hashlib.pbkdf2_hmac("sha256", value.encode(errors="surrogateescape"), salt.encode(), 1_000).hex()
