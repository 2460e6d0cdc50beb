"""Cached results that later runs and other workers reuse, on a real server."""

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from temporalio.client import Client

from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.runs import Document, Runs, checked_runs

pytestmark = pytest.mark.server


class CallLog:
    """The argument `name` of each call.

    The class stores the log, because a tool whose closure contains a log object has no cached results.
    """

    calls: ClassVar[list[str]] = []
    lock = threading.Lock()

    @classmethod
    def record(cls, name: str) -> int:
        with cls.lock:
            cls.calls.append(name)
            return len(cls.calls)


@tool(effects="read")
def look(name: str) -> dict[str, Any]:
    return {"name": name, "call": CallLog.record(name)}


@tool(effects="read")
def look_long(name: str) -> dict[str, Any]:
    """Return a result that goes to the payload store."""
    return {"name": name, "call": CallLog.record(name), "text": "x" * MAX_INLINE_VALUE_BYTES}


@tool(effects="read")
def long_text(name: str) -> str:
    CallLog.record(name)
    return name * MAX_INLINE_VALUE_BYTES


@tool(effects="pure")
def compute_slowly(name: str, size: int = 1) -> str:
    """Take longer than a lookup of the cached result."""
    busy_until = time.thread_time() + 0.02
    while time.thread_time() < busy_until:
        pass
    CallLog.record(name)
    return f"{name}!" * size


@tool(effects="pure")
def compute_quickly(name: str) -> str:
    CallLog.record(name)
    return f"{name}."


@tool(effects="read")
def length(value: Any) -> int:
    return len(str(value))


TOOLS = ToolRegistry.of(look, look_long, long_text, compute_slowly, compute_quickly, length)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The argument `name` of each call, in order."""
    monkeypatch.setattr(CallLog, "calls", [])
    return CallLog.calls


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path)


@pytest.fixture
async def worker(client: Client, settings: Settings) -> AsyncIterator[Runs]:
    async with checked_runs(client, TOOLS, settings=settings) as runs:
        yield runs


@pytest.fixture
async def second_worker(client: Client, settings: Settings) -> AsyncIterator[Runs]:
    """A second worker with the same store, but without the memory of `worker`."""
    async with checked_runs(client, TOOLS, settings=settings) as runs:
        yield runs


def node(node_id: str, tool_name: str, *, name: str = "a", **fields: Any) -> Document:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": name}, "cache": {"ttl": "1h"}, **fields}


async def run_nodes(runs: Runs, *nodes: Document) -> tuple[str, Document]:
    """Run nodes to their end. Return the run ID and the nodes of the document."""
    handle = await runs.start({"nodes": list(nodes)})
    await handle.result()
    return handle.id, (await runs.read_document(handle))["nodes"]


async def test_later_runs_reuse_a_cached_result_and_show_its_source(
    worker: Runs, second_worker: Runs, calls: list[str]
) -> None:
    first_run_id, first_nodes = await run_nodes(worker, node("x", "look"))
    for runs in (worker, second_worker):
        _, nodes = await run_nodes(runs, node("y", "look"))
        source = nodes["y"]["lineage"]["cached"]
        assert source == {"made_at": source["made_at"], "run_id": first_run_id, "node_id": "x"}
        assert (nodes["y"]["result"], nodes["y"]["attempts"]) == ({"name": "a", "call": 1}, 1)
        assert source["made_at"] >= first_nodes["x"]["started_at"]
    assert "cached" not in first_nodes["x"]["lineage"]
    assert calls == ["a"]


def pure_node(node_id: str, name: str, tool_name: str = "compute_slowly", **arguments: Any) -> Document:
    return {"id": node_id, "tool": tool_name, "arguments": {"name": name, **arguments}}


async def test_only_slow_nodes_of_a_region_are_cached(worker: Runs, second_worker: Runs, calls: list[str]) -> None:
    nodes = [
        pure_node("a", "x"),
        pure_node("b", "{{a.result}}"),
        pure_node("c", "x"),
        pure_node("large", "y", size=MAX_INLINE_VALUE_BYTES),
        pure_node("after", "{{large.result}}", "compute_quickly"),
        pure_node("end", "{{b.result}}{{c.result}}", "compute_quickly"),
    ]
    first_run_id, first_nodes = await run_nodes(worker, *nodes)
    # `c` reuses the result of `a`. The name of `after`, the result of `large`, is too long to compare.
    assert sorted(calls, key=len)[:4] == ["x", "y", "x!", "x!!x!"]
    assert first_nodes["c"]["lineage"]["cached"]["node_id"] == "a"
    assert [name for name in first_nodes if "cached" in first_nodes[name]["lineage"]] == ["c"]

    for runs in (worker, second_worker):
        calls.clear()
        _, later_nodes = await run_nodes(runs, *nodes)
        expected = [first_nodes[name]["result"] for name in first_nodes]
        assert [later_nodes[name]["result"] for name in later_nodes] == expected
        # The names of the slow nodes have at most two characters.
        assert all(len(name) > 2 for name in calls), "a slow node was called again"
        producers = {name: later_nodes[name]["lineage"].get("cached", {}).get("run_id") for name in later_nodes}
        assert producers == dict.fromkeys(["a", "b", "c", "large"], first_run_id) | {"after": None, "end": None}


async def test_node_outside_of_a_region_uses_a_result_cached_in_a_region(
    worker: Runs, second_worker: Runs, calls: list[str]
) -> None:
    await run_nodes(worker, pure_node("a", "x"), pure_node("b", "{{a.result}}"))
    _, nodes = await run_nodes(second_worker, pure_node("z", "x!"))
    assert (nodes["z"]["lineage"]["cached"]["node_id"], calls) == ("b", ["x", "x!"])
