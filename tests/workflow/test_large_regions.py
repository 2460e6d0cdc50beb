"""Large plans: the client sends them in pages, and the regions (groups of pure nodes) go to the payload store."""

from typing import Any
from unittest.mock import patch

import pytest

from dagwright.activities.region_state import RegionCache
from dagwright.client.run_lists import RunFilter
from dagwright.client.starts import StartRequest
from dagwright.core.boundary.limits import MAX_INLINE_PLAN_NODES, MAX_PLAN_PAGE_NODES
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.runs import Handle, Runs, assert_clean, document_of, scheduled_calls
from tests.workflow.building import binary_tree_value, client_runs_of, pure_node

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("small_pages")]

REGION_NODE_COUNT = 500
LARGE_REGION_NODE_COUNT = MAX_INLINE_PLAN_NODES + 3_000
"""More nodes than the input of a run can have in production. The fixture `small_pages` lowers this limit."""


def nodes_with_three_dependencies(count: int) -> list[dict[str, Any]]:
    """Return pure nodes. Each node uses the result of a previous node, and depends on two more previous nodes."""
    return [
        pure_node(f"n{n}", f"{{{{n{n // 2}.result}}}}" if n else "{{start.result.n}}", depends_on=earlier_node_ids(n))
        for n in range(count)
    ]


def earlier_node_ids(number: int) -> list[str]:
    return [f"n{number - 1}", f"n{number // 3}"] if number > 2 else []


def plan(count: int = REGION_NODE_COUNT, **fields: Any) -> dict[str, Any]:
    """Return a plan with a large region between two ordinary nodes."""
    start = call_node("start", "echo", n=1)
    end_node = call_node("end", "echo", last=f"{{{{n{count - 1}.result}}}}", n5="{{n5.result}}")
    return {"nodes": [start, *nodes_with_three_dependencies(count), end_node], "output": "{{end.result}}", **fields}


async def count_nodes_by_status(handle: Handle) -> dict[str, int]:
    """Return the number of nodes with each status, inside and outside of the region of an ended run."""
    document = await document_of(handle)
    counts = dict(document["nodes_ref"]["counts"])
    for node in document["nodes"].values():
        counts[node["status"]] = counts.get(node["status"], 0) + 1
    return counts


async def test_large_region_runs_with_few_events_and_small_payloads(runs: Runs) -> None:
    handle = await runs.start(plan(LARGE_REGION_NODE_COUNT))
    document = await document_of(handle)
    assert document["output"] == {"last": binary_tree_value(LARGE_REGION_NODE_COUNT - 1), "n5": binary_tree_value(5)}
    assert await count_nodes_by_status(handle) == {"completed": LARGE_REGION_NODE_COUNT + 2}
    assert sorted(document["nodes"]) == sorted(["start", "end", "n5", f"n{LARGE_REGION_NODE_COUNT - 1}"])
    history = await handle.fetch_history()
    assert len(history.events) < 150
    assert max(len(event.SerializeToString()) for event in history.events) < 10_000


async def test_worker_without_the_region_in_its_cache_continues_the_region(runs: Runs) -> None:
    with patch.object(RegionCache, "pop", lambda *arguments: None):
        handle = await runs.start(plan())
        assert (await document_of(handle))["output"] == {
            "last": binary_tree_value(REGION_NODE_COUNT - 1),
            "n5": binary_tree_value(5),
        }
    assert await count_nodes_by_status(handle) == {"completed": REGION_NODE_COUNT + 2}


async def test_document_identifies_the_failed_node_of_a_region_and_the_run_list_counts_failed_nodes(runs: Runs) -> None:
    region_plan = plan()
    region_plan["nodes"][100]["arguments"]["left"] = "{{n9.result.gone}}"
    client_runs = client_runs_of(runs)
    compiled = prepare_plan(
        check_plan({**region_plan, "output": f"{{{{n{REGION_NODE_COUNT - 1}.result}}}}"}, runs.tools), {}
    )
    run = await client_runs.start(StartRequest(compiled))
    assert (await document_of(runs.client.get_workflow_handle(run.run_id)))["status"] == "failed"
    run_filter = RunFilter(title=run.run_id, status="failed")

    async def is_listed() -> bool:
        return bool(await client_runs.list_runs(run_filter=run_filter))

    await eventually(is_listed)
    (listed_run,) = await client_runs.list_runs(run_filter=run_filter)
    assert listed_run.error is not None
    # The ID of the node is in the payload store, which the list of runs does not read.
    expected = ("node_failed", "1 node failed", None)
    assert (listed_run.error.code, listed_run.error.message, listed_run.error.node_id) == expected
    run_document = await client_runs.document(await client_runs.reader(run.run_id).read())
    assert (run_document["error"]["code"], run_document["error"]["node_id"]) == ("node_failed", "n99")


PAGED_PLAN_NODE_COUNT = MAX_INLINE_PLAN_NODES + MAX_PLAN_PAGE_NODES + 1


def paged_plan(count: int) -> dict[str, Any]:
    """Return a large plan whose run is short: two nodes run, and all others are skipped."""
    first_node: dict[str, Any] = call_node("n0", "plus", left=1, right=1)
    skipped_nodes = [
        tool_node(f"n{number}", "plus", arguments={"left": number, "right": 1}, when="n0.result == 3")
        for number in range(1, count - 1)
    ]
    last_node: dict[str, Any] = call_node("last", "plus", left="{{n0.result}}", right=40)
    return {"title": "Large", "nodes": [first_node, *skipped_nodes, last_node], "output": "{{last.result}}"}


async def test_large_plan_is_sent_in_pages(runs: Runs) -> None:
    handle = await runs.start(paged_plan(PAGED_PLAN_NODE_COUNT))
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", 42)
    assert document["nodes_ref"]["counts"] == {"completed": 2, "skipped": PAGED_PLAN_NODE_COUNT - 2}
    history = await handle.fetch_history()
    assert len(history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data) < 1_000
    load_count = [scheduled_call.activity_type.name for scheduled_call in scheduled_calls(history)].count("load_plan")
    # The first page is the plan without its nodes.
    assert load_count == 1 + -(-PAGED_PLAN_NODE_COUNT // MAX_PLAN_PAGE_NODES)
    assert_clean(history)


async def test_large_raw_plan_runs(runs: Runs) -> None:
    document = await document_of(await runs.start_raw({"plan": paged_plan(PAGED_PLAN_NODE_COUNT)}))
    assert (document["status"], document["output"]) == ("completed", 42)


@pytest.mark.parametrize(
    ("compiled", "error"),
    [
        ({"pages": ["sha256-" + "0" * 64]}, "a part of the plan cannot be loaded"),
        ({"pages": [7]}, "the pages of a plan must be a list of references"),
    ],
)
async def test_unreadable_pages_fail_the_run(runs: Runs, compiled: dict[str, Any], error: str) -> None:
    document = await document_of(await runs.start_raw({"compiled": compiled}))
    assert document["status"] == "failed"
    assert error in document["error"]["message"]
