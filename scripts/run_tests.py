"""Run the tests in stages, starting with the stage that fails fastest; report durations, slowest files and failures.

`python scripts/run_tests.py [--stages NAMES] [--minutes N] [PATHS]`: stages are fast, server, alone, slow, slow-alone
and foreign. A failed stage does not stop the next one. The environment variable PROCESSES sets the number of
processes of the stages `server` and `slow`.
"""

import argparse
import ast
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, cast

ROOT = Path(__file__).parents[1]

FOREIGN_MARKERS = ("java", "postgres", "chromium", "node", "litellm", "search")
"""Markers of tests that need other programs than Python, make and a Temporal server."""

MAX_RETRIED_TESTS = 3
"""Maximum number of failed tests that a stage runs again; if more tests fail, the change has broken something."""
SLOWEST_FILES = 10
GRACE_S = 60
"""Time for pytest to print its summary and to end its servers after an interrupt."""
NO_TESTS_COLLECTED = 5
"""Exit code of pytest if it has collected no tests."""
INTERRUPTED = -1
"""Exit code of an interrupted stage: the time was over, or a signal came."""
CRASHED = 2
"""Exit code of a stage in which a process ended before all its tests had ended."""
_GET_SERVER = (
    "import asyncio; from dagwright.server.binary import get_binary; from dagwright.settings import Settings; "
    "asyncio.run(get_binary(Settings().cache_home, preferred_version=None))"
)
_MEMORY_FOLDER = Path("/dev/shm")
_MIN_FREE_BYTES = 6 << 30
"""Six processes keep up to half a gigabyte each; the rest is a reserve."""
_PROGRESS_INTERVAL_S = 60
"""Time between two lines about the progress of a stage."""

_CORES = os.cpu_count() or 2
_FILE_MARKERS = re.compile(r"^pytestmark = .*$", re.MULTILINE)
_MARKER = re.compile(r"\bmark\.(\w+)")

_MARKERS_OF_STAGE: dict[str, tuple[tuple[set[str], ...], set[str]]] = {
    "fast": ((), {"server", "waits", "slow", "alone", *FOREIGN_MARKERS}),
    "server": (({"server", "waits"},), {"slow", "alone", *FOREIGN_MARKERS}),
    "alone": (({"alone"},), {"slow", *FOREIGN_MARKERS}),
    "slow": (({"slow"},), {"alone", *FOREIGN_MARKERS}),
    "slow-alone": (({"slow"}, {"alone"}), set(FOREIGN_MARKERS)),
    "foreign": (({*FOREIGN_MARKERS},), set()),
}
"""Stage -> sets of markers (a file must have a marker of each set), and markers that must not be in `pytestmark`."""


@dataclass
class Report:
    """Results of one pytest process so far.

    Args:
        file_durations_s: file -> total duration of its tests.
        test_count: number of tests that ended.
        failed_tests: node IDs of failed tests, of files that could not be imported, and of tests that did not end.
        is_complete: whether the process ended its session and all its tests.
    """

    file_durations_s: dict[str, float] = field(default_factory=dict)
    test_count: int = 0
    failed_tests: list[str] = field(default_factory=list)
    is_complete: bool = False


@dataclass
class Stage:
    """A part of the tests: its markers, its number of processes, and its results."""

    name: str
    marker_expression: str
    process_count: int
    may_retry: bool = False
    """Whether failed tests run again. Tests of such a stage measure time, which other programs may disturb."""
    duration_s: float = 0.0
    exit_code: int | None = None
    failed_tests: list[str] = field(default_factory=list)
    passed_on_retry: list[str] = field(default_factory=list)
    """Tests that failed first and passed when retried; only a stage that measures time retries."""
    file_durations_s: dict[str, float] = field(default_factory=dict)
    """File -> total duration of its tests."""
    test_count: int = 0

    def add(self, report: Report) -> None:
        """Add the results of a process."""
        for file, duration_s in report.file_durations_s.items():
            self.file_durations_s[file] = self.file_durations_s.get(file, 0.0) + duration_s
        self.failed_tests += [name for name in report.failed_tests if name not in self.failed_tests]
        self.test_count += report.test_count


def all_stages() -> dict[str, Stage]:
    """Return the stages in the order in which they run."""
    foreign = " or ".join(FOREIGN_MARKERS)
    # Tests of the stages `server` and `slow` mostly wait: two processes per core would use less than half of the CPU.
    waiting_process_count = int(os.environ.get("PROCESSES", 3 * _CORES))
    stages = (
        Stage("fast", f"not (server or waits or slow or alone or {foreign})", _CORES),
        Stage("server", f"(server or waits) and not (slow or alone or {foreign})", waiting_process_count),
        Stage("alone", f"alone and not (slow or {foreign})", 1, may_retry=True),
        Stage("slow", f"slow and not (alone or {foreign})", waiting_process_count),
        Stage("slow-alone", f"slow and alone and not ({foreign})", 1, may_retry=True),
        Stage("foreign", foreign, 2 * _CORES),
    )
    return {stage.name: stage for stage in stages}


def files_of(stage: Stage, paths: list[str]) -> Iterator[str]:
    """Yield the files that may have tests of a stage: importing all files would take longer than a short stage."""
    for path in paths:
        target = ROOT / path.partition("::")[0]
        files = [target] if target.is_file() else sorted(target.rglob("test_*.py"))
        for file in files:
            if _may_belong(stage.name, file):
                yield path if "::" in path else file.relative_to(ROOT).as_posix()


def _may_belong(stage_name: str, file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    # A marker of the whole file excludes all tests of the file from other stages.
    file_markers = _markers_in(" ".join(_FILE_MARKERS.findall(text)))
    # Parameters of fixtures have markers too.
    fixtures = file.with_name("conftest.py")
    markers = _markers_in(text + (fixtures.read_text(encoding="utf-8") if fixtures.exists() else ""))
    required_sets, excluded_markers = _MARKERS_OF_STAGE[stage_name]
    return not file_markers & excluded_markers and all(markers & marker_set for marker_set in required_sets)


def _markers_in(text: str) -> set[str]:
    return set(_MARKER.findall(text))


def _start_order(file: str) -> tuple[bool, bool, int]:
    """Return a sort key: groups first, then files with slow tests, then large files, to leave no long file for last."""
    path = ROOT / file.partition("::")[0]
    return not _group_of(file), "mark.slow" not in path.read_text(encoding="utf-8"), -path.stat().st_size


def run_stage(stage: Stage, paths: list[str], ends_at: float) -> None:
    """Run a stage until its end, or until the time is over."""
    files = sorted(files_of(stage, paths), key=_start_order)
    if not files:
        stage.exit_code = 0
        return
    if stage.name == "foreign" and not install_programs():
        stage.exit_code = 1
        return
    print(f"\n=== stage {stage.name}: {len(files)} files, {stage.process_count} processes", flush=True)
    started_at = time.monotonic()
    stage.exit_code = _run_pytest(stage, files, ends_at)
    # In other stages a failure would repeat; a test that measures time may have been disturbed by other load.
    if stage.may_retry and 0 < len(stage.failed_tests) <= MAX_RETRIED_TESTS and stage.exit_code == 1:
        _retry(stage, ends_at)
    stage.duration_s = time.monotonic() - started_at


def _retry(stage: Stage, ends_at: float) -> None:
    """Run the failed tests of a stage once more, and store the tests that pass now."""
    failed_tests, stage.failed_tests = stage.failed_tests, []
    print(f"\n=== stage {stage.name}: failed tests once more", flush=True)
    stage.exit_code = _run_pytest(stage, failed_tests, ends_at)
    if stage.exit_code not in (0, 1):
        # The processes did not run all tests, so no failure is disproved.
        stage.failed_tests = list(dict.fromkeys([*failed_tests, *stage.failed_tests]))
    stage.passed_on_retry = [name for name in failed_tests if name not in stage.failed_tests]


def _run_pytest(stage: Stage, tests: list[str], ends_at: float) -> int:
    """Run files or tests in the processes of a stage.

    The processes take the files or tests from a list (`tests/support/shared_files.py`).

    Returns:
        0 if all tests passed, 1 if tests failed, `INTERRUPTED`, or `CRASHED`.
    """
    # Each call creates a folder, because two runs in one checkout must not read each other's files.
    with TemporaryDirectory(prefix=f"dagwright-{stage.name}-") as folder:
        list_file = Path(folder, "files.txt")
        list_file.write_text("\n".join(f"{test}\t{_group_of(test)}" for test in tests), encoding="utf-8")
        claims_folder = list_file.with_suffix(".claimed")
        claims_folder.mkdir()
        pytest_runs = [_PytestRun.start(stage, list_file, n) for n in range(min(stage.process_count, len(tests)))]
        was_interrupted = _wait(
            pytest_runs,
            ends_at,
            progress=lambda: f"{stage.name}: {len([*claims_folder.iterdir()])} of {len(tests)} files",
        )
        has_crashed = False
        for pytest_run in pytest_runs:
            report = read_report(pytest_run.report)
            stage.add(report)
            has_succeeded = report.is_complete and pytest_run.process.returncode in (0, NO_TESTS_COLLECTED)
            if not has_succeeded:
                pytest_run.print_output()
                has_failed_tests_only = pytest_run.process.returncode == 1 and report.failed_tests
                has_crashed |= not (report.is_complete and has_failed_tests_only)
    if was_interrupted:
        return INTERRUPTED
    return CRASHED if has_crashed else 1 if stage.failed_tests else 0


def read_report(path: Path) -> Report:
    """Read the report of a process (`tests/support/live_report.py`), which may have ended at any time."""
    report = Report()
    failed_tests: dict[str, None] = {}
    running_tests: dict[str, None] = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    # The last line has no line break if the process was killed while writing it.
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        event, duration_s, node_id_text = line.rstrip("\n").split("\t", 2)
        node_id = ast.literal_eval(node_id_text)
        file = node_id.partition("::")[0]
        report.file_durations_s[file] = report.file_durations_s.get(file, 0.0) + float(duration_s)
        if event == "start":
            running_tests[node_id] = None
        elif event == "end":
            running_tests.pop(node_id, None)
            report.test_count += 1
        elif event == "failed":
            failed_tests[node_id] = None
        elif event == "session":
            report.is_complete = not running_tests
            del report.file_durations_s[file]
    report.failed_tests = [*(failed_tests | running_tests)]
    return report


@dataclass
class _PytestRun:
    """One of the pytest processes of a stage; its output is in a file, except for a line per failure."""

    process: subprocess.Popen[bytes]
    report: Path
    log: Path

    @classmethod
    def start(cls, stage: Stage, list_file: Path, number: int) -> Self:
        report, log = (list_file.with_name(f"{number}.{kind}") for kind in ("report", "log"))
        command = [sys.executable, "-m", "pytest", "-q", "-m", stage.marker_expression, "--live-report", str(report)]
        command += ["-o", "console_output_style=classic", "-p", "no:cacheprovider"]
        with log.open("wb") as output:
            return cls(
                subprocess.Popen(
                    [*command, "--tests-from", str(list_file), "tests"], cwd=ROOT, stdout=output, start_new_session=True
                ),
                report,
                log,
            )

    def print_output(self) -> None:
        print(self.log.read_text(encoding="utf-8", errors="replace"), end="")
        print(f"=== process {self.process.pid} ended with exit code {self.process.returncode}", flush=True)


def _group_of(test: str) -> str:
    """Return the group of a test file; one process runs a group, whose files share a server that starts slowly."""
    file = ROOT / test.partition("::")[0]
    return "search" if file.is_file() and "search" in _markers_in(file.read_text(encoding="utf-8")) else ""


def _wait(pytest_runs: list[_PytestRun], ends_at: float, *, progress: Callable[[], str]) -> bool:
    """Wait for processes; interrupt them when the time is over, so that they print their summaries.

    Returns:
        Whether the processes were interrupted.
    """
    printed_at = time.time()
    reason = None
    try:
        while any(pytest_run.process.poll() is None for pytest_run in pytest_runs):
            if time.time() > ends_at:
                reason = "interrupted, because the time for tests is over"
                break
            if time.time() > printed_at + _PROGRESS_INTERVAL_S:
                printed_at = time.time()
                print(progress(), flush=True)
            time.sleep(0.1)
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        # No process may outlive this one, even if the output cannot be printed.
        _end([run.process for run in pytest_runs if run.process.poll() is None])
    if reason is not None:
        print(f"\n=== {reason}", flush=True)
    return reason is not None


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, and kill those that do not end in time; a second Ctrl-C kills them at once."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    kill_at = time.monotonic() + GRACE_S
    try:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, kill_at - time.monotonic()))
    except KeyboardInterrupt:
        print("\n=== killed", flush=True)
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def install_server() -> None:
    """Download or build the Temporal server if it is missing: a build may take longer than a test's timeout."""
    subprocess.run([sys.executable, "-c", _GET_SERVER], cwd=ROOT, check=False)


def install_programs() -> bool:
    """Install the programs of the stage `foreign`, put them on the path, and return whether that succeeded."""
    result = subprocess.run(["scripts/test-needs"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    os.environ["PATH"] = result.stdout.strip() or os.environ["PATH"]
    return result.returncode == 0


@contextmanager
def fast_temporary_files() -> Iterator[None]:
    """Put the folders of tests in memory if it is large enough: on a disk, tests wait until each write is flushed."""
    has_room = os.access(_MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(_MEMORY_FOLDER).free > _MIN_FREE_BYTES
    with TemporaryDirectory(
        prefix="dagwright-tests-", dir=_MEMORY_FOLDER if has_room else None, ignore_cleanup_errors=True
    ) as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        yield


@contextmanager
def fork_server() -> Iterator[None]:
    """Run one fork server for all processes, so that Dagwright is imported once and not by each process."""
    with TemporaryDirectory(prefix="dagwright-fork-server-") as folder:
        command = [sys.executable, "-m", "tests.support.programs", folder]
        # The server ends when its standard input is closed, at the end of the block.
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as server:
            assert server.stdout is not None
            server.stdout.readline()
            os.environ["TEST_FORK_SERVER"] = folder
            yield


def summarize(stages: list[Stage]) -> None:
    """Print durations, slowest files and failures of all stages."""
    print("\n=== stages")
    for stage in stages:
        result = {None: "not run", 0: "passed", INTERRUPTED: "interrupted"}.get(stage.exit_code, "failed")
        print(f"{stage.name:<10} {stage.duration_s:6.0f} s  {stage.test_count:5} tests  {result}")
    files = sorted(
        ((time_s, file) for stage in stages for file, time_s in stage.file_durations_s.items()), reverse=True
    )
    print(f"=== slowest files, of {sum(time_s for time_s, _ in files):.0f} test-seconds")
    for time_s, file in files[:SLOWEST_FILES]:
        print(f"{time_s:6.0f} s  {file}")
    if not any(stage.name == "foreign" for stage in stages):
        print(f"=== omitted: slow tests, tests that need {', '.join(FOREIGN_MARKERS)} (see make test-all)")
    passed_on_retry = [name for stage in stages for name in stage.passed_on_retry]
    if passed_on_retry:
        print(
            f"=== {len(passed_on_retry)} passed when retried (a defect of the test or of the code)",
            *passed_on_retry,
            sep="\n",
        )
    failed_tests = [name for stage in stages for name in stage.failed_tests]
    if failed_tests:
        print(f"=== {len(failed_tests)} failed", *failed_tests, sep="\n")
    sys.stdout.flush()


def main() -> int:
    """Run the stages and return the exit code: 0 if every stage passed and at least one test ran."""
    for stop_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop_signal, signal.default_int_handler)
    # The output may be a file or terminal whose encoding lacks characters in the names of tests.
    cast(TextIOWrapper, sys.stdout).reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default="fast,server,alone", help="names, separated by commas")
    parser.add_argument("--minutes", type=_minutes, default=75, help="interrupt the tests after this many minutes")
    parser.add_argument("paths", nargs="*", default=["tests"])
    options = parser.parse_args()
    for path in options.paths:
        file = ROOT / path.partition("::")[0]
        if not path or not file.exists():
            parser.error(f"no such file: {path or 'the path is empty'}")
        if "::" in path and file.is_dir():
            parser.error(f"{path}: a folder has files, not tests")
    if not os.environ.get("PROCESSES", "1").isdecimal() or os.environ.get("PROCESSES") == "0":
        parser.error(f"PROCESSES must be a positive integer, not {os.environ['PROCESSES']!r}")
    stages_by_name = all_stages()
    names = [*dict.fromkeys(options.stages.split(","))]
    if unknown_names := [name for name in names if name not in stages_by_name]:
        parser.error(f"no such stage: {unknown_names[0]}; stages are {', '.join(stages_by_name)}")
    ends_at = time.time() + 60 * options.minutes
    if "slow" in names:
        # Otherwise, property tests run an eighth of their examples (tests/support/example_counts.py).
        os.environ["TEST_EXAMPLES"] = "full"
    stages = [stages_by_name[name] for name in names]
    try:
        _run_stages(stages, options.paths, ends_at)
    finally:
        summarize(stages)
    if not any(stage.test_count or stage.exit_code for stage in stages):
        print(f"=== no tests of the stages {', '.join(names)} in {' '.join(options.paths)}")
        return 1
    return 0 if all(stage.exit_code == 0 for stage in stages) else 1


def _minutes(text: str) -> float:
    minutes = float(text)
    if not math.isfinite(minutes) or minutes <= 0:
        raise ValueError(text)
    return minutes


def _run_stages(stages: list[Stage], paths: list[str], ends_at: float) -> None:
    with ExitStack() as stack:
        if [stage.name for stage in stages] != ["fast"]:
            install_server()
            stack.enter_context(fork_server())
        stack.enter_context(fast_temporary_files())
        for stage in stages:
            run_stage(stage, paths, ends_at)
            if stage.exit_code == INTERRUPTED:
                break


if __name__ == "__main__":
    sys.exit(main())
