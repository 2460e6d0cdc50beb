"""The workflows and the activity of the shop; `OrderWorkflow` runs a plan."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from dagwright import ChildRunFailed, execute_plan
    from examples.temporal_shop.plan import ORDER_PLAN


@dataclass
class Order:
    """An order of a customer."""

    item: str
    count: int


@workflow.defn
class OrderWorkflow:
    """Processes an order with a plan, which people can read, watch and change."""

    @workflow.run
    async def run(self, order: Order) -> str:
        """Run the plan of the order as a child workflow, and return the message to the customer."""
        inputs = {"item": order.item, "count": order.count}
        try:
            result = await execute_plan(ORDER_PLAN, inputs=inputs, run_id=f"{workflow.info().workflow_id}-plan")
        except ChildRunFailed as error:
            return f"Your order was not shipped: {error.message}"
        tracking_code = result.output["tracking"]
        return f"Your order is on its way: {tracking_code}" if tracking_code else "Your order was not approved."


@workflow.defn
class ShipOrderWorkflow:
    """Ships an order, which may take days; the node that calls this workflow waits until it ends."""

    @workflow.run
    async def run(self, parcel: dict[str, Any]) -> dict[str, Any]:
        """Wait for the truck, and return a tracking code and the ID of this workflow."""
        await workflow.sleep(timedelta(seconds=1))
        return {"tracking": f"{parcel['count']}-{parcel['item']}".upper(), "shipment": workflow.info().workflow_id}


@activity.defn
async def reserve_stock(order: dict[str, Any]) -> dict[str, Any]:
    """Reserve items; repeated calls with the same workflow ID and activity ID must reserve the items only once."""
    return {"item": order["item"], "count": order["count"], "shelf": f"shelf-{len(order['item'])}"}
