"""A user's Temporal application whose workflows run plans. Its code runs in the sandbox of the SDK."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from dagwright.workflows.child import ChildRunFailed, execute_plan


@workflow.defn
class OrderWorkflow:
    """Run a plan with inputs. Both arguments must arrive unchanged."""

    @workflow.run
    async def run(self, plan: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the result, or the failure as data."""
        try:
            order = workflow.info().workflow_id
            result = await execute_plan(plan, inputs=inputs, run_id=f"{order}-plan", tags={"order": order})
        except ChildRunFailed as error:
            problems = [problem["code"] for problem in error.problems]
            return {"failed": error.message, "code": error.type, "problems": problems}
        return {"status": result.status, "output": result.output}


@workflow.defn
class FailingOrderWorkflow:
    """Run a plan, and fail with the failure of the plan."""

    @workflow.run
    async def run(self, plan: Any) -> Any:
        return (await execute_plan(plan)).output


@workflow.defn
class NotifyingOrderWorkflow:
    """Call the application's activity `notify`, and run a plan on the queue `plan_queue`."""

    @workflow.run
    async def run(self, plan: Any, plan_queue: str) -> Any:
        """Return the results of the activity and the plan."""
        result = await workflow.execute_activity("notify", "hello", start_to_close_timeout=timedelta(seconds=30))
        return [result, (await execute_plan(plan, task_queue=plan_queue)).output]


@workflow.defn
class ShipmentWorkflow:
    """A workflow that plans call: it ships an item."""

    def __init__(self) -> None:
        self._may_ship = False

    @workflow.run
    async def run(self, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("fails"):
            raise ApplicationError("no truck", type="NoTruck", non_retryable=bool(order.get("is_permanent")))
        if order.get("waits"):
            await workflow.wait_condition(lambda: self._may_ship)
        return {"shipped": order["item"], "workflow": workflow.info().workflow_id}

    @workflow.signal
    def ship(self) -> None:
        self._may_ship = True


@activity.defn(name="reserve")
async def reserve(order: dict[str, Any]) -> dict[str, Any]:
    return {"reserved": order["item"]}


@activity.defn(name="notify")
async def notify(text: str) -> str:
    """An activity with the name of one of Dagwright's activities."""
    await asyncio.sleep(0)
    return f"received: {text}"


class XorCodec(PayloadCodec):
    """Encryption that is sufficient for a test."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        metadata = {"encoding": b"binary/xor"}
        return [Payload(metadata=metadata, data=_xor(payload.SerializeToString())) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; return other payloads unchanged, as in Temporal's samples."""
        return [
            Payload.FromString(_xor(payload.data)) if payload.metadata["encoding"] == b"binary/xor" else payload
            for payload in payloads
        ]


def _xor(data: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in data)
