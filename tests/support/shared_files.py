"""Run files of tests that several pytest processes share: each process takes the next file that no other has taken.

A file is imported by the process that runs its tests, when it is its turn. With `pytest-xdist` each process would
import all files first, and a further process would handle the reports of all tests: a third of the CPU time of the
stage `fast`.
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

_PARSED_AT_ONCE = "AST constructor recursion depth mismatch"
"""A defect of CPython 3.11: https://github.com/python/cpython/issues/106905."""


class SharedFiles:
    """Plugin that runs the files or tests that a file lists, one per line; processes with the same file share the work.

    Args:
        named: the file. A line may have the name of a group behind a tab: one process takes all files of a group. A
            folder beside it has one entry for each file or group that a process has taken.
    """

    def __init__(self, named: Path) -> None:
        lines = [line.partition("\t") for line in named.read_text(encoding="utf-8").splitlines()]
        self._names = [name for name, _, _ in lines]
        self._groups = {Path(name.partition("::")[0]).resolve(): group for name, _, group in lines if group}
        self._taken = named.with_suffix(".taken")
        self._files: dict[str, list[pytest.Item | pytest.Collector]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the folders, whose fixtures belong to their nodes, and no test."""
        options = session.config.option
        # Nodes of files that are not imported have no markers.
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
        collected = 0
        for node in (node for name in self.take(self._files) for node in self._files[name]):
            items = [*session.genitems(node)]
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            collected += len(items)
            # Fixtures of the session outlive the file; the others end with it.
            for item, following in pairwise([*items, cast(pytest.Item, session)]):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session.testscollected = collected
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, CollectReport, CollectReport]:
        """Collect a file again if Python failed to parse it beside a thread of an earlier test that parses as well."""
        report = yield
        if report.failed and _PARSED_AT_ONCE in str(report.longrepr):
            return pytest_make_collect_report(collector)
        return report

    def take(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the files and groups that no other process has taken."""
        self._taken.mkdir(exist_ok=True)
        for number, name in enumerate(names):
            # The system lets one process create the entry.
            with suppress(FileExistsError):
                os.close(os.open(self._taken / str(number), os.O_CREAT | os.O_EXCL))
                yield name
