"""Nodes of offloaded regions: clients read them from the payload store in any state of the run.

A region is a group of pure nodes that run in one activity. The nodes of an offloaded region are in the payload store.
"""

import json
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.compiler.offloaded_regions import MIN_OFFLOADED_MEMBERS
from dagwright.history import document_hydration
from dagwright.history.document_hydration import full_document, hydrated_document
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.json_streaming import write_object
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.run_views import view_of
from tests.support.runs import (
    Document,
    Handle,
    Runs,
    bare_document,
    bare_node,
    blocked_node,
    checked_runs,
    completed_node,
    document_of,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, binary_tree_value, pure_node

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("small_pages")]

REGION_NODE_COUNT = 500


def plan(count: int = REGION_NODE_COUNT, *extra_nodes: Document, **fields: Any) -> Document:
    """Return a plan of an ordinary node, a region, extra nodes, and an ordinary node that uses the result of n5."""
    start = call_node("start", "echo", n=1)
    members = [pure_node(f"n{n}", f"{{{{n{n // 2}.result}}}}" if n else "{{start.result.n}}") for n in range(count)]
    end_node = call_node("end", "echo", n5="{{n5.result}}")
    return {"nodes": [start, *members, *extra_nodes, end_node], "output": "{{end.result}}", **fields}


async def read_node(runs: Runs, handle: Handle, node_id: str) -> Document:
    """Read the document of a node, as the command `node` does."""
    document = await hydrated_document(await view_of(runs, handle), runs.store, only_node=node_id)
    node_document: Document = document["nodes"][node_id]
    return node_document


async def read_full_document(runs: Runs, handle: Handle) -> Document:
    """Read the document of a run with the nodes of its offloaded regions, as the command `result --full` does."""
    view = await view_of(runs, handle)
    output = StringIO()
    await write_object(full_document(view, runs.store), output.write)
    document: Document = json.loads(output.getvalue())
    return document


async def test_document_has_every_node_of_a_small_run(runs: Runs) -> None:
    failing_node = pure_node("bad", "{{n4.result.gone}}")
    handle = await runs.start(plan(MIN_OFFLOADED_MEMBERS, failing_node, pure_node("after", "{{bad.result}}")))
    await document_of(handle)
    document = await hydrated_document(await view_of(runs, handle), runs.store)
    assert "nodes_ref" not in document
    assert document["notes"] == []
    assert {node_id: (node["status"], node["result"]) for node_id, node in document["nodes"].items()} == {
        "start": ("completed", {"n": 1}),
        **{f"n{number}": ("completed", binary_tree_value(number)) for number in range(MIN_OFFLOADED_MEMBERS)},
        "bad": ("failed", None),
        "after": ("blocked", None),
        "end": ("completed", {"n5": binary_tree_value(5)}),
    }


async def test_node_of_a_region_has_all_fields_of_a_node_document(runs: Runs) -> None:
    handle = await runs.start(
        plan(REGION_NODE_COUNT, pure_node("last", "{{n7.result}}", title="The last", depends_on=["n9", "start"]))
    )
    document = await document_of(handle)
    result = await read_node(runs, handle, "last")
    version = runs.versions["add"]
    assert {
        **result,
        "started_at": 0,
        "ended_at": 0,
        "lineage": {**result["lineage"], "started_at": 0, "ended_at": 0},
    } == {
        "status": "completed",
        "title": "The last",
        "tool": "add",
        "result": binary_tree_value(7) + 1,
        "error": None,
        "attempts": 1,
        "started_at": 0,
        "ended_at": 0,
        "blocked_by": [],
        "supersedes": None,
        "partial": False,
        "reason": None,
        "lineage": {
            **{"inputs": ["n9", "start", "n7"], "effects": "pure", "tool_version": version, "attempts": 1},
            **{"started_at": 0, "ended_at": 0},
        },
    }
    assert document["nodes"]["start"]["started_at"] < result["started_at"] <= result["ended_at"]
    assert (await read_node(runs, handle, "n5"))["lineage"]["inputs"] == ["n2"]
    run_document = await read_full_document(runs, handle)
    assert "nodes_ref" not in run_document
    assert list(run_document["nodes"])[:4] == ["start", "end", "n0", "n1"]
    assert run_document["nodes"]["last"] == result
    assert bare_document(run_document)["nodes"] == {
        "start": completed_node({"n": 1}),
        "end": completed_node({"n5": binary_tree_value(5)}),
        **{f"n{n}": completed_node(binary_tree_value(n)) for n in range(REGION_NODE_COUNT)},
        "last": completed_node(binary_tree_value(7) + 1),
    }


async def test_nodes_of_a_cancelled_region_are_reported(runs: Runs, gate: Gate) -> None:
    last_id = f"n{REGION_NODE_COUNT - 1}"
    held_node = tool_node("held", "pure_hold", last_id, arguments={"name": gate.name}, timeout="60s")
    with patch("dagwright.activities.region_batches.REGION_BATCH_S", 0.001):
        # The region also has the nodes `held` and `after`.
        handle = await gate.start_run(
            runs, plan(REGION_NODE_COUNT, held_node, pure_node("after", 1, depends_on=["held"]))
        )
    assert bare_node(await read_node(runs, handle, "n8")) == completed_node(binary_tree_value(8))
    pending_node = await read_node(runs, handle, "after")
    assert (pending_node["status"], pending_node["started_at"]) == ("pending", None)
    assert pending_node["reason"].endswith(f" of its {REGION_NODE_COUNT + 2:,} nodes have ended")
    await handle.signal("cancel", {"reason": "enough"})
    assert (await document_of(handle))["status"] == "cancelled"
    assert bare_node(await read_node(runs, handle, "n8")) == completed_node(binary_tree_value(8))
    assert bare_node(await read_node(runs, handle, "after")) == {"status": "cancelled", "reason": "enough"}
    run_document = await read_full_document(runs, handle)
    # The other four nodes are `start`, `held`, `after` and `end`.
    assert len(run_document["nodes"]) == REGION_NODE_COUNT + 4
    assert run_document["nodes"]["after"]["status"] == "cancelled"


async def test_region_ends_although_a_tool_ignores_cancellation(
    client: Client, harness: CallHarness, tmp_path: Path, unique_name: str
) -> None:
    gate = threading.Event()

    @tool(effects="pure")
    def ignore_cancellation() -> None:
        harness.enter(unique_name)
        gate.wait()

    last_id = f"n{REGION_NODE_COUNT - 1}"
    extra_nodes = [
        tool_node("stuck", "ignore_cancellation", last_id, timeout="10m"),
        pure_node("after", 1, depends_on=["stuck"]),
    ]
    registry = harness.registry().merge(ToolRegistry.of(ignore_cancellation))
    async with checked_runs(client, registry, settings=Settings(state_dir=tmp_path)) as runs:
        with patch("dagwright.activities.region_batches.REGION_BATCH_S", 0.001):
            handles = [await runs.start(plan(REGION_NODE_COUNT, *extra_nodes)) for _ in range(3)]
            await eventually(lambda: harness.running[unique_name] == len(handles))
        await handles[0].signal("cancel", {"reason": "enough"})
        await handles[1].cancel()
        started_at = (await RunReader(runs.client, handles[2].id).read()).started_at or 0.0
        deadline = f"{round(time.time() - started_at) + 2}s"
        await handles[2].execute_update(wire.SET_LIMITS, {"deadline": deadline, "by": "ann"})
        documents = [await document_of(handle) for handle in handles]
        gate.set()
        assert [document["status"] for document in documents] == ["cancelled", "cancelled", "failed"]
        assert documents[2]["error"]["code"] == "deadline_exceeded"
        for handle in handles:
            run_document = await read_full_document(runs, handle)
            # The other four nodes are `start`, `stuck`, `after` and `end`.
            assert len(run_document["nodes"]) == REGION_NODE_COUNT + 4
            assert bare_node(run_document["nodes"]["n8"]) == completed_node(binary_tree_value(8))
            statuses = [run_document["nodes"][node_id]["status"] for node_id in (last_id, "stuck", "after")]
            assert statuses == ["completed", *["cancelled"] * 2]


async def test_failures_in_regions_are_reported_without_a_worker(
    client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    extra_nodes = [
        pure_node("bad", "{{n7.result.gone}}"),
        pure_node("after bad", "{{bad.result}}"),
        pure_node("skipped", 1, when="n9.result < 0"),
    ]
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        handle = await runs.start(plan(REGION_NODE_COUNT, *extra_nodes))
        await document_of(handle)
    view = await RunReader(client, handle.id).read()
    with patch.object(document_hydration, "MAX_INNER_NODES", 400):
        document = await hydrated_document(view, runs.store)
    assert bare_document(document)["nodes"]["bad"]["error"].startswith("missing_data: Missing data: n7.result.gone")
    assert sorted(document["nodes"]) == ["bad", "end", "n5", "start"]
    assert document["nodes_ref"]["counts"] == {"blocked": 1, "completed": REGION_NODE_COUNT - 1, "skipped": 1}
    assert bare_node(await read_node(runs, handle, "after bad")) == blocked_node("bad")
    assert bare_node(await read_node(runs, handle, "skipped")) == {"status": "skipped"}
