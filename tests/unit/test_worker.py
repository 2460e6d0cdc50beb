"""`worker.py`: as a program, how it ends where it cannot begin; and when it watches its loop."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import worker
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import event_loop_watchdog

pytestmark = pytest.mark.waits

_WORKER = Path(__file__).parents[2] / "worker.py"


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "sentence"),
    [
        (["--help"], {}, 0, ""),
        (["--tools", "none.py"], {}, 2, "There is no file none.py of tools\n"),
        (["--nope"], {}, 2, "No such option: --nope; see `worker.py --help`\n"),
        (["x"], {}, 2, "Got unexpected extra argument(s) (x); see `worker.py --help`\n"),
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
        (
            [],
            {"TEMPORAL_ADDRESS": "http://x:99999999"},
            4,
            "the Temporal server at http://x:99999999 can not be reached: "
            "an address is written HOST:PORT, such as localhost:7233\n",
        ),
    ],
)
def test_worker_that_cannot_begin_says_why_and_ends_with_its_code(
    arguments: list[str], variables: dict[str, str], code: int, sentence: str, tmp_path: Path
) -> None:
    ended = _ended(arguments, variables, tmp_path)

    assert (ended.returncode, ended.stderr[: len(sentence)]) == (code, sentence)
    assert ended.stderr.count("\n") == (1 if sentence else 0)


def test_worker_that_cannot_begin_is_a_document_with_json(tmp_path: Path) -> None:
    ended = _ended(["--json", "--tools", "none.py"], {}, tmp_path)

    sentence = "There is no file none.py of tools"
    assert json.loads(ended.stdout) == {"status": "unreadable", "message": sentence}
    assert (ended.returncode, ended.stderr) == (2, f"{sentence}\n")


def _ended(arguments: list[str], variables: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **variables, "DAGWRIGHT_STATE_DIR": str(folder)}
    command = [sys.executable, str(_WORKER), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


async def test_loop_is_watched_as_long_as_calls_are_polled_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    @contextmanager
    def told(words: str) -> Iterator[None]:
        done.append(words)
        yield
        done.append(f"{words} no more")

    @asynccontextmanager
    async def polls() -> AsyncIterator[None]:
        with told("polls"):
            yield

    def create_workers(*_: Any, **__: Any) -> list[Any]:
        done.append("made")
        return [polls()]

    async def nothing(*_: Any, **__: Any) -> None:
        pass

    for name in ("claim_store", "publish_store", "tell_tools", "tell_cards"):
        monkeypatch.setattr(worker, name, nothing)
    monkeypatch.setattr(worker, "create_workers", create_workers)
    monkeypatch.setattr(event_loop_watchdog, "standing_told", lambda: told("watched"))
    client: Any = None
    async with worker.serving(client, load_toolset(Settings(state_dir=tmp_path), ()), task_queue="q"):
        pass
    assert done == ["made", "watched", "polls", "polls no more", "watched no more"]
