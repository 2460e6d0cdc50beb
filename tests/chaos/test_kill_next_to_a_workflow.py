"""The worker of a run is killed while a node of the run waits for a workflow on another worker."""

import pytest

from dagwright.history.run_view import RunView
from tests.support.chaos import WorkerProcess, result_within, start_run
from tests.support.goals import call_node
from tests.support.order_shop import ShipmentWorkflow
from tests.support.run_views import wait_for_view
from tests.support.runs import bare_document, check_history, completed_node
from tests.support.server import LiveServer
from tests.support.shop_worker import shop_worker

pytestmark = pytest.mark.server


async def test_workflow_of_a_node_completes_while_the_worker_of_the_run_is_dead(
    private_server: LiveServer, worker: WorkerProcess
) -> None:
    client = await private_server.start()
    nodes = [
        call_node("ship", "ship", item="lamp", waits=True),
        call_node("notify", "echo", shipped="{{ship.result.shipped}}"),
    ]
    async with shop_worker(client) as tools:
        handle = await start_run(client, {"nodes": nodes}, run_id="order", foreign_tools=tools)

        def is_running(view: RunView) -> bool:
            return bool(view.document()["nodes"].get("ship", {}).get("status") == "running")

        await wait_for_view(client, "order", is_running)
        await worker.kill()
        await client.get_workflow_handle("order/ship").signal(ShipmentWorkflow.ship)
        await client.get_workflow_handle("order/ship").result()
        await worker.start()
        document = bare_document(await result_within(handle, 60))
    shipped = {"shipped": "lamp", "workflow": "order/ship"}
    assert document["nodes"] == {"ship": completed_node(shipped), "notify": completed_node({"shipped": "lamp"})}
    await check_history(await handle.fetch_history())
