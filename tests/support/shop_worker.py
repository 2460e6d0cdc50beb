"""Serve the workflow and the activity of the order shop, and declare both as tools."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

from temporalio.client import Client
from temporalio.worker import Worker

from dagwright.core.model.tools import ToolDeclaration
from dagwright.tools import declare_activity, declare_workflow
from tests.support.order_shop import ShipmentWorkflow, reserve


@asynccontextmanager
async def shop_worker(client: Client) -> AsyncIterator[Mapping[str, ToolDeclaration]]:
    """Serve workflow and activity with a worker that does not use Dagwright; yield the declarations for plans."""
    queue = f"foreign-{uuid4().hex}"
    specs = [
        declare_workflow("ship", queue, workflow="ShipmentWorkflow"),
        declare_workflow("try_ship", queue, workflow="ShipmentWorkflow", effects="idempotent", max_attempts=2),
        declare_activity("reserve", queue, effects="idempotent"),
    ]
    async with Worker(client, task_queue=queue, workflows=[ShipmentWorkflow], activities=[reserve]):
        yield {spec.name: spec.declaration for spec in specs}
