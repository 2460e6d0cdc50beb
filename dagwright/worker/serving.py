"""Workers of a process: the workflows, the built-in activities and tools, and the tools of the user."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from dagwright import __version__
from dagwright.core.expressions.condition_parser import compile_cel
from dagwright.llm.client import ModelClients
from dagwright.process import event_loop, event_loop_watchdog
from dagwright.process.drain import grace_s
from dagwright.server.retained import claim_store
from dagwright.server.store_notes import publish_store
from dagwright.settings import Settings
from dagwright.toolset.file_protection import record_protected
from dagwright.toolset.tool_directory import publish_cards, publish_tools
from dagwright.toolset.toolset import Toolset
from dagwright.worker.capacity import FULL_CAPACITY, WorkerCapacity
from dagwright.worker.missing_tools import keep_releasing
from dagwright.worker.parts import WORKFLOWS, Activity, create_activities, create_interceptors, with_shared_modules

STICKY_TIMEOUT = timedelta(seconds=1)
"""Delay after which the run of a dead worker continues on another worker (docs/contributing/internals/temporal.md)."""
HEARTBEAT_THROTTLE = timedelta(milliseconds=50)
"""The SDK delays heartbeats by up to 24 s, and with them cancellations and streamed text. The activities limit the rate
(`activities/heartbeats.py`, `activities/text_heartbeats.py`) to less than this interval allows."""
BUILD_ID = __version__
"""In the history, with each activity and twice with each workflow task, so it is short. The SDK's default hashes the
code of every module, a second of CPU."""


class OwnWorker(Interceptor):
    """Marks the workers that Dagwright creates: a plugin of their client leaves them as they are."""


def create_workers(
    client: Client,
    toolset: Toolset,
    *,
    task_queue: str,
    models: ModelClients | None = None,
    capacity: WorkerCapacity = FULL_CAPACITY,
) -> list[Worker]:
    """Create the workers of a process: one for each queue, each with workflows, built-in tools and its own tools.

    Workflows are on the queues of tools too, because Temporal hands an activity out eagerly only to the worker that
    ended the workflow task, and only on the queue of the workflow.

    Args:
        models: calls models, and is closed by its creator; by default one that stays open as long as the process.
        capacity: role of the process, and its slots for each queue.
    """
    clients = models or ModelClients(toolset.models)
    activities_on = create_activities(
        client, toolset, task_queue=task_queue, models=clients, activity_slots=capacity.activity_slots
    )
    limit_s = toolset.environment.drain_limit_s
    queues = dict.fromkeys([task_queue, *toolset.own_queues])
    return [
        _create_worker(client, queue, activities=activities_on(queue), drain_limit_s=limit_s, capacity=capacity)
        for queue in queues
    ]


def _create_worker(
    client: Client,
    task_queue: str,
    *,
    activities: Sequence[Activity],
    drain_limit_s: float | None,
    capacity: WorkerCapacity,
) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        activities=activities if capacity.serves_tools else (),
        workflows=WORKFLOWS if capacity.serves_workflows else (),
        workflow_runner=with_shared_modules(SandboxedWorkflowRunner()),
        interceptors=[*create_interceptors(), OwnWorker()],
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=grace_s(drain_limit_s)),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        build_id=BUILD_ID,
        **capacity.worker_options(),
    )


async def prepare_to_serve(settings: Settings, toolset: Toolset) -> None:
    """Check the settings of a worker and load its libraries, before it takes work.

    Raises:
        PricesUnreadable: the prices of models cannot be read.
    """
    toolset.models.prices()
    record_protected(settings, toolset.environment.protected)
    # Here and not in the workflow task that evaluates the first condition: the library takes long to import.
    await asyncio.to_thread(compile_cel, "true")


async def publish_toolset(client: Client, toolset: Toolset, *, task_queue: str) -> None:
    """Publish the payload store, the tools and the agents of a process for the other processes.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
    """
    await publish_store(client, toolset.store, task_queue=task_queue)
    await claim_store(toolset.store, client)
    await publish_tools(toolset.store, toolset.own.declarations().values(), task_queue=task_queue)
    await publish_cards(toolset.store, toolset.agents)


@asynccontextmanager
async def held_resources(toolset: Toolset, models: ModelClients) -> AsyncIterator[None]:
    """Close the model clients and MCP servers of a process when the block ends."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(models)
        stack.push_async_callback(toolset.environment.resources.close)
        if toolset.servers is not None:
            stack.push_async_callback(toolset.servers.close)
        yield


@asynccontextmanager
async def releasing_calls(client: Client, toolset: Toolset) -> AsyncIterator[None]:
    """Resume calls that wait for a tool of the process, as long as the block lasts."""
    if not toolset.own_queues:
        yield
        return
    async with running_task(keep_releasing(client, toolset.own.served_names(), toolset.own_queues)):
        yield


@asynccontextmanager
async def serving(
    client: Client, toolset: Toolset, *, task_queue: str, capacity: WorkerCapacity = FULL_CAPACITY
) -> AsyncIterator[None]:
    """Serve runs and tools while the block lasts, or those that the role of the capacity has.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
    """
    await publish_toolset(client, toolset, task_queue=task_queue)
    models = ModelClients(toolset.models)
    async with AsyncExitStack() as stack:
        stack.enter_context(event_loop.few_collections())
        await stack.enter_async_context(held_resources(toolset, models))
        workers = create_workers(client, toolset, task_queue=task_queue, models=models, capacity=capacity)
        # From here on, a blocked loop would stop heartbeats.
        stack.enter_context(event_loop_watchdog.blocked_loop_logged())
        for worker in workers:
            await stack.enter_async_context(worker)
        if capacity.serves_tools:
            await stack.enter_async_context(releasing_calls(client, toolset))
        yield


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something for as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
