"""Open a database for a command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from dagwright.database.database import Database
from dagwright.database.error_messages import DatabaseUnavailable
from dagwright.database.migrations import DatabaseUnusable
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.output import one_line
from dagwright.settings import load_settings

OpenedDatabase = TypeVar("OpenedDatabase", bound=Database)


@contextmanager
def open_database(open_url: Callable[[str], OpenedDatabase]) -> Iterator[OpenedDatabase]:
    """Open the database that the settings name, and close it after the block.

    Args:
        open_url: opens the database at a URL.

    Raises:
        CommandError: the URL in the settings is invalid, or the database cannot be used in the block.
    """
    try:
        database = open_url(load_settings().database_url)
    except ValueError as error:
        raise CommandError(f"DAGWRIGHT_DATABASE_URL: {error}") from None
    try:
        yield database
    except (DatabaseUnusable, DatabaseUnavailable) as error:
        raise CommandError(one_line(str(error)), code=CommandErrorCode.DATABASE_UNAVAILABLE) from error
    finally:
        database.dispose()
