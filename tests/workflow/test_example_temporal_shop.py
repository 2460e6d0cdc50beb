"""`examples/temporal_shop` as its README describes, with a person who approves the order."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.client.connecting import create_services
from dagwright.client.feedback.answer_sending import answer_request
from dagwright.client.feedback.open_requests import Answer
from dagwright.history.executions import RunNotFound
from dagwright.server import Connection
from dagwright.settings import Settings
from dagwright.worker.plugin import DagwrightPlugin
from examples.temporal_shop.order_workflows import Order, OrderWorkflow
from examples.temporal_shop.worker import TASK_QUEUE, TOOLS, create_worker
from tests.support.eventually import eventually
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


async def test_order_is_shipped_only_if_a_person_approves(server: LiveServer, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    client = await Client.connect(server.address, plugins=[DagwrightPlugin(tools=TOOLS, settings=settings)])
    runs = create_services(Connection(client, server.server, frozenset()), settings).runs

    async def is_waiting(run_id: str) -> bool:
        try:
            return (await runs.reader(run_id).read()).status == "waiting"
        except RunNotFound:
            return False

    async def place_order(name: str, *, is_approved: bool) -> str:
        handle = await client.start_workflow(OrderWorkflow.run, Order("lamp", 2), id=name, task_queue=TASK_QUEUE)
        await eventually(lambda: is_waiting(f"{name}-plan"))
        await answer_request(runs.feedback, f"{name}-plan", "approve", Answer({"approved": is_approved}))
        return await handle.result()

    async with create_worker(client):
        assert await place_order("order-1", is_approved=True) == "Your order is on its way: 2-LAMP"
        assert await place_order("order-2", is_approved=False) == "Your order was not approved."
        nodes = (await runs.reader("order-1-plan").read()).document()["nodes"]
    assert nodes["reserve"]["result"] == {"item": "lamp", "count": 2, "shelf": "shelf-4"}
    assert nodes["ship"]["result"] == {"tracking": "2-LAMP", "shipment": "order-1-plan/ship"}
