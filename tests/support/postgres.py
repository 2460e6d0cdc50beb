"""A private PostgreSQL cluster in a temporary folder, for tests.

`initdb` and the server refuse to run as root. If the tests run as root, both run as an unprivileged user.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, text

from tests.support.ports import free_port

_USER = "dagwright"
_START_TIMEOUT_S = 60
_UNPRIVILEGED_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class PostgresCluster:
    """A running cluster; `new_database` creates a separate empty database."""

    folder: Path
    port: int
    password: str
    database_numbers: Iterator[int]

    @property
    def user(self) -> str:
        return _USER

    @property
    def pid(self) -> int:
        """Process ID of the server, which has a child process for each connection."""
        return int((self.folder / "data/postmaster.pid").read_text(encoding="ascii").split()[0])

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        name = f"entities_{next(self.database_numbers)}"
        engine = create_engine(self.url(), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0"))
        finally:
            engine.dispose()
        return self.url(name)


@contextmanager
def private_postgres(*, fsync: str = "off") -> Iterator[PostgresCluster]:
    """Run a cluster inside the block.

    Args:
        fsync: setting of the server; `on` makes commits survive a loss of power.
    """
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="dagwright-pg-"))
    cluster = PostgresCluster(folder, free_port(), secrets.token_urlsafe(12), count(1))
    try:
        password_file = folder / "password"
        password_file.write_text(cluster.password)
        _change_owner(folder)
        create_command = [initdb, "-D", f"{folder}/data", "-U", _USER, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        _run([*create_command, "--auth=scram-sha-256", f"--pwfile={password_file}"], folder)
        options = f"-p {cluster.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync={fsync}"
        log = f"{folder}/log"
        start_command = [pg_ctl, "-D", f"{folder}/data", "-l", log, "-o", options, "-w", "-t", str(_START_TIMEOUT_S)]
        _run([*start_command, "start"], folder)
        try:
            yield cluster
        finally:
            _run([pg_ctl, "-D", f"{folder}/data", "-m", "immediate", "-w", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is not None:
        return program
    # Debian keeps the server's programs off the path, in one folder per version.
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not versions:
        raise RuntimeError(f"{name} is not on the path; install PostgreSQL to run the tests marked postgres")
    return str(versions[-1])


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user that runs PostgreSQL, or None if the user of this process can run it."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _UNPRIVILEGED_USERS:
        if name in users:
            return users[name]
    raise RuntimeError("PostgreSQL refuses root, and there is no user postgres or nobody to run it as")


def _change_owner(folder: Path) -> None:
    if (user := _unprivileged_user()) is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)


def _run(command: Sequence[str], folder: Path) -> None:
    user = _unprivileged_user()
    # Use a file for the output: the server keeps it open, so reading from a pipe would never end.
    command_log = folder / "commands.log"
    with command_log.open("ab") as output:
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
        )
    if result.returncode != 0:
        logs = [path.read_text(errors="replace") for path in (command_log, folder / "log") if path.exists()]
        raise RuntimeError(f"{Path(command[0]).name} failed with {result.returncode}:\n" + "\n".join(logs))
