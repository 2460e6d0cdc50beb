"""Errors of an unusable database: reported without the SQL statement, and not retried if waiting does not help."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session
from temporalio.exceptions import ApplicationError

from dagwright.database.error_messages import DatabaseUnavailable, readable_errors
from dagwright.tools import ToolRegistry
from dagwright.tools.environment import ToolEnvironment
from dagwright_onboarding.database import PARTIES, EntityDatabase
from dagwright_onboarding.lazy_database import LazyDatabase
from dagwright_onboarding.lookup_tools import lookup_tools
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.verbs import OnboardingVerbs
from tests.support.tool_harness import ToolHarness

FIND_ARGUMENTS = {"search_text": "Sarah Chen", "entity_type": "person"}
ENSURE_ARGUMENTS = {"name": "Race Fund", "jurisdiction": "LU"}


@pytest.fixture
def database_file(tmp_path: Path) -> Path:
    """A SQLite file with one company."""
    database = EntityDatabase(f"sqlite:///{tmp_path / 'parties.db'}")
    OnboardingVerbs(database).create_limited_company("k", name="Kite Ltd", jurisdiction="GB")
    database.dispose()
    return tmp_path / "parties.db"


async def _failure(registry: ToolRegistry, name: str, arguments: dict[str, Any]) -> ApplicationError:
    """Return the failure of a tool call, as the run receives it."""
    harness = ToolHarness(ToolRegistry.of(registry[name]), ToolEnvironment(Path()), None)
    with pytest.raises(ApplicationError) as error:
        await harness.payload(arguments)
    return error.value


async def test_lookup_in_an_unusable_database_is_not_retried(database_file: Path, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{database_file}")
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {PARTIES.version_table} SET version_num = '9999'"))
    engine.dispose()
    (tmp_path / "junk.db").write_text("This text is not a database. " * 30, encoding="utf-8")
    (tmp_path / "file").touch()
    junk_url, blocked_url = f"sqlite:///{tmp_path / 'junk.db'}", f"sqlite:///{tmp_path / 'file' / 'parties.db'}"
    for url, pattern in (
        (f"sqlite:///{database_file}", "the database belongs to a newer version of Dagwright: *"),
        (junk_url, "the database reports an error: file is not a database"),
        ("mysql://localhost/parties", "unsupported database 'mysql'; expected SQLite or PostgreSQL"),
        (blocked_url, f"the folder of the database cannot be created: {tmp_path / 'file'}: *"),
    ):
        failure = await _failure(lookup_tools(LazyDatabase(url)), "find_party", FIND_ARGUMENTS)
        assert (fnmatchcase(failure.message, pattern), failure.non_retryable) == (True, True), failure.message
    failure = await _failure(lookup_tools(LazyDatabase(junk_url)), "bind_parties", {"found": []})
    assert (failure.message, failure.non_retryable) == ("the database reports an error: file is not a database", True)


async def test_lookup_is_retried_if_the_database_server_does_not_respond() -> None:
    registry = lookup_tools(LazyDatabase("postgresql://ann:hidden@127.0.0.1:9/parties"))
    failure = await _failure(registry, "find_party", FIND_ARGUMENTS)
    assert failure.message.startswith("the database reports an error: connection failed: ")
    assert not failure.non_retryable
    assert "hidden" not in failure.message
    assert "\n" not in failure.message


async def test_verb_on_a_read_only_database_is_not_retried_and_hides_the_statement(database_file: Path) -> None:
    url = f"sqlite:///file:{database_file}?mode=ro&uri=true"
    tools = ToolRegistry.of(*onboarding_tools(url))
    failure = await _failure(tools, "cbu.ensure", ENSURE_ARGUMENTS)
    assert failure.message == "the database reports an error: attempt to write a readonly database"
    assert failure.non_retryable
    assert failure.__cause__ is None


class _DriverError(Exception):
    """An error of a PostgreSQL driver. Its text is a message and a line of details with values."""

    class diag:
        message_primary = 'duplicate key value violates unique constraint "party_once"'

    def __str__(self) -> str:
        return f"{self.diag.message_primary}\nDETAIL:  Key (name)=(Sarah Chen) already exists."


def test_details_of_postgresql_that_quote_values_are_omitted() -> None:
    with pytest.raises(DatabaseUnavailable) as error, readable_errors():
        raise DBAPIError("INSERT INTO party", {"name": "Sarah Chen"}, _DriverError())
    assert str(error.value) == f"the database reports an error: {_DriverError.diag.message_primary}"
    assert error.value.__cause__ is None


def test_database_errors_omit_the_values_of_a_statement(database_file: Path) -> None:
    database = EntityDatabase(f"sqlite:///{database_file}")
    raw_messages: list[str] = []

    def insert_into_missing_table(session: Session) -> None:
        with pytest.raises(OperationalError) as error:
            session.execute(text("INSERT INTO nowhere VALUES (:name)"), {"name": "Sarah Chen"})
        raw_messages.append(str(error.value))
        raise error.value

    with pytest.raises(DatabaseUnavailable, match="the database reports an error: no such table: nowhere"):
        database.write(insert_into_missing_table)
    database.dispose()
    assert "INSERT INTO nowhere" in raw_messages[0]
    assert "Sarah Chen" not in raw_messages[0]
