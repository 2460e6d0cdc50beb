"""Share files of tests between several pytest processes: each process claims the next file that is not claimed yet.

A process imports a file only when it runs the tests of the file. With `pytest-xdist`, each process would import all
files first, and the controller of `pytest-xdist` would use a third of the CPU time of the stage `fast` for the reports
of all tests.
"""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from _pytest.reports import CollectReport
from _pytest.runner import pytest_make_collect_report

_CONCURRENT_PARSE_ERROR = "AST constructor recursion depth mismatch"
"""A defect of CPython 3.11: https://github.com/python/cpython/issues/106905."""


class SharedFiles:
    """Plugin that runs files or tests from a list. Processes with the same list share the work.

    Args:
        list_file: each line is a file or test, optionally followed by a tab and a group; one process runs all files
            of a group. A folder with the suffix `.claimed` has an entry for each claimed file or group.
    """

    def __init__(self, list_file: Path) -> None:
        lines = [line.partition("\t") for line in list_file.read_text(encoding="utf-8").splitlines()]
        self._names = [name for name, _, _ in lines]
        self._groups = {Path(name.partition("::")[0]).resolve(): group for name, _, group in lines if group}
        self._claims_folder = list_file.with_suffix(".claimed")
        self._files: dict[str, list[pytest.Item | pytest.Collector]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the files, and the folders for their fixtures, but no tests."""
        options = session.config.option
        # Files that are not imported have no markers, so a marker expression would deselect them.
        expression, options.markexpr = options.markexpr, ""
        try:
            for node in session.perform_collect(self._names, genitems=False):
                self._files.setdefault(self._groups.get(node.path, str(node.path)), []).append(node)
        finally:
            options.markexpr = expression
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Collect and run the tests of one file after the other."""
        collected_count = 0
        for node in (node for name in self.claim(self._files) for node in self._files[name]):
            items = [*session.genitems(node)]
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            collected_count += len(items)
            # Fixtures of the session outlive the file; all other fixtures end with the file.
            for item, next_item in pairwise([*items, cast(pytest.Item, session)]):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        session.testscollected = collected_count
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, CollectReport, CollectReport]:
        """Collect a file again if Python failed to parse it, because a thread of an earlier test was parsing too."""
        report = yield
        if report.failed and _CONCURRENT_PARSE_ERROR in str(report.longrepr):
            return pytest_make_collect_report(collector)
        return report

    def claim(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the files and groups that no other process has claimed, and claim each of them."""
        self._claims_folder.mkdir(exist_ok=True)
        for number, name in enumerate(names):
            # The system lets only one process create the entry.
            with suppress(FileExistsError):
                os.close(os.open(self._claims_folder / str(number), os.O_CREAT | os.O_EXCL))
                yield name
