"""`new worker NAME`: what it writes works as it is, and what it cannot write is refused."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.writing import write_worker
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset

OUTPUT = Output(is_json=False)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))


def test_worker_and_test_that_are_written_work_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_worker("find_ports", OUTPUT) == ExitCode.COMPLETED
    toolset = load_toolset(Settings(state_dir=tmp_path / "state"), ["find_ports.py"])
    cards = [toolset.declarations()[name].worker for name in ("find_ports_source", "find_ports")]
    assert [(card.outputs, card.requires, card.goal_type) for card in cards if card is not None] == [
        (("find_ports_words",), (), "support"),
        (("find_ports_text",), ("find_ports_words",), "deliverable"),
    ]
    told = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("test it: "))
    command = [sys.executable, *shlex.split(told.removeprefix("test it: python "))]
    tested = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # An empty folder has none of the settings of this repository, so warnings are no errors there.
    assert ("3 passed" in tested.stdout, "warning" in tested.stdout.lower(), tested.stderr) == (True, False, "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("find-ports", "'find-ports' is no name of a worker"),
        ("2ports", "'2ports' is no name of a worker"),
        ("class", "'class' is no name of a worker"),
        ("häfen", "'häfen' is no name of a worker"),
        ("../ports", "is no name of a worker"),
        ("json", "'json' is the name of an installed module"),
        ("pydantic", "'pydantic' is the name of an installed module"),
        ("len", "'len' is a name that the files use themselves"),
        ("ValueError", "'ValueError' is a name that the files use themselves"),
        ("WorkerResult", "'WorkerResult' is a name that the files use themselves"),
        ("call_worker", "'call_worker' is a name that the files use themselves"),
        ("result", "'result' is a name that the files use themselves"),
        ("test_ports", "'test_ports' is no name of a worker"),
        ("_", "'_' is no name of a worker"),
        ("conftest", "'conftest' is no name of a worker"),
        ("calculator", "'calculator' is the name of a tool that is built in"),
        ("Read_File", "'Read_File' is the name of a tool that is built in, read_file"),
        ("metadata_lookup", "'metadata_lookup' is the name of a worker of dagwright.maritime"),
        ("Page_Query", "'Page_Query' is the name of a worker of dagwright.maritime, page_query"),
        ("plan", "'plan' is what a run calls a node of its own"),
        ("read", "'read' is what a run calls a node of its own"),
        ("answer", "'answer' is what a run calls a node of its own"),
        ("intention", "'intention' is what a run calls a node of its own"),
        ("sg12", "'sg12' is what a run calls a node of its own"),
    ],
)
def test_a_name_that_no_worker_can_have_is_refused_and_nothing_is_written(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CommandRefused, match=said):
        write_worker(name, OUTPUT)
    assert [*tmp_path.glob("*.py")] == []


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "test_ports.py").write_text("mine")
    with pytest.raises(CommandRefused, match=r"test_ports\.py is there already"):
        write_worker("ports", OUTPUT)
    assert [path.name for path in tmp_path.glob("*.py")] == ["test_ports.py"]
    assert (tmp_path / "test_ports.py").read_text() == "mine"


def test_several_files_that_are_there_are_told_as_several(tmp_path: Path) -> None:
    for name in ("ports.py", "test_ports.py"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(CommandRefused, match=r"ports\.py and test_ports\.py are there already; .* or remove them"):
        write_worker("ports", OUTPUT)
