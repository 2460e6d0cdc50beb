"""Report failures of tests when they happen, because a test run that is killed prints no summary."""

import sys

import pytest


class LiveReport:
    """Plugin that prints one line per failure, and the tests that an interrupt stopped."""

    def __init__(self) -> None:
        self._running_tests: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running_tests[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running_tests.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._print(f"FAILED {report.nodeid} ({report.when}): {error_line(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._print(f"FAILED {report.nodeid} (collection): {error_line(report)}")

    def pytest_keyboard_interrupt(self) -> None:
        for nodeid in self._running_tests:
            self._print(f"INTERRUPTED {nodeid}")

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
