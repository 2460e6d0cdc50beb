"""Nodes that call workflows and activities of a foreign worker (a worker that is not Dagwright's)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from dagwright.settings import Settings
from tests.support.foreign import with_tools
from tests.support.goals import call_node
from tests.support.order_shop import ShipmentWorkflow
from tests.support.people import tool_node
from tests.support.run_views import wait_for_node
from tests.support.runs import Handle, Runs, bare_document, chain_of, completed_node, end_of, failed_node, serving_runs
from tests.support.shop_worker import shop_worker
from tests.support.tools import CallHarness
from tests.workflow.building import ended_document

pytestmark = pytest.mark.server


@pytest.fixture
async def shop_runs(runs: Runs, client: Client) -> AsyncIterator[Runs]:
    """Runs whose plans call a workflow and an activity of a foreign worker."""
    async with shop_worker(client) as tools:
        shop_runs = with_tools(runs, tools)
        yield shop_runs
        await shop_runs.check_runs()


def shipment_node(tool: str = "ship", **arguments: Any) -> dict[str, Any]:
    return {"id": "ship", "tool": tool, "arguments": {"item": "lamp", **arguments}}


async def wait_for_running_shipment(shop_runs: Runs, handle: Handle) -> WorkflowHandle[Any, Any]:
    await wait_for_node(shop_runs, handle, "ship", "running")
    return shop_runs.client.get_workflow_handle(f"{handle.id}/ship")


async def read_ended_nodes(shop_runs: Runs, handle: Handle) -> dict[str, Any]:
    nodes: dict[str, Any] = bare_document(await ended_document(shop_runs, handle))["nodes"]
    return nodes


async def test_workflow_and_activity_of_a_foreign_worker_run_as_nodes(shop_runs: Runs) -> None:
    reserve_node = call_node("reserve", "reserve", item="lamp")
    ship_node = call_node("ship", "ship", item="{{reserve.result.reserved}}")
    handle = await shop_runs.start({"nodes": [reserve_node, ship_node]})
    assert await read_ended_nodes(shop_runs, handle) == {
        "reserve": completed_node({"reserved": "lamp"}),
        "ship": completed_node({"shipped": "lamp", "workflow": f"{handle.id}/ship"}),
    }


async def test_each_item_of_a_map_has_a_separate_workflow(shop_runs: Runs) -> None:
    node = tool_node("ship", "ship", for_each=["lamp", "desk"], arguments={"item": "{{item}}"})
    handle = await shop_runs.start({"nodes": [node]})
    result = (await read_ended_nodes(shop_runs, handle))["ship"]["result"]
    assert [item["shipped"] for item in result] == ["lamp", "desk"]
    assert len({item["workflow"] for item in result}) == 2


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (shipment_node(fails=True, is_permanent=True), failed_node("NoTruck: no truck")),
        (shipment_node("try_ship", fails=True), failed_node("NoTruck: no truck", attempts=2)),
        (
            {**shipment_node(waits=True), "timeout": "1s"},
            failed_node(
                "outcome_unknown: outcome unknown: it took over 1 s, so ship may or may not have made its change"
            ),
        ),
    ],
    ids=["fails", "fails_twice", "takes_too_long"],
)
async def test_failure_of_a_workflow_fails_its_node(shop_runs: Runs, node: dict[str, Any], expected: Any) -> None:
    handle = await shop_runs.start({"nodes": [node]})
    assert await read_ended_nodes(shop_runs, handle) == {"ship": expected}


async def test_node_runs_until_its_workflow_completes(shop_runs: Runs) -> None:
    handle = await shop_runs.start({"nodes": [shipment_node(waits=True)]})
    child = await wait_for_running_shipment(shop_runs, handle)
    await child.signal(ShipmentWorkflow.ship)
    assert (await read_ended_nodes(shop_runs, handle))["ship"]["result"]["shipped"] == "lamp"


@pytest.mark.parametrize("target", ["run", "node", "workflow"])
async def test_cancelling_the_run_the_node_or_the_workflow_cancels_the_node_and_its_workflow(
    shop_runs: Runs, target: str
) -> None:
    handle = await shop_runs.start({"nodes": [shipment_node(waits=True)]})
    child = await wait_for_running_shipment(shop_runs, handle)
    if target == "run":
        await handle.cancel()
    elif target == "node":
        await handle.signal("cancel_node", {"node_id": "ship"})
    else:
        await child.cancel()
    assert (await ended_document(shop_runs, handle))["nodes"]["ship"]["status"] == "cancelled"
    assert (await child.describe()).status.name == "CANCELED"  # type: ignore[union-attr] # a described workflow has a status


async def test_terminated_workflow_of_a_write_has_an_unknown_outcome(shop_runs: Runs) -> None:
    handle = await shop_runs.start({"nodes": [shipment_node(waits=True)]})
    await (await wait_for_running_shipment(shop_runs, handle)).terminate()
    message = "outcome unknown: its workflow was terminated, so ship may or may not have made its change"
    assert await read_ended_nodes(shop_runs, handle) == {"ship": failed_node(f"outcome_unknown: {message}")}


@pytest.mark.usefixtures("low_history_limits")
async def test_map_of_workflows_continues_as_new_and_completes(
    short_history_client: Client, harness: CallHarness, tmp_path: Path
) -> None:
    # 100 workflows add at least 400 events, at which the run continues as new. The number of executions is not fixed,
    # because the number of workflow tasks depends on the load.
    items = [f"lamp {number}" for number in range(100)]
    node = tool_node("ship", "ship", for_each=items, arguments={"item": "{{item}}"})
    async with (
        serving_runs(short_history_client, harness.registry(), settings=Settings(state_dir=tmp_path)) as served_runs,
        shop_worker(short_history_client) as tools,
    ):
        runs = with_tools(served_runs, tools)
        handle = await runs.start({"nodes": [node]}, max_in_flight=2)
        document = await ended_document(runs, handle)
        chain = await chain_of(runs.client, handle)
        await runs.check_runs()
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["completed"]
    assert len(chain) > 1
    assert [item["shipped"] for item in document["nodes"]["ship"]["result"]] == items
