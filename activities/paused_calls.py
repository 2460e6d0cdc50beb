"""Pause calls of paused tools before the calls have any effect.

If the tool of an attempt is paused, the attempt requests that the server pauses the activity, and then fails. Until the
call is resumed, the server keeps the call without a slot, a timer or an event. This module must not import workflows.
"""

import asyncio
import time

import structlog
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.server.tool_pauses import PAUSE_CACHE_S, ToolPause, find_tool_pause, pause_call, unpause_call

_LOG = structlog.stdlib.get_logger("dagwright.activities.paused_calls")


class PausedCalls:
    """Pause the calls of paused tools; cache which tools are paused. Use this object on one event loop only.

    If the server does not answer the query, the tool counts as not paused.

    Args:
        client: the worker's client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queries: dict[str, tuple[float, asyncio.Task[ToolPause | None]]] = {}
        """Tool -> the time of the last query, and the query."""

    async def is_paused(self, tool: str) -> bool:
        """Return whether a tool is paused."""
        return await self._cached_pause(tool) is not None

    async def pause_if_tool_is_paused(self, tool: str) -> ToolPause | None:
        """Pause the current activity if its tool is paused; the attempt must then fail.

        Returns:
            The pause of the tool; `None` if the call may proceed.
        """
        cached_pause = await self._cached_pause(tool)
        if cached_pause is None:
            return None
        try:
            return await self._pause(tool)
        except RPCError as error:
            _LOG.warning("a call of a paused tool could not be paused, so it is retried", tool=tool, error=str(error))
            return cached_pause

    async def _pause(self, tool: str) -> ToolPause | None:
        # The cached state may be some seconds old.
        pause = await find_tool_pause(self._client, tool)
        if pause is None:
            return None
        info = activity.info()
        run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
        await pause_call(self._client, run, info.activity_id, reason=pause.message)
        if await find_tool_pause(self._client, tool) is not None:
            return pause
        # The tool was resumed while this call was being paused, so the resume may not have included this call.
        await unpause_call(self._client, run, info.activity_id)
        return None

    async def _cached_pause(self, tool: str) -> ToolPause | None:
        now = time.monotonic()
        queried_at, query = self._queries.get(tool, (0.0, None))
        if query is None or now - queried_at > PAUSE_CACHE_S:
            query = asyncio.create_task(self._query(tool))
            self._queries[tool] = now, query
        return query.result() if query.done() else await asyncio.shield(query)

    async def _query(self, tool: str) -> ToolPause | None:
        try:
            return await find_tool_pause(self._client, tool)
        except RPCError as error:
            _LOG.warning("the query for the pause of a tool failed", tool=tool, error=str(error))
            return None
