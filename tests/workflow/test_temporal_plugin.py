"""`DagwrightPlugin`: plans in the clients, workers and workflows of a Temporal application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker

from dagwright.client.client import Client as PlanClient
from dagwright.client.connecting import create_services
from dagwright.client.feedback.answer_sending import answer_request
from dagwright.client.feedback.open_requests import Answer
from dagwright.client.run_lists import RunFilter
from dagwright.client.services import Services
from dagwright.history.executions import RunNotFound
from dagwright.history.run_explainer import RunExplanation
from dagwright.plans.plan import Plan
from dagwright.server import Connection
from dagwright.server.store_notes import published_store
from dagwright.settings import Settings
from dagwright.store import StoreMismatch
from dagwright.tools import tool
from dagwright.toolset.tool_directory import find_published_tools
from dagwright.worker.plugin import DagwrightPlugin, PluginConflict
from dagwright.worker.serving import BUILD_ID
from tests.support.eventually import eventually
from tests.support.order_shop import (
    FailingOrderWorkflow,
    NotifyingOrderWorkflow,
    OrderWorkflow,
    XorCodec,
    notify,
    reserve,
)
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

_MAX_WAIT_S = 60.0
"""Maximum time for each step of a test."""
ENCRYPTING_CONVERTER = replace(DataConverter.default, payload_codec=XorCodec())


@tool(effects="pure")
def price(item: str, count: int) -> dict[str, Any]:
    """Return the price of some items."""
    return {"item": item, "price": 3 * count}


@tool(effects="read")
def catalogue(size: int) -> str:
    """Return a text of about `size` characters."""
    return "lamp " * (size // 5)


@tool(effects="pure")
def fail() -> None:
    """Fail with an error."""
    raise ValueError("broken for good")


PRICE_AND_APPROVAL_PLAN = {
    "title": "Order a secretlamp",
    "inputs": {"item": {"type": "string"}},
    "nodes": [
        {"id": "price", "tool": "price", "arguments": {"item": "{{PLACEHOLDER_item}}", "count": 4}},
        {"id": "approve", "human": {"type": "APPROVAL", "prompt": "Buy?"}, "depends_on": ["price"]},
    ],
    "output": "{{price.result}}",
}
PRICE_PLAN = {
    "nodes": [{"id": "price", "tool": "price", "arguments": {"item": "lamp", "count": 4}}],
    "output": "{{price.result}}",
}


@dataclass(frozen=True)
class Shop:
    client: Client
    services: Services
    task_queue: str
    plugin: DagwrightPlugin

    async def start_order(self, *arguments: Any, workflow: Any = OrderWorkflow) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            workflow.run, args=arguments, id=f"order-{uuid4().hex}", task_queue=self.task_queue
        )

    async def is_waiting(self, run_id: str) -> bool:
        try:
            return (await self.services.runs.reader(run_id).read()).status == "waiting"
        except RunNotFound:
            return False

    async def has_published(self, name: str) -> bool:
        return name in await find_published_tools(self.services.store, [name], task_queue=self.task_queue)

    async def check_replay(self, handle: WorkflowHandle[Any, Any]) -> None:
        replayer = Replayer(
            workflows=[OrderWorkflow, FailingOrderWorkflow],
            plugins=[self.plugin],
            data_converter=self.client.data_converter,
        )
        await replayer.replay_workflow(await handle.fetch_history())


@asynccontextmanager
async def open_shop(
    server: LiveServer, tmp_path: Path, *, converter: DataConverter = ENCRYPTING_CONVERTER, **options: Any
) -> AsyncIterator[Shop]:
    """Serve the workflows of an order application with a worker whose client has the plugin."""
    settings = Settings(state_dir=tmp_path)
    plugin = DagwrightPlugin(tools=[price, catalogue, fail], settings=settings, **options.pop("plugin", {}))
    client = await Client.connect(server.address, data_converter=converter, plugins=[plugin])
    task_queue = f"shop-{uuid4().hex}"
    workflows = [OrderWorkflow, FailingOrderWorkflow, NotifyingOrderWorkflow]
    async with Worker(client, task_queue=task_queue, workflows=workflows, **{"activities": [reserve], **options}):
        services = create_services(Connection(client, server.server, frozenset()), settings)
        yield Shop(client, services, task_queue, plugin)


async def test_plan_of_an_encrypting_application_can_be_listed_explained_and_answered(
    server: LiveServer, tmp_path: Path
) -> None:
    async with open_shop(server, tmp_path) as shop:
        order = await shop.start_order(PRICE_AND_APPROVAL_PLAN, {"item": "lamp"})
        run_id, runs = f"{order.id}-plan", shop.services.runs

        async def is_in_the_inbox() -> bool:
            page = await runs.inbox(limit=1_000)
            return [request.id for request in page.requests if request.request_ref.run_id == run_id] == ["approve"]

        await eventually(is_in_the_inbox)
        view = await runs.reader(run_id).read()
        assert (view.status, view.title) == ("waiting", "Order a secretlamp")
        assert isinstance(await runs.explain(run_id), RunExplanation)
        tags = {"order": order.id}
        listed_runs = await runs.list_runs(limit=10, run_filter=RunFilter(title=run_id, tags=tags, status="waiting"))
        assert [(run.run_id, run.title) for run in listed_runs] == [(run_id, "Order a secretlamp")]
        await answer_request(runs.feedback, run_id, "approve", Answer({"approved": True}))
        assert await order.result() == {"status": "completed", "output": {"item": "lamp", "price": 12}}
        document = (await runs.reader(run_id).read()).document()
        assert document["nodes"]["price"]["result"] == {"item": "lamp", "price": 12}
        for handle in (order, shop.client.get_workflow_handle(run_id)):
            history = await handle.fetch_history()
            assert b"secretlamp" not in b"".join(event.SerializeToString() for event in history.events)
            await shop.check_replay(handle)


async def test_plan_built_with_functions_runs_on_the_queue_of_the_plugin(server: LiveServer, tmp_path: Path) -> None:
    plan = Plan("Price")
    plan.output = plan.add(price, item="lamp", count=4)
    async with open_shop(server, tmp_path) as shop:
        settings = Settings(state_dir=tmp_path, task_queue=shop.task_queue)
        # Before the tool is published, the client would send calls of the tool to the queue of its module.
        await eventually(partial(shop.has_published, "price"))
        async with PlanClient.from_temporal(shop.client, settings=settings) as client:
            result = await asyncio.wait_for((await client.start(plan)).result(), _MAX_WAIT_S)
    assert result.output == {"item": "lamp", "price": 12}


async def test_worker_compiles_a_plan_in_the_dialect_of_the_input(server: LiveServer, tmp_path: Path) -> None:
    text = '1. calculator("6 * 7")'
    async with open_shop(server, tmp_path) as shop:
        run = await shop.client.start_workflow(
            "RunPlan", {"plan": text, "dialect": "llmcompiler"}, id=f"text-{uuid4()}", task_queue=shop.task_queue
        )
        assert (await run.result())["status"] == "completed"
        invalid_run = await shop.client.start_workflow(
            "RunPlan", {"plan": PRICE_PLAN, "dialect": "tasks"}, id=f"tasks-{uuid4()}", task_queue=shop.task_queue
        )
        with pytest.raises(WorkflowFailureError) as error:
            await invalid_run.result()
        assert "dag" in str(error.value.cause)


async def test_plan_in_yaml_with_a_large_output_completes(server: LiveServer, tmp_path: Path) -> None:
    plan = "nodes:\n- {id: all, tool: catalogue, arguments: {size: 400000}}\noutput: '{{all.result}}'\n"
    async with open_shop(server, tmp_path) as shop:
        order = await shop.start_order(plan, {})
        assert await order.result() == {"status": "completed", "output": "lamp " * 80_000}
        await shop.check_replay(order)


async def test_failed_plan_raises_its_typed_error(server: LiveServer, tmp_path: Path) -> None:
    failing_plan = {"nodes": [{"id": "broken", "tool": "fail"}]}
    async with open_shop(server, tmp_path, converter=DataConverter.default) as shop:
        rejected_result = await (await shop.start_order({"nodes": [{"id": "a", "tool": "pryce"}]}, {})).result()
        assert rejected_result["problems"] == ["unknown_tool"]
        failed_result = await (await shop.start_order(failing_plan, {})).result()
        assert (failed_result["code"], failed_result["problems"]) == ("PlanFailed", [])
        with pytest.raises(WorkflowFailureError) as error:
            await (await shop.start_order(failing_plan, workflow=FailingOrderWorkflow)).result()
        assert isinstance(error.value.cause, ApplicationError)
        assert "broken" in error.value.cause.message


async def test_cancelled_workflow_cancels_its_plan(server: LiveServer, tmp_path: Path) -> None:
    async with open_shop(server, tmp_path) as shop:
        order = await shop.start_order(PRICE_AND_APPROVAL_PLAN, {"item": "lamp"})
        child = shop.client.get_workflow_handle(f"{order.id}-plan")
        await eventually(lambda: shop.is_waiting(child.id))
        await order.cancel()
        with pytest.raises(WorkflowFailureError):
            await order.result()
        assert (await order.describe()).status is WorkflowExecutionStatus.CANCELED
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED
        assert (await shop.services.runs.reader(child.id).read()).status == "cancelled"
        await shop.check_replay(order)


async def test_worker_whose_activity_has_the_name_of_a_dagwright_activity_is_rejected(
    server: LiveServer, tmp_path: Path
) -> None:
    with pytest.raises(PluginConflict, match="'notify', which plans need too"):
        async with open_shop(server, tmp_path, activities=[notify]):
            pass


async def test_worker_with_a_different_payload_store_does_not_start(server: LiveServer, tmp_path: Path) -> None:
    task_queue = f"shop-{uuid4().hex}"

    async def create_worker(folder: str) -> Worker:
        plugin = DagwrightPlugin(settings=Settings(state_dir=tmp_path / folder))
        client = await Client.connect(server.address)
        return Worker(client, task_queue=task_queue, activities=[reserve], plugins=[plugin])

    async def has_published() -> bool:
        return await published_store(await Client.connect(server.address), task_queue) is not None

    async with await create_worker("first"):
        await eventually(has_published)
        with pytest.raises(StoreMismatch):
            async with await create_worker("second"):
                await asyncio.sleep(_MAX_WAIT_S)


async def _check_order(shop: Shop, plan_queue: str) -> None:
    order = await shop.start_order(PRICE_PLAN, plan_queue, workflow=NotifyingOrderWorkflow)
    assert await order.result() == ["received: hello", {"item": "lamp", "price": 12}]


async def test_plugin_with_a_separate_queue_keeps_activities_of_the_worker(server: LiveServer, tmp_path: Path) -> None:
    plan_queue = f"plans-{uuid4().hex}"
    async with open_shop(server, tmp_path, activities=[notify], plugin={"task_queue": plan_queue}) as shop:
        await _check_order(shop, plan_queue)


async def test_plan_queue_is_served_until_the_last_worker_ends(server: LiveServer, tmp_path: Path) -> None:
    plan_queue = f"plans-{uuid4().hex}"
    async with open_shop(server, tmp_path, activities=[notify], plugin={"task_queue": plan_queue}) as shop:
        second_queue = f"second-{uuid4().hex}"
        async with Worker(
            shop.client, task_queue=second_queue, workflows=[NotifyingOrderWorkflow], activities=[notify]
        ):
            pass
        await _check_order(shop, plan_queue)
    first_worker = Worker(
        shop.client, task_queue=f"first-{uuid4().hex}", workflows=[NotifyingOrderWorkflow], activities=[notify]
    )
    last_worker = Worker(
        shop.client, task_queue=shop.task_queue, workflows=[NotifyingOrderWorkflow], activities=[notify]
    )
    async with first_worker:
        await last_worker.__aenter__()
    await _check_order(shop, plan_queue)
    await last_worker.__aexit__(None, None, None)


async def test_second_plugin_of_a_worker_needs_a_separate_queue(server: LiveServer, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    client = await Client.connect(server.address)
    conflicting_plugins = [
        DagwrightPlugin(tools=[price], settings=settings),
        DagwrightPlugin(tools=[catalogue], settings=settings),
    ]
    with pytest.raises(PluginConflict, match="has another DagwrightPlugin: give all tools to one"):
        Worker(client, task_queue="shop", plugins=conflicting_plugins, build_id=BUILD_ID)
    plan_queue, task_queue = f"plans-{uuid4().hex}", f"shop-{uuid4().hex}"
    plugins = [
        DagwrightPlugin(tools=[price], settings=settings),
        DagwrightPlugin(tools=[catalogue], settings=settings, task_queue=plan_queue),
    ]
    list_plan = {"nodes": [{"id": "list", "tool": "catalogue", "arguments": {"size": 10}}], "output": "{{list.result}}"}
    async with Worker(client, task_queue=task_queue, workflows=[FailingOrderWorkflow], plugins=plugins):
        order = await client.start_workflow(
            FailingOrderWorkflow.run, PRICE_PLAN, id=f"a-{uuid4()}", task_queue=task_queue
        )
        assert await order.result() == {"item": "lamp", "price": 12}
        run = await client.start_workflow("RunPlan", {"plan": list_plan}, id=f"b-{uuid4()}", task_queue=plan_queue)
        assert (await run.result())["output"] == "lamp lamp "
