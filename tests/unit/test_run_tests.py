"""Stages of `make test`. Each test is in exactly one stage. A stage runs all files that may contain its tests."""

import time
from contextlib import nullcontext
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.mark.expression import Expression

from scripts import run_tests
from scripts.run_tests import FOREIGN_MARKERS, Report, Stage, all_stages, files_of, read_report, summarize
from tests.support.example_counts import example_count
from tests.support.shared_files import SharedFiles

_MARKERS = ("server", "waits", "slow", "alone", *FOREIGN_MARKERS)


def test_every_test_is_in_one_stage() -> None:
    stages = all_stages().values()
    for marks in chain.from_iterable(combinations(_MARKERS, size) for size in range(4)):
        matching_names = [stage.name for stage in stages if _selects(stage, marks)]
        assert len(matching_names) == 1, (marks, matching_names)


def _selects(stage: Stage, marks: tuple[str, ...]) -> bool:
    def is_marked(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    return Expression.compile(stage.marker_expression).evaluate(is_marked)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("def test_it(): ...", ["fast"]),
        ("pytestmark = pytest.mark.server", ["server"]),
        ("pytestmark = pytest.mark.waits", ["server"]),
        ("pytestmark = [pytest.mark.server, pytest.mark.alone]", ["alone"]),
        ("pytestmark = [pytest.mark.server, pytest.mark.slow]", ["slow"]),
        ("pytestmark = [pytest.mark.slow, pytest.mark.alone]", ["slow-alone"]),
        ("pytestmark = pytest.mark.server\n@pytest.mark.slow\ndef test_it(): ...", ["server", "slow"]),
        ("@pytest.mark.server\ndef test_it(): ...", ["fast", "server"]),
        ("pytestmark = pytest.mark.java", ["foreign"]),
    ],
)
def test_stages_of_a_file_follow_from_its_markers(text: str, stages: list[str], folder: Path) -> None:
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    for path in (".", "test_it.py::test_it"):
        assert [stage.name for stage in all_stages().values() if list(files_of(stage, [path]))] == stages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "run_count"), [("fast", 1), ("server", 1), ("slow", 1), ("alone", 2), ("slow-alone", 2)]
)
def test_only_stages_with_one_process_retry_failed_tests(
    name: str, run_count: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "test_it.py").write_text("pytest.mark.server, pytest.mark.slow, pytest.mark.alone", encoding="utf-8")
    tests_of_runs: list[list[str]] = []

    def fail_first_run(stage: Stage, tests: list[str], ends_at: float) -> int:
        tests_of_runs.append(tests)
        stage.failed_tests += ["test_it.py::test_it"] if len(tests_of_runs) == 1 else []
        return 1 if stage.failed_tests else 0

    monkeypatch.setattr(run_tests, "_run_pytest", fail_first_run)
    stage = all_stages()[name]
    run_tests.run_stage(stage, ["."], ends_at=0.0)
    retried_tests = ["test_it.py::test_it"] if run_count == 2 else []
    assert (len(tests_of_runs), stage.passed_on_retry, stage.exit_code) == (run_count, retried_tests, 2 - run_count)


def test_processes_share_the_files_of_a_stage(tmp_path: Path) -> None:
    (tmp_path / "fast.txt").write_text("", encoding="utf-8")
    first_process, second_process = (SharedFiles(tmp_path / "fast.txt").claim("abc") for _ in range(2))
    assert [
        next(first_process),
        next(second_process),
        next(first_process),
        next(second_process, ""),
        next(first_process, ""),
    ] == ["a", "b", "c", "", ""]


def test_process_runs_its_claimed_files_in_one_session(tmp_path: Path) -> None:
    (tmp_path / "stage.txt").write_text("test_a.py\ntest_b.py\tgroup\ntest_c.py\tgroup", encoding="utf-8")
    files = {name: tmp_path / f"test_{name}.py" for name in "abc"}
    tests = {"a": ["a1", "a2"], "b": [], "c": ["c1"]}
    calls: list[tuple[str, Any]] = []

    def run(*, item: str, nextitem: Any) -> None:
        calls.append((item, nextitem))

    def collect(names: list[str], *, genitems: bool) -> list[Any]:
        assert (names, genitems, option.markexpr) == ([f"test_{name}.py" for name in "abc"], False, "")
        return [SimpleNamespace(path=path, name=name) for name, path in files.items()]

    option = SimpleNamespace(markexpr="not slow")
    hook = SimpleNamespace(pytest_runtest_protocol=run, pytest_collection_modifyitems=lambda **_: None)
    config = SimpleNamespace(option=option, hook=hook)
    session: Any = SimpleNamespace(
        config=config, perform_collect=collect, genitems=lambda node: tests[node.name], testscollected=0
    )
    shared_files = SharedFiles(tmp_path / "stage.txt")
    shared_files.pytest_collection(session)
    shared_files.pytest_runtestloop(session)
    assert calls == [("a1", "a2"), ("a2", session), ("c1", session)]
    assert (session.testscollected, option.markexpr) == (3, "not slow")


def test_stage_fails_if_a_process_ends_before_its_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "test_a.py": "import os\ndef test_failure(): assert 0\ndef test_exit_code_0(): os._exit(0)\n",
        "test_b.py": "import os\ndef test_exit_code_5(): os._exit(5)\n",
        "test_c.py": "import pytest\ndef test_end_of_session(): pytest.exit('bye', 0)\n",
        "test_d.py": "def test_success(): ...\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    stage = Stage("fast", "not server", len(texts))
    files = [str(tmp_path / name) for name in texts]
    assert run_tests._run_pytest(stage, files, ends_at=time.time() + 60) == run_tests.CRASHED
    failures = {name.rpartition("::")[2] for name in stage.failed_tests}
    assert failures == {"test_failure", "test_exit_code_0", "test_exit_code_5", "test_end_of_session"}
    assert stage.test_count == 2
    assert "ended with exit code 5\n" in capsys.readouterr().out


def test_report_of_a_killed_process_has_its_failures_and_its_running_test(tmp_path: Path) -> None:
    lines = [
        "start\t0.0\t'test_a.py::test_b[\\n\\t]'\nfailed\t1.5\t'test_a.py::test_b[\\n\\t]'\n",
        "failed\t0.5\t'test_a.py::test_b[\\n\\t]'\nend\t0.0\t'test_a.py::test_b[\\n\\t]'\n",
        "start\t0.0\t'test_c.py::test_d'\nphase\t0.25\t'test_c.py::test_d'\nend\t0.0\t'test_c.py",
    ]
    path = tmp_path / "0.report"
    path.write_text("".join(lines), encoding="utf-8")
    durations = {"test_a.py": 2.0, "test_c.py": 0.25}
    assert read_report(path) == Report(durations, 1, ["test_a.py::test_b[\n\t]", "test_c.py::test_d"])
    assert read_report(tmp_path / "missing") == Report()
    path.write_text(f"{lines[2]}::test_d'\nsession\t0.0\t''\n", encoding="utf-8")
    assert read_report(path) == Report({"test_c.py": 0.25}, 1, [], is_complete=True)


def test_failed_test_stays_failed_if_its_retry_crashes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "test_it.py").write_text("pytest.mark.alone", encoding="utf-8")
    exit_codes = [1, run_tests.CRASHED]

    def fail(stage: Stage, tests: list[str], ends_at: float) -> int:
        stage.failed_tests += ["test_it.py::test_it"] if len(exit_codes) == 2 else []
        return exit_codes.pop(0)

    monkeypatch.setattr(run_tests, "_run_pytest", fail)
    run_tests.run_stage(stage := all_stages()["alone"], ["."], ends_at=0.0)
    assert (stage.exit_code, stage.failed_tests) == (run_tests.CRASHED, ["test_it.py::test_it"])
    assert stage.passed_on_retry == []


@pytest.mark.parametrize(
    ("argument", "processes"),
    [
        *(("tests/no_such_file.py", "6"), ("", "6"), ("tests/unit::test_it", "6"), ("--stages=fast,sever", "6")),
        *(("--minutes=0", "6"), ("--minutes=nan", "6"), ("tests", "0"), ("tests", "many"), ("tests", "")),
    ],
)
def test_invalid_argument_or_process_count_is_rejected(
    argument: str, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCESSES", processes)
    monkeypatch.setattr("sys.argv", ["run_tests.py", argument])
    with pytest.raises(SystemExit) as error:
        run_tests.main()
    assert error.value.code == 2


def test_summary_has_durations_slowest_files_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    fast_stage, server_stage = Stage("fast", "", 2), Stage("server", "", 4)
    fast_stage.exit_code, fast_stage.duration_s, fast_stage.test_count = 1, 12.0, 30
    fast_stage.failed_tests.append("tests/test_a.py::test_b")
    fast_stage.file_durations_s.update({"tests/test_a.py": 3})
    server_stage.passed_on_retry.append("tests/test_b.py::test_c")
    summarize([fast_stage, server_stage])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "=== stages",
        "fast           12 s     30 tests  failed",
        "server          0 s      0 tests  not run",
        "=== slowest files, of 3 test-seconds",
        "     3 s  tests/test_a.py",
        "=== omitted: slow tests, tests that need java, postgres, chromium, node, litellm, search (see make test-all)",
        "=== 1 passed when retried (a defect of the test or of the code)",
        "tests/test_b.py::test_c",
        "=== 1 failed",
        "tests/test_a.py::test_b",
    ]


@pytest.mark.parametrize(
    ("stages", "expected_count", "test_count"), [("fast,server,alone", 10, 1), ("fast,slow", 80, 1), ("fast", 10, 0)]
)
def test_run_with_the_slow_stage_uses_all_examples_and_a_run_without_tests_fails(
    stages: str, expected_count: int, test_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    example_counts: list[int] = []

    def store_example_count(stage: Stage, *_: object) -> None:
        example_counts.append(example_count(80))
        stage.exit_code, stage.test_count = 0, test_count

    monkeypatch.setenv("TEST_EXAMPLES", "")
    monkeypatch.setattr("sys.argv", ["run_tests.py", f"--stages={stages}"])
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", "")
    monkeypatch.setattr(run_tests, "run_stage", store_example_count)
    monkeypatch.setattr(run_tests, "install_server", lambda: None)
    monkeypatch.setattr(run_tests, "fork_server", nullcontext)
    assert run_tests.main() == (0 if test_count else 1)
    assert example_counts == [expected_count] * len(stages.split(","))
