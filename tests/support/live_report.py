"""Report tests while they run, because a process that is killed prints no summary."""

import os
import sys
from pathlib import Path

import pytest


class LiveReport:
    """Plugin that prints one line per failure, and the tests that an interrupt stopped.

    Args:
        report: file for the starts, phases and ends of tests, which `scripts/run_tests.py` reads (`read_report`).
    """

    def __init__(self, report: Path | None = None) -> None:
        self._running_tests: dict[str, None] = {}
        self._report = None if report is None else os.open(report, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running_tests[nodeid] = None
        self._write("start", 0.0, nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running_tests.pop(nodeid, None)
        self._write("end", 0.0, nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write("failed" if report.failed else "phase", report.duration, report.nodeid)
        if report.failed:
            self._print(f"FAILED {report.nodeid} ({report.when}): {error_line(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("failed", 0.0, report.nodeid)
            self._print(f"FAILED {report.nodeid} (collection): {error_line(report)}")

    def pytest_keyboard_interrupt(self) -> None:
        for nodeid in self._running_tests:
            self._print(f"INTERRUPTED {nodeid}")

    def pytest_sessionfinish(self) -> None:
        self._write("session", 0.0, "")

    def _write(self, event: str, duration_s: float, nodeid: str) -> None:
        if self._report is not None:
            # `os.write` has no buffer in this process, so the line is not lost if the process is killed.
            os.write(self._report, f"{event}\t{duration_s:.4f}\t{nodeid!r}\n".encode())

    def _print(self, line: str) -> None:
        # `scripts/run_tests.py` writes standard output to a file; standard error is visible immediately.
        sys.stderr.write(f"\n{line}\n")
        sys.stderr.flush()


def error_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the error message, or the last line of the report if there is no error message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    lines = report.longreprtext.strip().splitlines()
    return lines[-1] if lines else "no error text"
