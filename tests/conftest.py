"""What every test gets: an environment without the machine's settings, and the real server if it asks."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.server import open_connection
from tests.support.server import LiveServer, live_server

_FOREIGN_PREFIXES = ("DAGWRIGHT_", "TEMPORAL_", "OPENAI_", "LITELLM_", "SERPER_", "NO_COLOR")


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Takes away variables and config profiles that would send a test to somebody's real server."""
    empty = tmp_path_factory.mktemp("environment") / "temporal.toml"
    empty.write_text("", encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_FOREIGN_PREFIXES)]:
            patch.delenv(name)
        patch.setenv("TEMPORAL_CONFIG_FILE", str(empty))
        yield


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """The server that all tests of a session share; a test that kills one starts its own by `live_server`."""
    async with live_server(tmp_path_factory.mktemp("server")) as live:
        yield live


@pytest.fixture(scope="session")
async def client(server: LiveServer) -> AsyncIterator[Client]:
    """A client of the shared server; use workflow ids and task queues that no other test has."""
    async with open_connection(server.settings) as connection:
        yield connection.client


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses a test that uses the server and does not say so by its marker."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        if ("server" in names or "client" in names) and item.get_closest_marker("server") is None:
            raise pytest.UsageError(
                f"{item.nodeid} uses the Temporal server: mark it with pytest.mark.server"
            )


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / ".dagwright"
