"""Pause calls of tools and agents that this worker does not have, until a worker has the tool or agent.

The queue of a tool or agent file keeps its name when the file changes, so a call may reach a worker whose version of
the file no longer has the tool, or does not have it yet. The server keeps the call, without using up its attempts,
until a worker that has the tool resumes it (`dagwright.worker.missing_tools`). This module must not import workflows.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import structlog
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from dagwright.activities.stored_agents import AgentMissing
from dagwright.core.boundary.wire import ERROR_TOOL_MISSING, PAUSED_FOR_MISSING_TOOL
from dagwright.core.model.tools import AGENT_PREFIX
from dagwright.server.tool_pauses import pause_call

_LOG = structlog.stdlib.get_logger("dagwright.activities.unknown_tools")
_RETRY_DELAY = timedelta(seconds=30)
"""Delay before the next attempt of a call that the server cannot pause."""

DynamicActivity = Callable[[Sequence[RawValue]], Awaitable[RawValue]]


def unknown_tool_activity(client: Client, call_stored_agent: DynamicActivity) -> DynamicActivity:
    """Return the dynamic activity for tools that the worker does not have.

    Args:
        call_stored_agent: handles calls of agents from the database; raises `AgentMissing` for
            unknown agents.
    """

    @activity.defn(dynamic=True)
    async def call_unknown_tool(arguments: Sequence[RawValue]) -> RawValue:
        info = activity.info()
        tool = info.activity_type
        if tool.startswith(AGENT_PREFIX):
            with suppress(AgentMissing):
                return await call_stored_agent(arguments)
        missing_tool = (
            f"agent {tool.removeprefix(AGENT_PREFIX)!r}" if tool.startswith(AGENT_PREFIX) else f"tool {tool!r}"
        )
        text = (
            f"{PAUSED_FOR_MISSING_TOOL}: the worker {client.identity} serves the queue {info.task_queue!r} "
            f"and has no {missing_tool}"
        )
        run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
        try:
            await pause_call(client, run, info.activity_id, reason=text)
        except RPCError as error:
            _LOG.warning("a call of a missing tool cannot be paused, so it is retried", tool=tool, error=str(error))
        raise ApplicationError(text, type=ERROR_TOOL_MISSING, next_retry_delay=_RETRY_DELAY)

    return call_unknown_tool
