"""Convert database errors to messages for people: SQLAlchemy's own text contains the statement and its values.


StoreUnusable   final: another attempt cannot help (`migrating`)
StoreRefuses    retried: a later attempt may succeed
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from dagwright.database.migrating import StoreUnusable
from dagwright.tools.errors import RetryLater

_NEVER_BETTER = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY"})
"""SQLite errors that only another file or other permissions can repair."""
_BUSY = "SQLITE_BUSY"
SQLITE_BUSY_TIMEOUT_S = 30
"""Seconds that SQLite waits for the write lock of another process; half the default timeout of a verb."""
_CHARACTERS = 500


class StoreRefuses(RetryLater):
    """The database rejected an operation; the message is one sentence without the statement."""


@contextmanager
def in_words() -> Iterator[None]:
    """Convert the database errors of the block to messages.

    Raises:
        StoreUnusable: the database cannot be used, and waiting does not help.
        StoreRefuses: the database rejects an operation, or does not respond.
    """
    try:
        yield
    except DBAPIError as error:
        words = f"the database reports an error: {_said(error.orig)}"
        name = getattr(error.orig, "sqlite_errorname", None)
        if name == _BUSY:
            words += f": another process has held the write lock for {SQLITE_BUSY_TIMEOUT_S} s"
        # Not `from error`, whose text contains the values: names and dates of birth.
        if name in _NEVER_BETTER:
            raise StoreUnusable(words) from None
        raise StoreRefuses(words) from None


def _said(error: BaseException | None) -> str:
    """Return the driver's message as one line; for PostgreSQL without the details, which quote values."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join(str(primary or error).split())[:_CHARACTERS] or type(error).__name__
