"""Migrate a database to the tables of this version.

The revisions are Alembic's, in the folder of a `Schema`. They run when a database is first opened, one process at a
time, each in its own transaction. A revision whose work may take minutes has a function `migrate_part`, which processes
a few thousand rows in a transaction. `migrate_part` is called again, with the value that it returned, until it returns
`None`. So no process waits long for a lock, and a killed process loses little work. Alembic is imported only if a
revision has to run.

This module must not import Temporal.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, inspect, text

from dagwright.tools.errors import GiveUp

if TYPE_CHECKING:
    from alembic.script import Script, ScriptDirectory

READ_ONLY = "dagwright_read_only"
"""Execution option of connections whose transactions change nothing."""

_LOCK_KEY = 0x6461677772
"""Key of the PostgreSQL advisory lock around each step: `dagwr` in ASCII."""
LOCK_PAUSE_S = 0.12
"""Seconds that long work leaves the SQLite lock free between two parts: a waiting process retries every 0.1 s."""
_LOG_INTERVAL_S = 5.0
_NOTHING_TO_DO: Final = object()

# Not structlog, which writes to stdout in a command without a configured log.
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one owner in a database: the tables of the engine or of an application.

    Args:
        folder: folder of the Alembic revisions, with an `env.py`.
        revisions: revisions in order; this version uses the last one.
        version_table: table in which Alembic stores the revision; each owner has a separate table.
    """

    folder: Path
    revisions: tuple[str, ...]
    version_table: str

    @property
    def newest_revision(self) -> str:
        return self.revisions[-1]


class DatabaseUnusable(GiveUp):
    """This version cannot use the database. The message is one sentence with the reason and the fix."""


def revision_of(engine: Engine, schema: Schema) -> str | None:
    """Return the revision of a database; `None` if no revision has run."""
    with engine.execution_options(**{READ_ONLY: True}).begin() as connection:
        return _revision(connection, schema)


def migrate(engine: Engine, schema: Schema) -> None:
    """Migrate a database to the last revision; cheap if the database already has the last revision.

    Raises:
        DatabaseUnusable: a newer version of Dagwright has used the database.
    """
    if revision_of(engine, schema) == schema.newest_revision:
        return
    logged_at = time.monotonic()
    progress: Any = None
    while (progress := _run_step(engine, schema, progress)) is not _NOTHING_TO_DO:
        if progress is not None and time.monotonic() - logged_at > _LOG_INTERVAL_S:
            _LOG.warning("migrating the database to this version: %s", progress)
            logged_at = time.monotonic()
        if progress is not None and engine.dialect.name == "sqlite":
            time.sleep(LOCK_PAUSE_S)


def _run_step(engine: Engine, schema: Schema, progress: Any) -> Any:
    """Run one revision, or one part of a revision.

    Args:
        progress: return value of the revision's previous part; `None` if no part has run.

    Returns:
        Printable progress of the revision; `None` when it is done; `_NOTHING_TO_DO` if all revisions have run.
    """
    with _migration_transaction(engine) as connection:
        revision = _revision(connection, schema)
        if revision == schema.newest_revision:
            return _NOTHING_TO_DO
        if revision is not None and revision not in schema.revisions:
            raise DatabaseUnusable(
                f"the database belongs to a newer version of Dagwright: its tables have revision {revision}, and this"
                f" version supports revisions up to {schema.newest_revision}; use the newer version, or another"
                " database"
            )
        script = _next_script(revision, schema)
        migrate_part: Callable[[Connection, Any], Any] | None = getattr(script.module, "migrate_part", None)
        progress = migrate_part(connection, progress) if migrate_part is not None else None
        if progress is None:
            _run_revision(connection, script, schema)
        return progress


@contextmanager
def _migration_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction under the migration lock."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        yield connection


def _revision(connection: Connection, schema: Schema) -> str | None:
    if not inspect(connection).has_table(schema.version_table):
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {schema.version_table}"))
    return revision


def _next_script(revision: str | None, schema: Schema) -> "Script":
    index = 0 if revision is None else schema.revisions.index(revision) + 1
    script = _scripts(schema).get_revision(schema.revisions[index])
    assert script is not None
    return script


def _scripts(schema: Schema) -> "ScriptDirectory":
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see the module's docstring

    return ScriptDirectory(str(schema.folder))


def _run_revision(connection: Connection, script: "Script", schema: Schema) -> None:
    from alembic import command  # noqa: PLC0415 - see the module's docstring
    from alembic.config import Config  # noqa: PLC0415 - see the module's docstring

    config = Config(attributes={"connection": connection, "version_table": schema.version_table})
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    command.upgrade(config, script.revision)
