"""The worker of the shop: `python -m examples.temporal_shop.worker`."""

import asyncio
import os

from temporalio.client import Client
from temporalio.worker import Worker

from dagwright import DagwrightPlugin, declare_activity, declare_workflow
from examples.temporal_shop.order_workflows import OrderWorkflow, ShipOrderWorkflow, reserve_stock

TASK_QUEUE = "shop"
TOOLS = (
    declare_activity("reserve_stock", TASK_QUEUE, effects="idempotent"),
    declare_workflow("ship_order", TASK_QUEUE, workflow="ShipOrderWorkflow"),
)


def create_worker(client: Client) -> Worker:
    """Create the worker of the shop; the plugin of the client adds the workflows and activities that run plans."""
    return Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[OrderWorkflow, ShipOrderWorkflow],
        activities=[reserve_stock],
    )


async def main() -> None:
    """Serve until the process is stopped."""
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, plugins=[DagwrightPlugin(tools=TOOLS)])
    await create_worker(client).run()


if __name__ == "__main__":
    asyncio.run(main())
