"""Shared fixture: a PostgreSQL server."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresCluster, private_postgres


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[PostgresCluster]:
    with private_postgres() as cluster:
        yield cluster
