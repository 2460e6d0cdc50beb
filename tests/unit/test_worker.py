"""`worker.py` as a program: how it ends where it cannot begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_WORKER = Path(__file__).parents[2] / "worker.py"


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "sentence"),
    [
        (["--help"], {}, 0, ""),
        (["--tools", "none.py"], {}, 2, "There is no file none.py of tools\n"),
        (
            [],
            {"DAGWRIGHT_DATABASE_URL": "mysql://host/parties"},
            2,
            "DAGWRIGHT_DATABASE_URL can not be used: only SQLite and PostgreSQL are known\n",
        ),
        (
            [],
            {"TEMPORAL_ADDRESS": "127.0.0.1:1"},
            4,
            "the Temporal server at 127.0.0.1:1 can not be reached: ",
        ),
    ],
)
def test_worker_that_cannot_begin_says_why_and_ends_with_its_code(
    arguments: list[str], variables: dict[str, str], code: int, sentence: str, tmp_path: Path
) -> None:
    environment = {**os.environ, **variables, "DAGWRIGHT_STATE_DIR": str(tmp_path)}
    command = [sys.executable, str(_WORKER), *arguments]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr[: len(sentence)]) == (code, sentence)
