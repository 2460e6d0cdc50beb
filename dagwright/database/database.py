"""Database connection: engine, schema, and transactions that tolerate concurrent writers.

The database is SQLite by default, or PostgreSQL by URL. A write transaction is atomic, and is repeated if
another transaction has taken the same lock or inserted the same unique key first.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from dagwright.database.error_messages import SQLITE_BUSY_TIMEOUT_S, readable_errors
from dagwright.database.migrations import LOCK_PAUSE_S, READ_ONLY, DatabaseUnusable, Schema, migrate
from dagwright.store.private_files import FOLDER_MODE, UMASK, private_opener

Item = TypeVar("Item")
Value = TypeVar("Value")

WRITE_ATTEMPTS = 8
"""Maximum attempts of one transaction. Each failed attempt means that another transaction succeeded, so a few attempts
suffice."""
COMMIT_INTERVAL_S = 0.3
"""Seconds after which long work commits its transaction, so that other processes can write."""

_WAL_PAUSE_S = 0.01
_RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "23505", "23503"})
"""PostgreSQL: serialization failure, deadlock, unique violation, foreign key violation."""


class Database:
    """A database. Threads may share it.

    On first use, the engine is created and the tables are migrated to the newest revision. `dispose` closes the
    connections; the next use opens new connections.

    Args:
        url: a SQLAlchemy URL of a SQLite file or of PostgreSQL.
        schema: the tables of the database.

    Raises:
        ValueError: the URL is invalid, or names an in-memory database or an unsupported kind of database.
        DatabaseUnusable: a newer version has used the database, or the database cannot be used at all.
        DatabaseUnavailable: the database rejects an operation for now, or does not respond; retry later.
    """

    def __init__(self, url: str, schema: Schema) -> None:
        self._url = _parse_url(url)
        self._schema = schema
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        # SQLite does not grant its lock in order, so the threads of a process wait for this lock first.
        self._write_lock = threading.Lock()

    def read(self, work: Callable[[Session], Value]) -> Value:
        """Run `work` on a snapshot of the database and return the result of `work`. Changes made by `work` are
        discarded.
        """
        with readable_errors():
            engine = self._ready_engine().execution_options(**self._read_options())
            with Session(engine, expire_on_commit=False) as session:
                return work(session)

    def write(self, work: Callable[[Session], Value]) -> Value:
        """Run `work` in one transaction, and return the result of `work`.

        If another transaction has taken the same key or lock first, the transaction is repeated.

        Args:
            work: makes all changes through the session; may run several times, each time on a new snapshot.
        """
        with readable_errors():
            engine = self._ready_engine()
            for attempt in range(1, WRITE_ATTEMPTS + 1):
                try:
                    return self._write_once(engine, work)
                except DBAPIError as error:
                    if attempt == WRITE_ATTEMPTS or not _is_retryable(error):
                        raise
        raise AssertionError("unreachable")

    def write_in_parts(
        self, items: Sequence[Item], work: Callable[[Session, Item], Value]
    ) -> Iterator[Sequence[Value]]:
        """Run `work` for each item and yield the results, transaction by transaction.

        A transaction processes items for about `COMMIT_INTERVAL_S` seconds; between two transactions, other processes
        can write.

        Args:
            work: like `work` of `write`, but called with an item.
        """
        written_count = 0
        while written_count < len(items):
            if written_count:
                self.pause_between_writes()
            values = self.write(partial(_write_part, items=items, work=work, start=written_count))
            written_count += len(values)
            yield values

    def missing_sqlite_file(self) -> Path | None:
        """Return the SQLite file that the first use will create; `None` if the file exists, or for PostgreSQL."""
        file = Path(self._url.database or "")
        is_path = self._is_sqlite and not str(file).startswith("file:")
        return file if is_path and not file.exists() else None

    def dispose(self) -> None:
        """Close all idle connections."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def pause_between_writes(self) -> None:
        """Leave the SQLite write lock free long enough for waiting processes to take it."""
        if self._is_sqlite:
            time.sleep(LOCK_PAUSE_S)

    def _read_options(self) -> dict[str, Any]:
        if self._is_sqlite:
            return {READ_ONLY: True}
        return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    def _write_once(self, engine: Engine, work: Callable[[Session], Value]) -> Value:
        if not self._is_sqlite:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                return work(session)
        with self._write_lock, Session(engine, expire_on_commit=False) as session, session.begin():
            return work(session)

    def _ready_engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                engine = _sqlite_engine(self._url) if self._is_sqlite else _postgres_engine(self._url)
                try:
                    migrate(engine, self._schema)
                except BaseException:
                    engine.dispose()
                    raise
                self._engine = engine
            return self._engine


def _write_part(
    session: Session, *, items: Sequence[Item], work: Callable[[Session, Item], Value], start: int
) -> list[Value]:
    """Run `work` for the items from `start` until `COMMIT_INTERVAL_S` is over, at least once; return the results."""
    values: list[Value] = []
    ends_at = time.monotonic() + COMMIT_INTERVAL_S
    for index in range(start, len(items)):
        values.append(work(session, items[index]))
        if time.monotonic() >= ends_at:
            break
    return values


def _parse_url(url_text: str) -> URL:
    try:
        url = make_url(url_text)
    except (ArgumentError, ValueError) as error:
        raise ValueError("invalid database URL; expected for example sqlite:///dagwright.db") from error
    backend = url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:" or "mode=memory" in url.database:
            raise ValueError("an in-memory SQLite database cannot be shared by workers; use a file")
        return url.set(drivername="sqlite")
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise ValueError(f"unsupported database {backend!r}; expected SQLite or PostgreSQL")


def _postgres_engine(url: URL) -> Engine:
    return create_engine(url, pool_pre_ping=True, hide_parameters=True)


def _sqlite_engine(url: URL) -> Engine:
    if url.database and not url.database.startswith("file:"):
        file = Path(url.database)
        try:
            _prepare_private_file(file)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            message = f"the folder of the database cannot be created: {error.filename}: {error.strerror}"
            raise DatabaseUnusable(message) from None
    engine = create_engine(url, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_S}, hide_parameters=True)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _start_sqlite_transaction)
    return engine


def _prepare_private_file(file: Path) -> None:
    """Create a missing folder of a database file so that only its owner can access the folder.

    If only the owner can access the folder, also create the file, with the same access.
    """
    file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if not file.exists() and not file.parent.stat().st_mode & UMASK:
        # SQLite itself reports why the file cannot be created.
        with suppress(OSError), open(file, "ab", opener=private_opener):
            pass


def _configure_sqlite(connection: Any, _record: Any) -> None:
    assert isinstance(connection, sqlite3.Connection)
    # The driver would start a transaction only at the first change, after the reads that the change depends on.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to the write-ahead log.

    The switch needs exclusive access. While another process has the file locked, SQLite rejects the switch immediately,
    so the switch is repeated.
    """
    deadline = time.monotonic() + SQLITE_BUSY_TIMEOUT_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE_S)


def _start_sqlite_transaction(connection: Connection) -> None:
    is_read_only = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if is_read_only else "BEGIN IMMEDIATE")


def _is_retryable(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return True
    return getattr(error.orig, "sqlstate", None) in _RETRYABLE_SQLSTATES
