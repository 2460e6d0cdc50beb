"""Convert database errors to messages for users, because SQLAlchemy's own text contains the statement and its values.

DatabaseUnusable       final: another attempt cannot help (defined in `dagwright.database.migrations`)
DatabaseUnavailable    retried: a later attempt may succeed
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from dagwright.database.migrations import DatabaseUnusable
from dagwright.tools.errors import RetryLater

_PERMANENT_ERRORS = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY"})
"""SQLite errors that only another file or other permissions can repair."""
_BUSY = "SQLITE_BUSY"
SQLITE_BUSY_TIMEOUT_S = 30
"""Seconds that SQLite waits for the write lock of another process: half the default timeout of a tool."""
_MAX_MESSAGE_CHARACTERS = 500


class DatabaseUnavailable(RetryLater):
    """The database rejected an operation. The message is one sentence without the statement."""


@contextmanager
def readable_errors() -> Iterator[None]:
    """Convert the database errors of the block to messages.

    Raises:
        DatabaseUnusable: the database cannot be used, and waiting does not help.
        DatabaseUnavailable: the database rejects an operation, or does not respond.
    """
    try:
        yield
    except DBAPIError as error:
        message = f"the database reports an error: {_driver_message(error.orig)}"
        name = getattr(error.orig, "sqlite_errorname", None)
        if name == _BUSY:
            message += f": another process has held the write lock for {SQLITE_BUSY_TIMEOUT_S} s"
        # Not `from error`: the text of `error` contains values of the statement, such as names and dates of birth.
        if name in _PERMANENT_ERRORS:
            raise DatabaseUnusable(message) from None
        raise DatabaseUnavailable(message) from None


def _driver_message(error: BaseException | None) -> str:
    """Return the driver's message as one line; for PostgreSQL without the details, which quote values."""
    primary_message = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join(str(primary_message or error).split())[:_MAX_MESSAGE_CHARACTERS] or type(error).__name__
