"""The database as commands use it: what it lacks is told in one sentence."""

import pytest

from dagwright.entities.migrating import StoreUnusable
from dagwright.interfaces.cli.databases import opened_database
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode


def test_command_on_a_database_without_the_search_index_is_refused() -> None:
    with pytest.raises(CommandRefused, match="needs the extension pg_trgm") as refused, opened_database():
        raise StoreUnusable("the search for parties needs the extension pg_trgm")
    assert (refused.value.status, refused.value.code) == ("no_database", ExitCode.FAILED)


def test_command_on_a_database_of_a_newer_version_is_refused() -> None:
    with pytest.raises(CommandRefused, match="of a newer version") as refused, opened_database():
        raise StoreUnusable("the database is of a newer version of Dagwright")
    assert (refused.value.status, refused.value.code) == ("no_database", ExitCode.FAILED)
