"""One store for each test: a SQLite file, and once more a PostgreSQL database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagwright.entities.database import EntityDatabase
from dagwright.entities.verbs import OnboardingVerbs
from tests.support.postgres import PostgresCluster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'parties.db'}"
    cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
    return cluster.new_database()


@pytest.fixture
def database(database_url: str) -> Iterator[EntityDatabase]:
    database = EntityDatabase(database_url)
    yield database
    database.dispose()


@pytest.fixture
def verbs(database: EntityDatabase) -> OnboardingVerbs:
    return OnboardingVerbs(database)
