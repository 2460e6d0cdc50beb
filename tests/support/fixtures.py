"""Fixtures of all tests: an environment without the settings of the user, and real servers."""

import functools
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings
from temporalio.client import Client

from dagwright.server import open_connection
from dagwright.testing.fixtures import model_server
from tests.support.example_counts import example_count
from tests.support.server import LiveServer, live_server

if TYPE_CHECKING:
    from tests.support.search import LiveSearch, Maritime

__all__ = ["model_server"]

_REMOVED_VARIABLE_PREFIXES = ("DAGWRIGHT_", "TEMPORAL_", "OPENAI_", "LITELLM_", "SERPER_", "NO_COLOR")


def pytest_configure() -> None:
    """Set the default number of examples of property tests."""
    settings.register_profile("repository", max_examples=example_count(100), deadline=None)
    settings.load_profile("repository")


@pytest.fixture(scope="session", autouse=True)
def _isolated_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove variables and config profiles that would connect a test to a real server of the user."""
    empty_config = tmp_path_factory.mktemp("environment") / "temporal.toml"
    empty_config.write_text("", encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_REMOVED_VARIABLE_PREFIXES)]:
            patch.delenv(name)
        patch.setenv("TEMPORAL_CONFIG_FILE", str(empty_config))
        # Temporal's server collects garbage a quarter as often, which saves an eighth of its CPU time.
        patch.setenv("GOGC", "400")
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """Render tracebacks without rich, the default of structlog, because rich takes seconds of CPU time per error."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture(scope="session", autouse=True)
def _shared_tls_context() -> Iterator[None]:
    """Share a TLS context; otherwise each HTTP client loads all CA certificates again, in 25 ms of CPU time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """The server that all tests of a session share; a test that kills a server starts a separate server."""
    async with live_server(tmp_path_factory.mktemp("server")) as shared_server:
        yield shared_server


@pytest.fixture(scope="session")
async def client(server: LiveServer) -> AsyncIterator[Client]:
    """A client of the shared server; use unique workflow IDs and task queues."""
    async with open_connection(server.settings) as connection:
        yield connection.client


@pytest.fixture(scope="session")
async def search(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["LiveSearch"]:
    """Search server of the tests in this process."""
    # Importing OpenSearch's client takes a third of the start time of a process, and few processes use it.
    from tests.support.search import live_search  # noqa: PLC0415

    async with live_search(tmp_path_factory.mktemp("search")) as search_server:
        yield search_server


@pytest.fixture(scope="session")
async def maritime(search: "LiveSearch") -> "Maritime":
    """10,000 read-only shipments on the search server; a test that changes shipments calls `load_maritime` itself."""
    from tests.support.search import load_maritime  # noqa: PLC0415

    return await load_maritime(search, "maritime")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / ".dagwright"
