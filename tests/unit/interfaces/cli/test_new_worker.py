"""`new worker NAME`: the generated files work, and invalid names are rejected."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.new_command import write_worker
from dagwright.interfaces.cli.output import Output
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset

OUTPUT = Output(is_json=False)


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))


def test_generated_worker_tool_and_test_work_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_worker("find_ports", OUTPUT) == ExitCode.COMPLETED
    toolset = load_toolset(Settings(state_dir=tmp_path / "state"), ["find_ports.py"])
    cards = [toolset.declarations()[name].worker for name in ("find_ports_source", "find_ports")]
    assert [(card.outputs, card.requires, card.goal_type) for card in cards if card is not None] == [
        (("find_ports_words",), (), "support"),
        (("find_ports_text",), ("find_ports_words",), "deliverable"),
    ]
    test_line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("test it: "))
    command = [sys.executable, *shlex.split(test_line.removeprefix("test it: python "))]
    test_run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # The settings of this repository, which turn warnings into errors, do not apply in an empty folder.
    assert ("3 passed" in test_run.stdout, "warning" in test_run.stdout.lower(), test_run.stderr) == (True, False, "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("find-ports", "of a worker tool"),
        ("2ports", "of a worker tool"),
        ("class", "of a worker tool"),
        ("häfen", "of a worker tool"),
        ("../ports", "of a worker tool"),
        ("test_ports", "of a worker tool"),
        ("_", "of a worker tool"),
        ("conftest", "of a worker tool"),
        ("json", "is the name of an installed module"),
        ("pydantic", "is the name of an installed module"),
        ("len", "is used in the created files"),
        ("ValueError", "is used in the created files"),
        ("WorkerResult", "is used in the created files"),
        ("call_worker", "is used in the created files"),
        ("result", "is used in the created files"),
        ("calculator", "is the name of a built-in tool"),
        ("Read_File", "is the name of a built-in tool, read_file"),
        ("metadata_lookup", "is the name of a worker tool of dagwright_maritime"),
        ("Page_Query", "is the name of a worker tool of dagwright_maritime, page_query"),
        ("plan", "is a reserved node ID"),
        ("read", "is a reserved node ID"),
        ("answer", "is a reserved node ID"),
        ("intention", "is a reserved node ID"),
        ("sg12", "is a reserved node ID"),
    ],
)
def test_invalid_name_of_a_worker_tool_is_rejected(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"'{name}' {reason}"):
        write_worker(name, OUTPUT)
    assert [*tmp_path.glob("*.py")] == []


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_ports.py").write_text("mine")
    with pytest.raises(CommandError, match=r"test_ports\.py already exists"):
        write_worker("ports", OUTPUT)
    assert [(path.name, path.read_text()) for path in tmp_path.glob("*.py")] == [("test_ports.py", "mine")]
    (tmp_path / "ports.py").write_text("mine")
    with pytest.raises(CommandError, match=r"ports\.py and test_ports\.py already exist; .* or remove them"):
        write_worker("ports", OUTPUT)
