"""A database of parties for each test. Each test runs with SQLite and with PostgreSQL."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.party_loading import LoadReport, load_parties
from dagwright_onboarding.verbs import OnboardingVerbs
from tests.support.parties import Load
from tests.support.postgres import PostgresCluster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'parties.db'}"
    cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
    return cluster.new_database()


@pytest.fixture(scope="session")
def empty_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables of this version.

    Tests copy this file, because the migration of a new file takes 70 ms of CPU time.
    """
    file = tmp_path_factory.mktemp("empty") / "parties.db"
    database = EntityDatabase(f"sqlite:///{file}")
    database.read(lambda session: session.connection())
    database.dispose()
    return file


@pytest.fixture
def database(database_url: str, empty_sqlite_file: Path) -> Iterator[EntityDatabase]:
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        file = Path(url.database or "")
        file.parent.mkdir(mode=0o700)
        shutil.copyfile(empty_sqlite_file, file)
    database = EntityDatabase(database_url)
    yield database
    database.dispose()


@pytest.fixture
def load(database: EntityDatabase, tmp_path: Path) -> Load:
    def load_content(content: str | bytes) -> LoadReport:
        file = tmp_path / "parties.csv"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return load_parties(database, file)

    return load_content


@pytest.fixture
def verbs(database: EntityDatabase) -> OnboardingVerbs:
    return OnboardingVerbs(database)
