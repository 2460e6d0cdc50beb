"""The parts of a worker: workflows, activities, interceptors, and the sandbox that shares Dagwright's modules.

`dagwright worker`, the public `Worker` and the plugin for existing workers compose the same parts, each with its own
settings and resources.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from dagwright.activities.batch_records import BatchRecords
from dagwright.activities.call_batch import BatchSetup, CallSlots, batch_activity
from dagwright.activities.call_headers import ToolInterceptor
from dagwright.activities.call_limits import CallLimits
from dagwright.activities.call_model import model_activity
from dagwright.activities.call_starts import CallStarts
from dagwright.activities.call_tool import CallGuards, ToolActivity, activities_of_tools, callable_tools
from dagwright.activities.compile_plan import CompileScope, compile_activity
from dagwright.activities.deferral import Deferrals
from dagwright.activities.detached_calls import DetachedCalls
from dagwright.activities.ended_runs import delete_execution, end_cancelled, find_ended
from dagwright.activities.map_items import map_activities
from dagwright.activities.notify import notify_activity
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.read_model_plan import read_plan_activity
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.run_output import output_activity
from dagwright.activities.run_region import region_activity
from dagwright.activities.store_retry import await_store_activity
from dagwright.activities.stored_agents import stored_agent_activity
from dagwright.activities.stored_values import blob_activities, load_activity, load_values_activity
from dagwright.activities.unknown_tools import unknown_tool_activity
from dagwright.activities.values import LargeValues
from dagwright.agents.agent_calls import declared_agents
from dagwright.agents.agent_database import StoredAgentTools, stored_cards
from dagwright.core.expressions import query_analysis  # noqa: F401 - not first in a workflow task
from dagwright.core.model.call_limits import CallLimit, Subject
from dagwright.core.plugins import plugin_packages
from dagwright.llm.client import ModelClients
from dagwright.server.namespace import StateAttribute
from dagwright.settings import ACTIVITY_SLOTS
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import Toolset
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
"""The last one is dynamic: it ends executions of types that the worker does not have."""

Activity = Callable[..., Any]


def create_interceptors() -> list[Interceptor]:
    """Create the interceptors that carry the headers of calls."""
    return [CallInterceptor(), ToolInterceptor()]


def with_shared_modules(runner: WorkflowRunner) -> WorkflowRunner:
    """Return a workflow runner whose sandbox shares the pure modules; a runner without a sandbox stays as it is."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    shared = runner.restrictions.with_passthrough_modules(*SHARED_MODULES, *plugin_packages())
    return replace(runner, restrictions=shared)


def create_activities(
    client: Client, toolset: Toolset, *, task_queue: str, models: ModelClients, activity_slots: int = ACTIVITY_SLOTS
) -> Callable[[str], list[Activity]]:
    """Create the activities of a process; return the function that lists those of a queue.

    The last activity of a list is dynamic: it handles calls of tools that the worker does not have.

    Args:
        task_queue: queue of the workflows.
        models: calls models; the caller closes it.
        activity_slots: calls at once; those in batches have as many slots of their own.
    """
    values, cache = LargeValues(toolset.store), ResultCache(toolset.store)
    paused, detached, records = PausedCalls(client), DetachedCalls(), BatchRecords(toolset.store, client)
    slots, deferrals = CallSlots(activity_slots), Deferrals(client)
    limits = CallLimits(client, declared_limits(toolset), task_queue=task_queue)
    tools_of = partial(
        callable_tools,
        environment=toolset.environment,
        values=values,
        cache=cache,
        guards=CallGuards(paused, CallStarts(client), detached, deferrals, limits),
        models=models,
    )

    def activities_of(registry: ToolRegistry) -> dict[str, ToolActivity]:
        return activities_of_tools(tools_of(registry))

    built_in = activities_of(toolset.built_in)
    model = model_activity(models, values, limits=limits, deferrals=deferrals)
    shared = [*_shared_activities(client, toolset, values, task_queue=task_queue), model]
    stored_agents = stored_agent_activity(
        StoredAgentTools(toolset.database_url, toolset.environment),
        lambda spec: activities_of(ToolRegistry.of(spec))[spec.name],
    )

    def activities_on(queue: str) -> list[Activity]:
        own = toolset.own.served_on(queue)
        batch_tools = {**tools_of(toolset.built_in), **tools_of(own)}
        batch = batch_activity(BatchSetup(batch_tools, records.of, slots, paused, detached, limits))
        region = region_activity(
            toolset.built_in.merged(own), toolset.environment, store=toolset.store, values=values, cache=cache
        )
        unknown = unknown_tool_activity(client, stored_agents) if queue in toolset.own_queues else stored_agents
        return [*{**built_in, **activities_of(own)}.values(), region, batch, *shared, unknown]

    return activities_on


def declared_limits(toolset: Toolset) -> Mapping[Subject, CallLimit]:
    """Return the limits that a process declares; those of the settings override those of its tools."""
    tools = toolset.built_in.merged(toolset.own).python_tools()
    of_tools = {Subject("tool", spec.name): spec.limit for spec in tools if spec.limit is not None}
    return {**of_tools, **toolset.limits}


def _shared_activities(client: Client, toolset: Toolset, values: LargeValues, *, task_queue: str) -> list[Activity]:
    """Create the activities that every queue has."""
    scope = CompileScope(
        toolset.declarations(),
        toolset.store,
        task_queue,
        rounds=toolset.rounds,
        added=lambda: declared_agents(stored_cards(toolset.database_url)).declarations(),
    )
    return [
        load_values_activity(values),
        await_store_activity(toolset.store, values),
        find_ended,
        end_cancelled,
        delete_execution,
        compile_activity(scope, has_state=StateAttribute(client).is_registered, notifies=toolset.webhook is not None),
        notify_activity(toolset.webhook),
        read_plan_activity(toolset.declarations(), values),
        load_activity(toolset.store),
        output_activity(client, toolset.store),
        *blob_activities(toolset.store),
        *map_activities(values),
    ]
