"""What every test gets: an environment without the machine's settings, and the real server if it asks."""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.server import open_connection
from dagwright.testing.fixtures import model_server
from tests.support.search import LiveSearch, Maritime, live_search, load_maritime
from tests.support.server import LiveServer, live_server

__all__ = ["model_server"]

_NEEDS = {
    "java": "Java",
    "postgres": "PostgreSQL",
    "chromium": "Chromium",
    "node": "Node",
    "litellm": "LiteLLM",
    "search": "OpenSearch",
}
"""Marker -> what tests with it need beside Python, make and a Temporal server."""

_LEFT_OUT = pytest.StashKey[Counter[str]]()

_FOREIGN_PREFIXES = ("DAGWRIGHT_", "TEMPORAL_", "OPENAI_", "LITELLM_", "SERPER_", "NO_COLOR")


def pytest_configure() -> None:
    """Lets a session that is told to end clean up as after Ctrl-C: it would leave its server behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


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


@pytest.fixture(scope="session")
async def search(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveSearch]:
    """The search server that the tests of one process share; each process has its own."""
    async with live_search(tmp_path_factory.mktemp("search")) as live:
        yield live


@pytest.fixture(scope="session")
async def maritime(search: LiveSearch) -> Maritime:
    """10,000 shipments on it, which tests only read; a test that changes some loads its own by `load_maritime`."""
    return await load_maritime(search, "maritime")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts what `-m "not postgres"` and the like leave out, for the summary."""
    for item in items:
        counts = item.config.stash.setdefault(_LEFT_OUT, Counter())
        counts.update(name for name in _NEEDS if item.get_closest_marker(name) is not None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands what one of several processes left out to the one that prints the summary."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        counts = session.config.stash.get(_LEFT_OUT, None)
        told["left_out"] = dict(counts or {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes it there: each process has collected, and left out, the same."""
    node.config.stash[_LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names each set of tests that was left out, so that nobody takes a part for the whole."""
    counts = config.stash.get(_LEFT_OUT, Counter())
    for name, needed in _NEEDS.items():
        if f"not {name}" in config.option.markexpr:
            tests = f"{counts[name]} test{'' if counts[name] == 1 else 's'}"
            terminalreporter.write_line(f"left out: {needed} ({tests}; make test-all runs them)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses a test that uses a server and does not say so by its marker."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        if ("server" in names or "client" in names) and item.get_closest_marker("server") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the Temporal server: mark it with pytest.mark.server")
        if ("search" in names or "maritime" in names) and item.get_closest_marker("search") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the search server: mark it with pytest.mark.search")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / ".dagwright"
