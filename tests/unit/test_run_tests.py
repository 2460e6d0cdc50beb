"""Stages of `make test`. Each test is in exactly one stage. A stage runs all files that may contain its tests."""

from contextlib import nullcontext
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from _pytest.mark.expression import Expression

from scripts import run_tests
from scripts.run_tests import FOREIGN_MARKERS, Stage, all_stages, files_of, summarize
from tests.support.example_counts import examples
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

    return Expression.compile(stage.expression).evaluate(is_marked)


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


def test_stage_fails_if_a_process_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = iter([5, 1, 0, 5, 5])

    class FakeProcess:
        pid = 7

        def __init__(self, *_: object, stdout: IO[bytes], **__: object) -> None:
            self.returncode = next(codes)
            stdout.write(b"output of pytest\n")

        def poll(self) -> int:
            return self.returncode

    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    monkeypatch.setattr(run_tests, "REPORTS", folder)
    assert run_tests._run_pytest(Stage("fast", "", 3), ["a", "b", "c", "d"], ends_at=1e12) == 1
    assert capsys.readouterr().out == "output of pytest\n=== process 7 ended with exit code 1\n"
    assert run_tests._run_pytest(Stage("fast", "", 3), ["a", "b"], ends_at=1e12) == 0


@pytest.mark.parametrize("argument", ["tests/no_such_file.py", "--stages=fast,sever"])
def test_unknown_path_or_stage_is_rejected(argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["run_tests.py", argument])
    with pytest.raises(SystemExit) as error:
        run_tests.main()
    assert error.value.code == 2


def test_summary_has_the_durations_the_slowest_files_and_the_failures(capsys: pytest.CaptureFixture[str]) -> None:
    fast_stage, server_stage = Stage("fast", "", 2), Stage("server", "", 4)
    fast_stage.exit_code, fast_stage.duration_s = 1, 12.0
    fast_stage.failed_tests.append("tests/test_a.py::test_b")
    fast_stage.file_durations_s.update({"tests/test_a.py": 3})
    server_stage.passed_on_retry.append("tests/test_b.py::test_c")
    summarize([fast_stage, server_stage])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "=== stages",
        "fast           12 s  failed",
        "server          0 s  not run",
        "=== slowest files, of 3 test-seconds",
        "     3 s  tests/test_a.py",
        "=== omitted: slow tests, tests that need java, postgres, chromium, node, litellm, search (see make test-all)",
        "=== 1 passed when retried (a defect of the test or of the code)",
        "tests/test_b.py::test_c",
        "=== 1 failed",
        "tests/test_a.py::test_b",
    ]


@pytest.mark.parametrize(("stages", "count"), [("fast,server,alone", 10), ("fast,slow", 80)])
def test_run_with_the_slow_stage_uses_all_examples(
    stages: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def store_count(stage: Stage, *_: object) -> None:
        counts.append(examples(80))
        stage.exit_code = 0

    monkeypatch.setenv("TEST_EXAMPLES", "")
    monkeypatch.setattr("sys.argv", ["run_tests.py", f"--stages={stages}"])
    monkeypatch.setattr(run_tests, "REPORTS", tmp_path / "reports")
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", "")
    monkeypatch.setattr(run_tests, "run_stage", store_count)
    monkeypatch.setattr(run_tests, "install_server", lambda: None)
    monkeypatch.setattr(run_tests, "fork_server", nullcontext)
    assert run_tests.main() == 0
    assert counts == [count] * len(stages.split(","))
