"""Tools of the chaos tests, loaded by a worker process that the tests kill while the tools run.

Most tools have a fault point, which their argument names: they create `<folder>/reached-<point>` and wait as long as
`<folder>/hold-<point>` exists. An effect is a row in SQLite, one for each idempotency key. Each attempt to make an
effect is recorded, too.
"""

import asyncio
import ctypes
import gc
import hashlib
import json
import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from dagwright.tools import AskPerson, context, tool, worker_tool

FOLDER_VARIABLE = "CHAOS_FOLDER"
"""Environment variable of the worker process: the folder that the test and its tools share."""
LIVING_OBJECTS_FILE = "living-objects.json"
"""File in the shared folder with the number of Python objects of each type in the worker."""

_POLL_S = 0.02


def value_of(name: str, values: list[str]) -> str:
    """Return the value of a node of a random graph, computed from its name and all its inputs."""
    return hashlib.sha256(json.dumps([name, values]).encode()).hexdigest()[:16]


def make_database(folder: Path) -> None:
    """Create the tables of effects in a folder."""
    with closing(_connect(folder)) as database, database:
        database.execute("CREATE TABLE effects (key TEXT PRIMARY KEY, name TEXT NOT NULL)")
        database.execute("CREATE TABLE attempts (key TEXT NOT NULL, name TEXT NOT NULL)")


def effects_of(folder: Path) -> list[str]:
    """Return the names of the effects, sorted by name; an effect made under two keys appears twice."""
    return _names(folder, "effects")


def attempts_of(folder: Path) -> list[str]:
    """Return the effect name of each attempt to make an effect, sorted."""
    return _names(folder, "attempts")


def _names(folder: Path, table: str) -> list[str]:
    with closing(_connect(folder)) as database:
        return [name for (name,) in database.execute(f"SELECT name FROM {table} ORDER BY name")]


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "effects.db", timeout=20)


def _folder() -> Path:
    return Path(os.environ[FOLDER_VARIABLE])


async def _wait_at_fault_point(name: str) -> None:
    folder = _folder()
    (folder / f"reached-{name}").touch()
    while (folder / f"hold-{name}").exists():
        await asyncio.sleep(_POLL_S)


def block_at_fault_point(name: str) -> None:
    """Block the thread as long as the fault point is held."""
    folder = _folder()
    while (folder / f"hold-{name}").exists():
        (folder / f"reached-{name}").touch()
        time.sleep(_POLL_S)


def calls_of(folder: Path) -> Counter[str]:
    """Count the calls of `pure_compute` and `make_slot` by their argument `name`."""
    calls_file = folder / "calls"
    return Counter(calls_file.read_text(encoding="utf-8").split()) if calls_file.exists() else Counter()


def _record_call(name: str) -> None:
    with (_folder() / "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{name}\n")


def _record_effect(name: str, *, has_key: bool) -> None:
    key = context().idempotency_key if has_key else f"{context().run_id}/{context().attempt}"
    with closing(_connect(_folder())) as database, database:
        database.execute("INSERT INTO attempts VALUES (?, ?)", (key, name))
        database.execute("INSERT OR IGNORE INTO effects VALUES (?, ?)", (key, name))


@tool(effects="read")
async def compute(name: str, values: list[str]) -> str:
    """Return the value of a node of a random graph."""
    await _wait_at_fault_point(name)
    return value_of(name, values)


@dataclass(frozen=True)
class Span:
    """A call of `record_span`; `end` is `None` if the worker died during the call."""

    group: str
    pid: int
    start: float
    end: float | None


def spans_of(folder: Path, group: str) -> list[Span]:
    """Return the calls of `record_span` in a group, by start."""
    spans_file = folder / "spans"
    lines = [json.loads(line) for line in spans_file.read_text().splitlines()] if spans_file.exists() else []
    ends = {line["call"]: line["at"] for line in lines if line["is_end"]}
    starts = [line for line in lines if line["group"] == group and not line["is_end"]]
    spans = [Span(group, line["pid"], line["at"], ends.get(line["call"])) for line in starts]
    return sorted(spans, key=lambda span: span.start)


@tool(effects="read")
async def record_span(name: str, group: str, pause_ms: float = 0.0) -> str:
    """Record the start of the call, pause, wait at the fault point `name`, and record the end of the call."""
    call = f"{os.getpid()}/{name}/{context().attempt}"

    def record(*, is_end: bool) -> None:
        line = {"call": call, "group": group, "pid": os.getpid(), "at": time.monotonic(), "is_end": is_end}
        with (_folder() / "spans").open("a", encoding="utf-8") as spans:
            spans.write(f"{json.dumps(line)}\n")

    record(is_end=False)
    await asyncio.sleep(pause_ms / 1000)
    await _wait_at_fault_point(name)
    record(is_end=True)
    return name


@tool(effects="pure")
def pure_compute(name: str, values: list[str], pause_ms: float) -> str:
    """Return the value of a node of a random graph, record the call and wait at its fault point."""
    _record_call(name)
    time.sleep(pause_ms / 1000)
    block_at_fault_point(name)
    return value_of(name, values)


@worker_tool(outputs=["made"], goal_type="deliverable")
async def make_slot(name: str) -> dict[str, str]:
    """Record the call, wait at its fault point, and return the value of the slot `made`."""
    _record_call(name)
    await _wait_at_fault_point(name)
    return {"made": name}


@tool(effects="read")
def long_text(name: str) -> str:
    """Return a text that goes to the payload store."""
    return name * 20_000


@tool(effects="idempotent")
async def effect_then_hold(name: str) -> str:
    """Make an effect and then wait at the fault point: a kill there causes a second attempt."""
    _record_effect(name, has_key=True)
    await _wait_at_fault_point(name)
    return name


@tool(effects="read", batch=True)
def short_effect(name: str, previous_result: Any = None) -> str:
    """Make an effect, and then kill this worker if `<folder>/die-<name>` exists.

    The argument `previous_result` is not used: a reference in it makes the node depend on another node. The tool has
    no fault point, because a call that waits leaves its batch.
    """
    _record_effect(name, has_key=True)
    kill_file = _folder() / f"die-{name}"
    if kill_file.exists():
        kill_file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return name


@tool(effects="write")
async def write_then_hold(name: str) -> str:
    """Make an effect without an idempotency key, and wait at the fault point."""
    _record_effect(name, has_key=False)
    await _wait_at_fault_point(name)
    return name


def _wait_and_validate(name: str) -> str:
    block_at_fault_point(name)
    return name


@tool(effects="write")
async def write_after_check(name: Annotated[str, AfterValidator(_wait_and_validate)]) -> str:
    """Make an effect without an idempotency key. The fault point is in the validation of the argument."""
    _record_effect(name, has_key=False)
    return name


@tool(effects="idempotent")
async def effect_then_ask(name: str) -> str:
    """Make an effect and ask a person for its name. The call with the answer only waits at the fault point."""
    if context().checkpoint is None:
        _record_effect(name, has_key=True)
        raise AskPerson(f"What is {name} called?", checkpoint={"made": name})
    await _wait_at_fault_point(name)
    return str(context().answers[0]["text"])


@tool(effects="read")
async def echo(**arguments: Any) -> dict[str, Any]:
    """Return the arguments."""
    return arguments


@tool(effects="read")
def living_objects() -> int:
    """Collect the garbage of the worker and return the number of remaining objects.

    The number of each type is written to `<folder>/living-objects.json`. Free memory is returned to the system, so that
    the process has only the memory of its objects.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # `isinstance` would make objects of `openai` load all modules of that package.
    counts_by_type = Counter(f"{type(entry).__module__}.{type(entry).__qualname__}" for entry in gc.get_objects())
    (_folder() / LIVING_OBJECTS_FILE).write_text(json.dumps(counts_by_type), encoding="utf-8")
    return counts_by_type.total()
