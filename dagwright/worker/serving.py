"""What a worker process serves: the workflows, the built-in activities and tools, and the tools of its owner."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from dagwright import __version__
from dagwright.activities.call_headers import ToolInterceptor
from dagwright.activities.call_model import model_activity
from dagwright.activities.call_starts import CallStarts
from dagwright.activities.call_tool import CallGuards, named_tool_activities
from dagwright.activities.compile_plan import CompileScope, compile_activity
from dagwright.activities.ended_runs import end_cancelled, find_ended
from dagwright.activities.maps import map_activities
from dagwright.activities.notify import notify_activity
from dagwright.activities.parked_calls import ParkedCalls
from dagwright.activities.read_model_plan import read_plan_activity
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.run_region import region_activity
from dagwright.activities.store_waits import await_store_activity
from dagwright.activities.stored_agents import stored_agent_activity
from dagwright.activities.stored_values import blob_activities, load_activity, load_values_activity
from dagwright.activities.unknown_tools import unknown_tool_activity
from dagwright.activities.values import Values
from dagwright.agents.finding import StoredAgentTools, stored_cards
from dagwright.agents.tools import declared_agents
from dagwright.core.plugins import plugin_packages
from dagwright.llm.clients import ModelClients
from dagwright.process import event_loop, event_loop_watchdog
from dagwright.process.drain import grace_s
from dagwright.server.namespace import StateAttribute
from dagwright.server.retained import claim_store
from dagwright.server.store_notes import publish_store
from dagwright.tools import ToolRegistry
from dagwright.toolset.tool_directory import tell_cards, tell_tools
from dagwright.toolset.toolset import Toolset
from dagwright.worker.missing_tools import keep_releasing
from dagwright.workflows.calls import CallInterceptor
from dagwright.workflows.converse import ConverseWorkflow
from dagwright.workflows.pursuing import RUN_WORKFLOWS
from dagwright.workflows.unknown_type import UnknownTypeWorkflow

STICKY_TIMEOUT = timedelta(seconds=1)
"""After a worker's death the run goes on elsewhere this much later (docs/internals/temporal.md)."""
WORKFLOW_TASKS = 8
"""Workflow tasks at once. They share one interpreter, and each has only so much time: of a hundred that replay together
after a restart none would end in time, and all of them would begin again (docs/decisions/0048)."""
HEARTBEAT_THROTTLE = timedelta(milliseconds=50)
"""The SDK would hold heartbeats back for up to 24 s, and with them the news that an activity was cancelled, and the
text of answers. The activities keep the pace (`activities/heartbeats.py`, `telling.py`); this is below what they ever
send."""
ACTIVITY_POLLERS = 10
"""More than the SDK's 5: a wide fan-out is handed out faster (docs/internals/temporal.md)."""
BUILD_ID = f"dagwright-{__version__}"
"""In the history, with each workflow task. The SDK's default hashes the code of every module, a second of CPU."""

_PASSED_THROUGH = (
    "dagwright",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "jsonpath",
    "jsonschema_rs",
    "cel",
    "structlog",
    "opentelemetry",
)
"""Modules that workflows share with the process: they are pure, and importing them for each run costs 7 ms."""


def create_workers(
    client: Client, toolset: Toolset, *, task_queue: str, models: ModelClients | None = None
) -> list[Worker]:
    """Returns the workers of a process: one for each queue, each with workflows, built-in tools and its own tools.

    Workflows are on the queues of tools too, because Temporal hands an activity out eagerly only to the worker that
    ended the workflow task, and only on the queue of the workflow.

    Args:
        models: asks models, and is closed by whoever made it; by default one that stays open as long as the process.
    """
    values, cache = Values(toolset.store), ResultCache(toolset.store)
    clients = models or ModelClients(toolset.models)
    activities_of = partial(
        named_tool_activities,
        environment=toolset.environment,
        values=values,
        cache=cache,
        guards=CallGuards(ParkedCalls(client), CallStarts(client)),
        models=clients,
    )
    built_in_activities = activities_of(toolset.built_in)
    shared = [
        load_values_activity(values),
        await_store_activity(toolset.store, values),
        find_ended,
        end_cancelled,
        compile_activity(
            CompileScope(
                toolset.declarations(),
                toolset.store,
                task_queue,
                rounds=toolset.rounds,
                added=lambda: declared_agents(stored_cards(toolset.database_url)).declarations(),
            ),
            has_state=StateAttribute(client).is_registered,
            notifies=toolset.hook is not None,
        ),
        notify_activity(toolset.hook),
        model_activity(clients, values),
        read_plan_activity(toolset.declarations(), values),
        load_activity(toolset.store),
        *blob_activities(toolset.store),
        *map_activities(values),
    ]

    stored_agents = stored_agent_activity(
        StoredAgentTools(toolset.database_url, toolset.environment),
        lambda spec: activities_of(ToolRegistry.of(spec))[spec.name],
    )

    limit_s = toolset.environment.drain_limit_s

    def create(queue: str) -> Worker:
        own = toolset.own.served_on(queue)
        tools = {**built_in_activities, **activities_of(own)}
        region = region_activity(
            toolset.built_in.merged(own), toolset.environment, store=toolset.store, values=values, cache=cache
        )
        unknown = unknown_tool_activity(client, stored_agents) if queue in toolset.own_queues else stored_agents
        return _create_worker(
            client, queue, activities=[*tools.values(), region, *shared, unknown], drain_limit_s=limit_s
        )

    return [create(queue) for queue in dict.fromkeys([task_queue, *toolset.own_queues])]


def _create_worker(
    client: Client, task_queue: str, *, activities: Sequence[Any], drain_limit_s: float | None
) -> Worker:
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*_PASSED_THROUGH, *plugin_packages())
    return Worker(
        client,
        task_queue=task_queue,
        activities=activities,
        workflows=[*RUN_WORKFLOWS, ConverseWorkflow, UnknownTypeWorkflow],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        interceptors=[CallInterceptor(), ToolInterceptor()],
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=grace_s(drain_limit_s)),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_concurrent_activity_task_polls=ACTIVITY_POLLERS,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        build_id=BUILD_ID,
    )


@asynccontextmanager
async def serving(client: Client, toolset: Toolset, *, task_queue: str) -> AsyncIterator[None]:
    """Serves runs and tools for as long as the block lasts.

    Raises:
        OtherStore: the other workers of the queue use another payload store.
        StoreUnavailable: large values can not be kept.
    """
    await publish_store(client, toolset.store, task_queue=task_queue)
    await claim_store(toolset.store, client)
    await tell_tools(toolset.store, toolset.own.declarations().values(), task_queue=task_queue)
    await tell_cards(toolset.store, toolset.agents)
    async with AsyncExitStack() as stack:
        stack.enter_context(event_loop.few_collections())
        models = await stack.enter_async_context(ModelClients(toolset.models))
        stack.push_async_callback(toolset.environment.kept.close)
        if toolset.servers is not None:
            stack.push_async_callback(toolset.servers.close)
        workers = create_workers(client, toolset, task_queue=task_queue, models=models)
        # Only from here on there are calls that a loop which stands still keeps from heartbeating.
        stack.enter_context(event_loop_watchdog.standing_told())
        for worker in workers:
            await stack.enter_async_context(worker)
        if toolset.own_queues:
            releasing = keep_releasing(client, toolset.own.served_names(), toolset.own_queues)
            await stack.enter_async_context(_beside(releasing))
        yield


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something for as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
