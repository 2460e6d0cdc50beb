"""Holds calls of parked tools back, before anything of them has happened.

The attempt that finds its tool paused lets the server pause its activity and fails; the server keeps the call, without
a slot, a timer or an event, until it is unpaused. This module must not import workflows.
"""

import asyncio
import time

import structlog
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.server.tool_pauses import FRESH_S, ToolPause, find_tool_pause, pause_call, unpause_call

_LOG = structlog.stdlib.get_logger("dagwright.activities.paused_calls")


class PausedCalls:
    """What a worker knows of parked tools; belongs to one event loop.

    A server that does not tell parks nothing: without it no call would end either.

    Args:
        client: of the worker.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looks: dict[str, tuple[float, asyncio.Task[ToolPause | None]]] = {}
        """Tool -> when the last look began, and the look."""

    async def hold_back(self, tool: str) -> ToolPause | None:
        """Pauses the activity that this is called in if its tool is parked; the attempt has to fail then.

        Returns:
            Who parked the tool; `None` if the call is to be made.
        """
        known = await self._known(tool)
        if known is None:
            return None
        try:
            return await self._pause(tool)
        except RPCError as error:
            _LOG.warning("a call of a parked tool is not held back, but tried again", tool=tool, error=str(error))
            return known

    async def _pause(self, tool: str) -> ToolPause | None:
        # What is known may be some seconds old.
        parked = await find_tool_pause(self._client, tool)
        if parked is None:
            return None
        info = activity.info()
        run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
        await pause_call(self._client, run, info.activity_id, reason=parked.message)
        if await find_tool_pause(self._client, tool) is not None:
            return parked
        # It was unparked at this moment, and nobody would come for this call any more.
        await unpause_call(self._client, run, info.activity_id)
        return None

    async def _known(self, tool: str) -> ToolPause | None:
        now = time.monotonic()
        looked_at, look = self._looks.get(tool, (0.0, None))
        if look is None or now - looked_at > FRESH_S:
            look = asyncio.create_task(self._look(tool))
            self._looks[tool] = now, look
        return look.result() if look.done() else await asyncio.shield(look)

    async def _look(self, tool: str) -> ToolPause | None:
        try:
            return await find_tool_pause(self._client, tool)
        except RPCError as error:
            _LOG.warning("whether a tool is paused is not known", tool=tool, error=str(error))
            return None
