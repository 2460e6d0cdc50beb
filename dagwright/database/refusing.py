"""What a database refuses, in words that are meant for people: an error of SQLAlchemy has the statement and its values.

StoreUnusable   final: no other attempt can help (`migrating`)
StoreRefuses    tried again: it may be otherwise later
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from dagwright.database.migrating import StoreUnusable
from dagwright.tools.errors import RetryLater

_NEVER_BETTER = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY"})
"""What SQLite calls that nothing but another file, or other rights, can mend."""
_BUSY = "SQLITE_BUSY"
SQLITE_BUSY_TIMEOUT_S = 30
"""Seconds that SQLite waits for the write lock of another process; half the default timeout of a verb."""
_CHARACTERS = 500


class StoreRefuses(RetryLater):
    """The database did not do what it was asked; the message is one sentence without the statement."""


@contextmanager
def in_words() -> Iterator[None]:
    """Has what a database refuses inside the block raised in words.

    Raises:
        StoreUnusable: it cannot be used, which waiting does not change.
        StoreRefuses: it refuses something, or does not answer.
    """
    try:
        yield
    except DBAPIError as error:
        words, name = f"the database refuses: {_said(error.orig)}", getattr(error.orig, "sqlite_errorname", None)
        if name == _BUSY:
            words += f": something else has been writing to it for {SQLITE_BUSY_TIMEOUT_S} s"
        # Not `from error`, whose text has the values: names and dates of birth.
        if name in _NEVER_BETTER:
            raise StoreUnusable(words) from None
        raise StoreRefuses(words) from None


def _said(error: BaseException | None) -> str:
    """Returns what a driver says on one line; of PostgreSQL without the details, which quote values."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join(str(primary or error).split())[:_CHARACTERS] or type(error).__name__
