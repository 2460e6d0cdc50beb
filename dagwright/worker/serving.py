"""Workers of a process: the workflows, the built-in activities and tools, and the tools of the user.

`dagwright worker`, the public `Worker` and the plugin for existing workers compose the same parts: workflows,
activities, interceptors, and the sandbox that shares Dagwright modules. Each of the three has its own settings and
resources.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from dagwright import __version__
from dagwright.activities.batch_records import RecordsFactory
from dagwright.activities.call_batch import BatchSetup, CallSlots, batch_activity
from dagwright.activities.call_headers import ToolInterceptor
from dagwright.activities.call_limits import CallLimits
from dagwright.activities.call_model import model_activity
from dagwright.activities.call_starts import CallStarts
from dagwright.activities.call_tool import CallGuards, ToolActivity, activities_of_tools, callable_tools
from dagwright.activities.compile_plan import CompileScope, compile_activity
from dagwright.activities.deferral import Deferrals
from dagwright.activities.detached_calls import DetachedCalls
from dagwright.activities.ended_runs import delete_execution, end_cancelled_run, find_ended_runs
from dagwright.activities.map_items import map_activities
from dagwright.activities.notify import notify_activity
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.read_model_plan import read_plan_activity
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.run_output import output_activity
from dagwright.activities.run_region import region_activity
from dagwright.activities.store_retry import await_store_activity
from dagwright.activities.stored_agents import stored_agent_activity
from dagwright.activities.stored_values import blob_activities, load_plan_activity, load_values_activity
from dagwright.activities.unknown_tools import unknown_tool_activity
from dagwright.activities.values import LargeValues
from dagwright.agents.agent_calls import declare_agents
from dagwright.agents.agent_database import StoredAgentTools, stored_cards
from dagwright.core.expressions import query_analysis  # noqa: F401 - so that no workflow task has to import it
from dagwright.core.expressions.condition_parser import compile_cel
from dagwright.core.model.call_limits import CallLimit, Subject
from dagwright.core.plugins import plugin_packages
from dagwright.llm.client import ModelClients
from dagwright.process import event_loop, event_loop_watchdog
from dagwright.process.drain import grace_s
from dagwright.server.namespace import SearchAttributeCheck
from dagwright.server.namespace_retention import claim_store
from dagwright.server.store_notes import publish_store
from dagwright.settings import ACTIVITY_SLOTS, Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.file_protection import record_protected_paths
from dagwright.toolset.tool_directory import publish_cards, publish_tools
from dagwright.toolset.toolset import Toolset
from dagwright.worker.capacity import DEFAULT_CAPACITY, WorkerCapacity
from dagwright.worker.missing_tools import release_calls_periodically
from dagwright.workflows.activity_calls import CallInterceptor
from dagwright.workflows.call_limit import CallLimitWorkflow
from dagwright.workflows.run_plan import RUN_WORKFLOWS
from dagwright.workflows.session import SessionWorkflow
from dagwright.workflows.unknown_type import UnknownTypeWorkflow

SHARED_MODULES = (
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

WORKFLOWS: Sequence[type] = (*RUN_WORKFLOWS, SessionWorkflow, CallLimitWorkflow, UnknownTypeWorkflow)
"""The last workflow is dynamic: it ends executions of types that the worker does not have."""

Activity = Callable[..., Any]


def create_interceptors() -> list[Interceptor]:
    """Create the interceptors that send and read the headers of calls."""
    return [CallInterceptor(), ToolInterceptor()]


def with_shared_modules(runner: WorkflowRunner) -> WorkflowRunner:
    """Return a workflow runner whose sandbox shares the pure modules; a runner without a sandbox does not change."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    restrictions = runner.restrictions.with_passthrough_modules(*SHARED_MODULES, *plugin_packages())
    return replace(runner, restrictions=restrictions)


def create_activities(
    client: Client, toolset: Toolset, *, task_queue: str, models: ModelClients, activity_slots: int = ACTIVITY_SLOTS
) -> Callable[[str], list[Activity]]:
    """Create the activities of a process; return a function from a queue to its activities.

    The last activity of a queue is dynamic: it handles calls of tools that the worker does not have.

    Args:
        task_queue: queue of the workflows.
        models: clients for model calls; the caller closes them.
        activity_slots: maximum number of concurrent calls in batches, in addition to the slots of the workers.
    """
    values, cache = LargeValues(toolset.store), ResultCache(toolset.store)
    paused_calls, detached_calls = PausedCalls(client), DetachedCalls()
    records_factory = RecordsFactory(toolset.store, client)
    slots, deferrals = CallSlots(activity_slots), Deferrals(client)
    limits = CallLimits(client, declared_limits(toolset), task_queue=task_queue)
    tools_of = partial(
        callable_tools,
        environment=toolset.environment,
        values=values,
        cache=cache,
        guards=CallGuards(paused_calls, CallStarts(client), detached_calls, deferrals, limits),
        models=models,
    )

    def tool_activities(registry: ToolRegistry) -> dict[str, ToolActivity]:
        return activities_of_tools(tools_of(registry))

    built_in = tool_activities(toolset.built_in)
    model_call = model_activity(models, values, limits=limits, deferrals=deferrals)
    shared_activities = [*_shared_activities(client, toolset, values, task_queue=task_queue), model_call]
    stored_agents = stored_agent_activity(
        StoredAgentTools(toolset.database_url, toolset.environment),
        lambda spec: tool_activities(ToolRegistry.of(spec))[spec.name],
    )

    def activities_of_queue(queue: str) -> list[Activity]:
        user_tools = toolset.user_tools.tools_on_queue(queue)
        batch_tools = {**tools_of(toolset.built_in), **tools_of(user_tools)}
        batch_call = batch_activity(
            BatchSetup(batch_tools, records_factory.records_of, slots, paused_calls, detached_calls, limits)
        )
        region_call = region_activity(
            toolset.built_in.merge(user_tools), toolset.environment, store=toolset.store, values=values, cache=cache
        )
        is_tool_queue = queue in toolset.user_queues
        dynamic_activity = unknown_tool_activity(client, stored_agents) if is_tool_queue else stored_agents
        tool_calls = {**built_in, **tool_activities(user_tools)}.values()
        return [*tool_calls, region_call, batch_call, *shared_activities, dynamic_activity]

    return activities_of_queue


def declared_limits(toolset: Toolset) -> Mapping[Subject, CallLimit]:
    """Return the limits that a process declares; limits in the settings override limits of its tools."""
    tools = toolset.built_in.merge(toolset.user_tools).python_tools()
    tool_limits = {Subject("tool", spec.name): spec.limit for spec in tools if spec.limit is not None}
    return {**tool_limits, **toolset.limits}


def _shared_activities(client: Client, toolset: Toolset, values: LargeValues, *, task_queue: str) -> list[Activity]:
    """Create the activities that every queue has."""
    scope = CompileScope(
        toolset.declarations(),
        toolset.store,
        task_queue,
        rounds_limits=toolset.rounds,
        load_stored_agents=lambda: declare_agents(stored_cards(toolset.database_url)).declarations(),
    )
    return [
        load_values_activity(values),
        await_store_activity(toolset.store, values),
        find_ended_runs,
        end_cancelled_run,
        delete_execution,
        compile_activity(
            scope,
            check_search_attributes=SearchAttributeCheck(client).is_registered,
            has_webhook=toolset.webhook is not None,
        ),
        notify_activity(toolset.webhook),
        read_plan_activity(toolset.declarations(), values),
        load_plan_activity(toolset.store),
        output_activity(client, toolset.store),
        *blob_activities(toolset.store),
        *map_activities(values),
    ]


STICKY_TIMEOUT = timedelta(seconds=1)
"""Delay after which the run of a dead worker continues on another worker (docs/contributing/internals/temporal.md)."""
HEARTBEAT_THROTTLE = timedelta(milliseconds=50)
"""With the SDK's default, heartbeats, cancellations and streamed text arrive up to 24 s late. The activities themselves
send heartbeats at longer intervals (`activities/heartbeats.py`, `activities/text_heartbeats.py`)."""
BUILD_ID = __version__
"""The build ID is in the history with each activity and twice with each workflow task, so it is short. The SDK's
default hashes the code of every module, which takes a second of CPU."""


class DagwrightWorkerMark(Interceptor):
    """Marks the workers that Dagwright creates, so that a plugin of their client does not change them."""


def create_workers(
    client: Client,
    toolset: Toolset,
    *,
    task_queue: str,
    models: ModelClients | None = None,
    capacity: WorkerCapacity = DEFAULT_CAPACITY,
) -> list[Worker]:
    """Create the workers of a process: one for each queue, each with workflows, built-in tools and the queue's tools.

    The queues of tools have workflows too, so that activities can start eagerly: Temporal starts an activity eagerly
    only on the worker that ended the workflow task, and only on the queue of the workflow.

    Args:
        models: clients for model calls; the caller closes them. By default, new clients are created and never closed.
        capacity: role of the process, and its slots for each queue.
    """
    clients = models or ModelClients(toolset.models)
    activities_of_queue = create_activities(
        client, toolset, task_queue=task_queue, models=clients, activity_slots=capacity.activity_slots
    )
    drain_limit_s = toolset.environment.drain_limit_s
    queues = dict.fromkeys([task_queue, *toolset.user_queues])
    return [
        _create_worker(
            client, queue, activities=activities_of_queue(queue), drain_limit_s=drain_limit_s, capacity=capacity
        )
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
        interceptors=[*create_interceptors(), DagwrightWorkerMark()],
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=grace_s(drain_limit_s)),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        build_id=BUILD_ID,
        **capacity.worker_options(),
    )


async def prepare_to_serve(settings: Settings, toolset: Toolset) -> None:
    """Check the settings of a worker and load its libraries, before it accepts work.

    Raises:
        PricesUnreadable: the prices of models cannot be read.
    """
    toolset.models.prices()
    record_protected_paths(settings, toolset.environment.protected_paths)
    # Import the library, which takes long, before a workflow task evaluates the first condition.
    await asyncio.to_thread(compile_cel, "true")


async def publish_toolset(client: Client, toolset: Toolset, *, task_queue: str) -> None:
    """Publish the payload store, the tools and the agents of a process for the other processes.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
    """
    await publish_store(client, toolset.store, task_queue=task_queue)
    await claim_store(toolset.store, client)
    await publish_tools(toolset.store, toolset.user_tools.declarations().values(), task_queue=task_queue)
    await publish_cards(toolset.store, toolset.agents)


@asynccontextmanager
async def closing_resources(toolset: Toolset, models: ModelClients) -> AsyncIterator[None]:
    """Close the model clients and MCP servers of a process when the block ends."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(models)
        stack.push_async_callback(toolset.environment.resources.close)
        if toolset.servers is not None:
            stack.push_async_callback(toolset.servers.close)
        yield


@asynccontextmanager
async def releasing_calls(client: Client, toolset: Toolset) -> AsyncIterator[None]:
    """Until the block ends, release the calls that wait for a tool of the process."""
    if not toolset.user_queues:
        yield
        return
    async with running_task(release_calls_periodically(client, toolset.user_tools.served_names(), toolset.user_queues)):
        yield


@asynccontextmanager
async def serving(
    client: Client, toolset: Toolset, *, task_queue: str, capacity: WorkerCapacity = DEFAULT_CAPACITY
) -> AsyncIterator[None]:
    """Serve runs and tools until the block ends; with a role in `capacity`, only runs or only tools.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
    """
    await publish_toolset(client, toolset, task_queue=task_queue)
    models = ModelClients(toolset.models)
    async with AsyncExitStack() as stack:
        stack.enter_context(event_loop.fewer_garbage_collections())
        await stack.enter_async_context(closing_resources(toolset, models))
        workers = create_workers(client, toolset, task_queue=task_queue, models=models, capacity=capacity)
        # From here on, a blocked loop would stop heartbeats.
        stack.enter_context(event_loop_watchdog.logging_blocked_loop())
        for worker in workers:
            await stack.enter_async_context(worker)
        if capacity.serves_tools:
            await stack.enter_async_context(releasing_calls(client, toolset))
        yield


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine as a task until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
