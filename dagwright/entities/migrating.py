"""Bringing an entity store to the tables that this version of Dagwright works with.

The revisions are Alembic's, in `migrations`. They run by themselves when a store is opened first, one process at a
time, each in a transaction of its own. A revision whose module has a function `part` has work that may take minutes:
the function does a few thousand rows of it in a transaction and is called again until nothing is left, so that nobody
waits long for a lock, and a process that is killed loses little. Alembic is imported only when there is work.

This module must not import Temporal.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

if TYPE_CHECKING:
    from alembic.script import Script, ScriptDirectory

REVISIONS = ("0001",)
"""The revisions in their order; the last is what this version works with."""
VERSION_TABLE = "dagwright_schema"
"""Where Alembic keeps the revision of a store; not its usual table, since others may use the database too."""

READ_ONLY = "dagwright_read_only"
"""Execution option of connections whose transactions change nothing."""

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x6461677772
"""Key of the PostgreSQL advisory lock around each step: `dagwr` in ASCII."""
_TOLD_EVERY_S = 5.0

# Not structlog, which writes to stdout in a command that has configured no log.
_LOG = logging.getLogger(__name__)


class StoreUnusable(RuntimeError):
    """This version cannot work with the store; the message is one sentence that says why and what to do."""


def revision_of(engine: Engine) -> str | None:
    """Returns the revision of a store, None for one without migrations, which may be empty."""
    with engine.execution_options(**{READ_ONLY: True}).begin() as connection:
        return _revision(connection)


def migrate(engine: Engine) -> None:
    """Brings a store to the last revision; does next to nothing if it is there.

    Raises:
        StoreUnusable: a newer version of Dagwright has had the store.
    """
    if revision_of(engine) == REVISIONS[-1]:
        return
    told_at = time.monotonic()
    while (left := _step(engine)) is not None:
        if left and time.monotonic() - told_at > _TOLD_EVERY_S:
            _LOG.warning("the database gets the tables of this version: %s", left)
            told_at = time.monotonic()


def _step(engine: Engine) -> str | None:
    """Does one revision, or a part of one; returns what is left of it in words, None if there is nothing to do."""
    with alone(engine) as connection:
        revision = _revision(connection)
        if revision == REVISIONS[-1]:
            return None
        if revision is not None and revision not in REVISIONS:
            raise StoreUnusable(
                f"the database is of a newer version of Dagwright: its tables are of revision {revision}, and this"
                f" version knows those up to {REVISIONS[-1]}; use the newer version, or another database"
            )
        script = _next_of(revision)
        part = getattr(script.module, "part", None)
        left: str = part(connection) if part is not None else ""
        if not left:
            _run(connection, script)
        return left


@contextmanager
def alone(engine: Engine) -> Iterator[Connection]:
    """Opens a transaction that no other process migrates in."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


def _next_of(revision: str | None) -> "Script":
    script = _scripts().get_revision(REVISIONS[0 if revision is None else REVISIONS.index(revision) + 1])
    assert script is not None
    return script


def _scripts() -> "ScriptDirectory":
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see the module's docstring

    return ScriptDirectory(str(_FOLDER))


def _run(connection: Connection, script: "Script") -> None:
    from alembic import command  # noqa: PLC0415 - see the module's docstring
    from alembic.config import Config  # noqa: PLC0415 - see the module's docstring

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    command.upgrade(config, script.revision)
