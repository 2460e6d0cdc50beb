"""Regions of large plans: their insides lie in the store, and the run knows what something outside needs."""

from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType

from activities.inner_regions import RegionMemory
from dagwright.client.runs import Runs as ClientRuns
from dagwright.core.boundary.limits import INLINE_PLAN_NODES
from dagwright.server import Connection
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, bare, blocked, document_of, events_of
from tests.support.server import LiveServer
from tests.support.tools import Bench

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("small_pages")]

COUNT = 500
LARGE = INLINE_PLAN_NODES + 3_000
"""More nodes than travel in the input of a run, without `small_pages`."""


def pure(node: str, left: Any, right: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"id": node, "tool": "add", "arguments": {"left": left, "right": right}, **fields}


def three_deep(count: int) -> list[dict[str, Any]]:
    """Returns nodes that use the result of an earlier one and wait for two more."""
    return [
        pure(f"n{n}", f"{{{{n{n // 2}.result}}}}" if n else "{{start.result.n}}", depends_on=needs_of(n))
        for n in range(count)
    ]


def needs_of(number: int) -> list[str]:
    return [f"n{number - 1}", f"n{number // 3}"] if number > 2 else []


def value_of(number: int) -> int:
    return number.bit_length() + 2


def plan(count: int = COUNT, **fields: Any) -> dict[str, Any]:
    """Returns a large region between two ordinary nodes."""
    start = {"id": "start", "tool": "echo", "arguments": {"n": 1}}
    end = {"id": "end", "tool": "echo", "arguments": {"last": f"{{{{n{count - 1}.result}}}}", "early": "{{n5.result}}"}}
    return {"nodes": [start, *three_deep(count), end], "output": "{{end.result}}", **fields}


async def counts_of(handle: Handle) -> dict[str, int]:
    """Returns the states of all nodes of a run that has ended, those of its document with the others."""
    document = await document_of(handle)
    counts = dict(document["nodes_ref"]["counts"])
    for node in document["nodes"].values():
        counts[node["status"]] = counts.get(node["status"], 0) + 1
    return counts


async def test_large_region_runs_with_few_events_and_small_payloads(runs: Runs) -> None:
    handle = await runs.start(plan(LARGE))
    document = await document_of(handle)
    assert document["output"] == {"last": value_of(LARGE - 1), "early": value_of(5)}
    assert await counts_of(handle) == {"completed": LARGE + 2}
    assert sorted(document["nodes"]) == sorted(["start", "end", "n5", f"n{LARGE - 1}"])
    history = await handle.fetch_history()
    assert len(history.events) < 150
    assert max(len(event.SerializeToString()) for event in history.events) < 10_000


async def test_worker_that_never_saw_the_region_goes_on_with_it(runs: Runs) -> None:
    with patch.object(RegionMemory, "take", lambda *arguments: None):
        handle = await runs.start(plan())
        assert (await document_of(handle))["output"] == {"last": value_of(COUNT - 1), "early": value_of(5)}
    assert await counts_of(handle) == {"completed": COUNT + 2}


async def test_failures_inside_are_counted_and_block_what_needs_them(runs: Runs) -> None:
    inside = three_deep(COUNT)
    inside[COUNT - 3]["arguments"]["left"] = "{{n7.result.gone}}"
    nodes = [
        {"id": "start", "tool": "echo", "arguments": {"n": 1}},
        *inside,
        pure("no", "{{n9.result}}", when="n9.result < 0"),
        pure("not either", "{{no.result}}"),
        {"id": "other", "tool": "echo", "arguments": {"n": "{{n9.result}}"}},
        {"id": "end", "tool": "echo", "arguments": {"last": f"{{{{n{COUNT - 1}.result}}}}"}},
        {"id": "late", "tool": "echo", "depends_on": [f"n{COUNT - 1}"], "join": "all_done"},
    ]
    handle = await runs.start({"nodes": nodes, "output": "{{other.result}}"})
    document = bare(await document_of(handle))
    assert (document["status"], document["output"]) == ("completed_with_failures", {"n": value_of(9)})
    bad = f"n{COUNT - 3}"
    assert document["nodes"]["end"] == blocked(bad)
    assert document["nodes"][f"n{COUNT - 1}"] == blocked(bad)
    assert document["nodes"]["late"]["status"] == "completed"
    assert await counts_of(handle) == {"completed": COUNT, "failed": 1, "blocked": 3, "skipped": 2}


async def test_cancel_reaches_a_large_region(runs: Runs, bench: Bench, unique: str) -> None:
    hold = {"id": "held", "tool": "pure_hold", "arguments": {"name": unique}, "timeout": "60s", "depends_on": ["n9"]}
    made = plan()
    handle = await runs.start({**made, "nodes": [*made["nodes"][:-1], hold], "output": None})
    await eventually(lambda: unique in bench.entered)
    await handle.signal("cancel", {"reason": "enough"})
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    counts = await counts_of(handle)
    assert sum(counts.values()) == COUNT + 2
    assert counts["cancelled"] > 0
    assert counts["completed"] > 9


async def test_fail_fast_inside_ends_the_run_with_the_node_that_failed(runs: Runs) -> None:
    made = plan(on_failure="fail_fast")
    made["nodes"][100]["arguments"]["left"] = "{{n9.result.gone}}"
    document = await document_of(await runs.start(made))
    assert document["status"] == "failed"
    assert document["error"]["message"].startswith("'n99' failed: Missing data: n9.result.gone")


async def test_list_names_the_node_that_failed_inside(runs: Runs, server: LiveServer) -> None:
    made = plan()
    made["nodes"][100]["arguments"]["left"] = "{{n9.result.gone}}"
    handle = await runs.start({**made, "output": f"{{{{n{COUNT - 1}.result}}}}"})
    assert (await document_of(handle))["status"] == "failed"
    connection = Connection(runs.client, server.server, frozenset())
    client = ClientRuns(connection, task_queue=runs.task_queue, store=runs.store)
    (listed,) = [run for run in await client.list_runs() if run.workflow_id == handle.id]
    assert listed.error is not None
    assert (listed.error["code"], listed.error["node"]) == ("node_failed", "n99")


async def test_inside_that_is_lost_fails_what_hangs_on_it(runs: Runs) -> None:
    with patch("activities.run_region.fetch", side_effect=ValueError("lost")):
        handle = await runs.start(plan())
        document = bare(await document_of(handle))
    assert document["status"] == "failed"
    assert document["nodes"]["n5"]["error"] == "region_lost: lost"
    history = await handle.fetch_history()
    assert len(events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)) == 2
