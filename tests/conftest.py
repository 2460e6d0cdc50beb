"""What every test gets: an environment without the machine's settings, and the real server if it asks."""

import functools
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from temporalio.client import Client

from dagwright.server import open_connection
from dagwright.testing.fixtures import model_server
from scripts.run_tests import FOREIGN
from tests.support.live_report import LiveReport
from tests.support.search import LiveSearch, Maritime, live_search, load_maritime
from tests.support.server import LiveServer, live_server

__all__ = ["model_server"]

_STAGE_MARKERS = {"server", "waits", "slow", "alone", *FOREIGN}
"""Markers by which `scripts/run_tests.py` selects the files of a stage."""

_FOREIGN_PREFIXES = ("DAGWRIGHT_", "TEMPORAL_", "OPENAI_", "LITELLM_", "SERPER_", "NO_COLOR")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report failures at once, end a session on SIGTERM as on Ctrl-C, collect garbage seldom, and write bytecode.

    On SIGTERM a session stops its server.

    Without bytecode pytest rewrites the assertions of every test module in each session, and each process that a test
    starts compiles the modules that it imports.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell has what it starts in the background ignore Ctrl-C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # While tests are imported and collected nearly nothing is garbage; looking for it took a third of the time.
    gc.set_threshold(100_000, 20, 100)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(terminal, pytest.TerminalReporter) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(LiveReport(terminal))


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collection, which took a fifth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


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


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """Before the logging is configured structlog formats tracebacks with rich: seconds of CPU time for each error."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


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


@functools.cache
def _text_of(path: Path) -> str:
    """Return what `scripts/run_tests.py` searches for markers: the file, and the `conftest.py` beside it."""
    return "".join(each.read_text(encoding="utf-8") for each in (path, path.with_name("conftest.py")) if each.exists())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that uses a server without its marker, and a marker that the text of the file does not have."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        if ("server" in names or "client" in names) and item.get_closest_marker("server") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the Temporal server: mark it with pytest.mark.server")
        if ("search" in names or "maritime" in names) and item.get_closest_marker("search") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the search server: mark it with pytest.mark.search")
        for name in {mark.name for mark in item.iter_markers()} & _STAGE_MARKERS:
            if f"mark.{name}" not in _text_of(item.path):
                raise pytest.UsageError(
                    f"{item.nodeid}: write pytest.mark.{name} in this file, run_tests.py looks there"
                )


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / ".dagwright"
