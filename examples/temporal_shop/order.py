"""Order something: `python -m examples.temporal_shop.order lamp 2`."""

import asyncio
import os
import sys

from temporalio.client import Client

from examples.temporal_shop.order_workflows import Order, OrderWorkflow
from examples.temporal_shop.worker import TASK_QUEUE


async def main(item: str, count: int) -> None:
    """Start the workflow of the shop and wait for its result."""
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    handle = await client.start_workflow(
        OrderWorkflow.run, Order(item, count), id=f"order-{item}", task_queue=TASK_QUEUE
    )
    print(f"the order waits for a person: dagwright feedback {handle.id}-plan approve --approve")
    print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
