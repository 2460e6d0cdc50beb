"""Release paused calls: a worker with a tool releases the calls that a worker without the tool has paused.

If a worker receives a call of an unknown tool, it lets the server pause the call
(`dagwright.activities.unknown_tools`). Every worker with user tools looks for such calls when it starts and
periodically after that: in a rolling deployment, old workers pause calls while new workers already have the tool.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import timedelta

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import UnpauseActivityRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.protocol.run_labels import is_queryable
from dagwright.server.tool_pauses import PAUSED_STATES

SEARCH_INTERVAL_S = 20.0
"""Average interval, in seconds, between two searches of a worker."""
_TOOLS_PER_QUERY = 50
_JITTER = timedelta(seconds=5)
"""Period over which the calls of a run start again."""
_RPC_TIMEOUT = timedelta(seconds=5)
_LOG = structlog.stdlib.get_logger(__name__)


async def release_calls_periodically(client: Client, tools: Collection[str], queues: Collection[str]) -> None:
    """Release the paused calls of these tools periodically, until cancelled.

    Args:
        tools: names and aliases of the tools that the worker has.
        queues: task queues on which the worker serves the tools.
    """
    while True:
        try:
            await release_calls(client, tools, queues)
        except RPCError as error:
            _LOG.warning("the search for calls that wait for a tool failed", error=str(error))
        await asyncio.sleep(SEARCH_INTERVAL_S * random.uniform(0.75, 1.25))


async def release_calls(client: Client, tools: Collection[str], queues: Collection[str]) -> int:
    """Release the calls that were paused because a worker did not have one of these tools; return their number."""
    released_count = 0
    async for run in _runs_with_paused_calls(client, sorted(tools)):
        description = run.raw_description
        run_queue = description.execution_config.task_queue.name
        for call in description.pending_activities:
            queue = call.activity_options.task_queue.name or run_queue
            if _is_paused_for_missing_tool(call) and call.activity_type.name in tools and queue in queues:
                await _release(client, run, call)
                released_count += 1
    if released_count:
        _LOG.info("calls that waited for a tool continue", calls=released_count)
    return released_count


def _is_paused_for_missing_tool(call: PendingActivityInfo) -> bool:
    return call.state in PAUSED_STATES and call.pause_info.manual.reason.startswith(wire.PAUSED_FOR_MISSING_TOOL)


async def _runs_with_paused_calls(client: Client, tools: Sequence[str]) -> AsyncIterator[WorkflowExecutionDescription]:
    running_query = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running'"
    described_ids: set[str] = set()
    for query in _queries(running_query, tools):
        try:
            listed_runs = [run async for run in client.list_workflows(query)]
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            # This server does not index paused calls.
            listed_runs = [run async for run in client.list_workflows(running_query)]
        for run in listed_runs:
            if run.run_id in described_ids:
                continue
            described_ids.add(run.run_id)
            try:
                yield await client.get_workflow_handle(run.id, run_id=run.run_id).describe(rpc_timeout=_RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise


def _queries(running_query: str, tools: Sequence[str]) -> Iterator[str]:
    if not all(map(is_queryable, tools)):
        # The server indexes names unescaped, so a query cannot contain a name with a quote, for example.
        yield running_query
        return
    for start in range(0, len(tools), _TOOLS_PER_QUERY):
        values = ", ".join(f"'property:activityType={name}'" for name in tools[start : start + _TOOLS_PER_QUERY])
        yield f"{running_query} AND TemporalPauseInfo IN ({values})"


async def _release(client: Client, run: WorkflowExecutionDescription, call: PendingActivityInfo) -> None:
    """Release one call; its attempts on workers without the tool are not counted."""
    request = UnpauseActivityRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=run.id, run_id=run.run_id),
        identity=client.identity,
        id=call.activity_id,
        reset_attempts=True,
    )
    request.jitter.FromTimedelta(_JITTER)
    try:
        await client.workflow_service.unpause_activity(request, timeout=_RPC_TIMEOUT)
    except RPCError as error:
        # The call or its run has ended meanwhile, or another worker was faster.
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
