"""Results that later runs and other workers use again, on a real server."""

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from temporalio.client import Client

from dagwright.core.boundary.limits import INLINE_VALUE_BYTES
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.runs import Document, Runs, serving_runs

pytestmark = pytest.mark.server


class Counted:
    """Calls of the tools of this module; no closure refers to it, so their results differ."""

    calls: ClassVar[list[str]] = []
    lock = threading.Lock()

    @classmethod
    def note(cls, name: str) -> int:
        with cls.lock:
            cls.calls.append(name)
            return len(cls.calls)


@tool(effects="read")
def look(name: str) -> dict[str, Any]:
    return {"name": name, "call": Counted.note(name)}


@tool(effects="read")
def look_long(name: str) -> dict[str, Any]:
    """Answers with a result that goes to the store."""
    return {"name": name, "call": Counted.note(name), "text": "x" * INLINE_VALUE_BYTES}


@tool(effects="read")
def long_text(name: str) -> str:
    Counted.note(name)
    return name * INLINE_VALUE_BYTES


@tool(effects="pure")
def ponder(name: str, size: int = 1) -> str:
    """Take so long that a lookup of the result is faster."""
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    Counted.note(name)
    return f"{name}!" * size


@tool(effects="pure")
def glance(name: str) -> str:
    Counted.note(name)
    return f"{name}."


@tool(effects="read")
def length(value: Any) -> int:
    return len(str(value))


TOOLS = ToolRegistry.of(look, look_long, long_text, ponder, glance, length)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that were made, in order."""
    monkeypatch.setattr(Counted, "calls", [])
    return Counted.calls


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path)


@pytest.fixture
async def worker(client: Client, settings: Settings) -> AsyncIterator[Runs]:
    async with serving_runs(client, TOOLS, settings=settings) as runs:
        yield runs
        await runs.check_runs()


@pytest.fixture
async def another(client: Client, settings: Settings) -> AsyncIterator[Runs]:
    """A worker with a memory of its own and the same store."""
    async with serving_runs(client, TOOLS, settings=settings) as runs:
        yield runs
        await runs.check_runs()


def node(node_id: str, tool_name: str, *, name: str = "a", **fields: Any) -> Document:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": name}, "cache": {"ttl": "1h"}, **fields}


async def run_nodes(runs: Runs, *nodes: Document) -> tuple[str, Document]:
    """Run nodes to their end; return the run's id and the nodes of its document."""
    handle = await runs.start({"nodes": list(nodes)})
    await handle.result()
    document = await runs.read_document(handle)
    return handle.id, document["nodes"]


async def test_second_run_makes_no_call_and_names_the_source(worker: Runs, another: Runs, calls: list[str]) -> None:
    first_run, first = await run_nodes(worker, node("x", "look"))
    for runs in (worker, another):
        _, later = await run_nodes(runs, node("y", "look"))
        cached = later["y"]["lineage"]["cached"]
        assert cached == {"made_at": cached["made_at"], "run_id": first_run, "node_id": "x"}
        assert (later["y"]["result"], later["y"]["attempts"]) == ({"name": "a", "call": 1}, 1)
        assert cached["made_at"] >= first["x"]["started_at"]
    assert "cached" not in first["x"]["lineage"]
    assert calls == ["a"]


def ponder_node(node_id: str, name: str, tool_name: str = "ponder", **arguments: Any) -> Document:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": name, **arguments}}


async def test_slow_node_of_a_region_is_called_once_in_all(worker: Runs, another: Runs, calls: list[str]) -> None:
    nodes = [
        ponder_node("a", "x"),
        ponder_node("b", "{{a.result}}"),
        ponder_node("c", "x"),
        ponder_node("large", "y", size=INLINE_VALUE_BYTES),
        ponder_node("after", "{{large.result}}", "glance"),
        ponder_node("end", "{{b.result}}{{c.result}}", "glance"),
    ]
    first_run, first = await run_nodes(worker, *nodes)
    assert sorted(calls, key=len)[:4] == ["x", "y", "x!", "x!!x!"]
    assert first["c"]["lineage"]["cached"]["node_id"] == "a"
    assert [name for name in first if "cached" in first[name]["lineage"]] == ["c"]

    for runs in (worker, another):
        calls.clear()
        _, actual = await run_nodes(runs, *nodes)
        assert [actual[name]["result"] for name in actual] == [first[name]["result"] for name in first]
        assert all(len(name) > 2 for name in calls), "a slow node was called again"
        producers = {name: actual[name]["lineage"].get("cached", {}).get("run_id") for name in actual}
        assert producers == dict.fromkeys(["a", "b", "c", "large"], first_run) | {"after": None, "end": None}


async def test_node_finds_alone_what_it_made_in_a_region(worker: Runs, another: Runs, calls: list[str]) -> None:
    await run_nodes(worker, ponder_node("a", "x"), ponder_node("b", "{{a.result}}"))
    _, actual = await run_nodes(another, ponder_node("z", "x!"))
    assert (actual["z"]["lineage"]["cached"]["node_id"], calls) == ("b", ["x", "x!"])
