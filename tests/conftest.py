"""Pytest hooks for all tests; the fixtures are in `tests/support/fixtures.py`."""

import functools
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from _pytest.unraisableexception import gc_collect_iterations_key

from scripts.run_tests import FOREIGN_MARKERS
from tests.support.live_report import LiveReport
from tests.support.shared_files import SharedFiles

_STAGE_MARKERS = {"server", "waits", "slow", "alone", *FOREIGN_MARKERS}
"""Markers by which `scripts/run_tests.py` selects the files of a stage."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `scripts/run_tests.py`."""
    help_text = (
        "run the test files listed in this file; each test file runs in one of the processes that have the same list"
    )
    parser.addoption("--tests-from", type=Path, metavar="FILE", help=help_text)
    parser.addoption("--live-report", type=Path, metavar="FILE", help="write the progress of the tests to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Report failures at once, end a session on SIGTERM as on Ctrl-C, collect garbage seldom, and write bytecode.

    A session that ends on SIGTERM stops its Temporal server.

    Without bytecode, pytest rewrites the assertions of every test module in each session, and each started process
    compiles its imported modules.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell lets background processes ignore Ctrl-C. The commands that tests interrupt would inherit this setting.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The import and collection of tests create hardly any garbage, but garbage collection took a third of their time.
    gc.set_threshold(100_000, 20, 100)
    # When a session ends, pytest collects the garbage of all tests five times: two seconds of CPU time in each process.
    config.stash[gc_collect_iterations_key] = 1
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if list_file := config.getoption("tests_from"):
        config.pluginmanager.register(SharedFiles(list_file))
    config.pluginmanager.import_plugin("tests.support.fixtures")
    config.pluginmanager.register(LiveReport(config.getoption("live_report")))


def pytest_collection_finish() -> None:
    """Exclude all imported modules and tests from garbage collection, which took a fifth of the test time."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)


@functools.cache
def _text_with_markers(path: Path) -> str:
    """Return the text in which `scripts/run_tests.py` searches for markers: the file and its `conftest.py`."""
    return "".join(each.read_text(encoding="utf-8") for each in (path, path.with_name("conftest.py")) if each.exists())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject a test that uses a server without the marker of the server.

    Also reject a test with a stage marker if `scripts/run_tests.py` cannot find the marker in the text of the file.
    """
    for item in items:
        fixture_names = getattr(item, "fixturenames", [])
        if ("server" in fixture_names or "client" in fixture_names) and item.get_closest_marker("server") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the Temporal server: mark it with pytest.mark.server")
        if ("search" in fixture_names or "maritime" in fixture_names) and item.get_closest_marker("search") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the search server: mark it with pytest.mark.search")
        for marker in {mark.name for mark in item.iter_markers()} & _STAGE_MARKERS:
            if f"mark.{marker}" not in _text_with_markers(item.path):
                raise pytest.UsageError(
                    f"{item.nodeid}: write pytest.mark.{marker} in this file, because run_tests.py searches its text"
                )
