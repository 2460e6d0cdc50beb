"""The database of parties and agents as commands use it."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagwright.entities.database import EntityDatabase
from dagwright.entities.migrating import StoreUnusable
from dagwright.entities.refusing import StoreRefuses
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import one_line
from dagwright.settings import load_settings


@contextmanager
def opened_database() -> Iterator[EntityDatabase]:
    """Opens the database of the settings for as long as the block lasts.

    Raises:
        CommandRefused: the settings name none, or it refuses what the block does.
    """
    try:
        database = EntityDatabase(load_settings().database_url)
    except ValueError as error:
        raise CommandRefused(f"DAGWRIGHT_DATABASE_URL: {error}") from None
    try:
        yield database
    except (StoreUnusable, StoreRefuses) as error:
        raise CommandRefused(one_line(str(error)), status="no_database", code=ExitCode.FAILED) from error
    finally:
        database.dispose()
