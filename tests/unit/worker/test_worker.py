"""`worker.py`: the exit code of a failed start, and the event-loop watchdog."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dagwright.process import event_loop_watchdog
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import serving as worker
from tests.support.programs import start_program

pytestmark = pytest.mark.waits

MISSING_FILE_MESSAGE = "The tools file none.py does not exist\n"
DATABASE_URL_MESSAGE = "DAGWRIGHT_DATABASE_URL cannot be used: only SQLite and PostgreSQL are supported\n"
UNREACHABLE_MESSAGE = "the Temporal server at {} cannot be reached: "
ADDRESS_MESSAGE = "an address is written HOST:PORT, such as localhost:7233\n"
INVALID_ADDRESS = "http://x:99999999"


@pytest.mark.parametrize(
    ("arguments", "variables", "exit_code", "message_start"),
    [
        (["--help"], {}, 0, ""),
        (["--tools", "none.py"], {}, 2, MISSING_FILE_MESSAGE),
        (["--nope"], {}, 2, "No such option: --nope; see `dagwright worker --help`\n"),
        (["x"], {}, 2, "Got unexpected extra argument(s) (x); see `dagwright worker --help`\n"),
        ([], {"DAGWRIGHT_DATABASE_URL": "mysql://host/parties"}, 2, DATABASE_URL_MESSAGE),
        ([], {"TEMPORAL_ADDRESS": "127.0.0.1:1"}, 4, UNREACHABLE_MESSAGE.format("127.0.0.1:1")),
        ([], {"TEMPORAL_ADDRESS": INVALID_ADDRESS}, 4, UNREACHABLE_MESSAGE.format(INVALID_ADDRESS) + ADDRESS_MESSAGE),
        (["--json", "--tools", "none.py"], {}, 2, MISSING_FILE_MESSAGE),
    ],
)
async def test_worker_command_ends_with_its_exit_code_and_message(
    arguments: list[str], variables: dict[str, str], exit_code: int, message_start: str, tmp_path: Path
) -> None:
    environment = {**os.environ, **variables, "DAGWRIGHT_STATE_DIR": str(tmp_path)}
    # The `--help` case runs in a new interpreter, like a command of a user.
    process = await start_program(
        ("worker.py",), arguments, folder=tmp_path, environment=environment, uses_new_interpreter="--help" in arguments
    )
    stdout, stderr = await process.communicate()
    errors = stderr.decode()
    assert (await process.wait(), errors[: len(message_start)]) == (exit_code, message_start)
    assert errors.count("\n") == (1 if message_start else 0)
    if "--json" in arguments:
        assert json.loads(stdout) == {"code": "unreadable", "message": message_start.strip()}


async def test_event_loop_is_watched_while_calls_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    @contextmanager
    def record_context(name: str) -> Iterator[None]:
        events.append(name)
        yield
        events.append(f"{name} ended")

    @asynccontextmanager
    async def polls() -> AsyncIterator[None]:
        with record_context("polls"):
            yield

    def create_workers(*_: Any, **__: Any) -> list[Any]:
        events.append("created")
        return [polls()]

    async def do_nothing(*_: Any, **__: Any) -> None:
        pass

    for name in ("claim_store", "publish_store", "publish_tools", "publish_cards"):
        monkeypatch.setattr(worker, name, do_nothing)
    monkeypatch.setattr(worker, "create_workers", create_workers)
    monkeypatch.setattr(event_loop_watchdog, "logging_blocked_loop", lambda: record_context("watched"))
    client: Any = None
    async with worker.serving(client, load_toolset(Settings(state_dir=tmp_path), ()), task_queue="q"):
        pass
    assert events == ["created", "watched", "polls", "polls ended", "watched ended"]
