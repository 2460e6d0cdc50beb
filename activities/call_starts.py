"""Durable records that the call of a `write` began: heartbeats that the server has before the tool is called.

A worker may die after it received a call. If the server has no record for the attempt, the tool was not called and the
call may be repeated; if it has one, the outcome is unknown. The SDK's own heartbeats cannot serve as
records: they are sent in the background. This module must not import workflows.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError, RPCStatusCode

_RPC_TIMEOUT = timedelta(seconds=10)
_RETRY_PAUSE_S = 0.5
MAX_OPEN_RECORDS = 2
"""Calls of a worker that wait for the server's acknowledgement of their record at once.

If the worker dies, at most so many writes have a record although their tools were not called.
"""
_PASSING = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
)


class CallStopped(Exception):
    """The server wants the attempt to stop, or has given it up."""


class CallStarts:
    """Records the heartbeats of calls with the server.

    Args:
        client: of the worker.

    Attributes:
        turns: held by a call from before its record is sent until the tool is called.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.turns = asyncio.Semaphore(MAX_OPEN_RECORDS)

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        """Record the details of a heartbeat; return as soon as the server has them, however long it is unavailable.

        Raises:
            CallStopped: the attempt should stop.
        """
        handle = self._client.get_async_activity_handle(task_token=task_token)
        while True:
            try:
                await handle.heartbeat(*details, rpc_timeout=_RPC_TIMEOUT)
                return
            except AsyncActivityCancelledError:
                raise CallStopped("the server requested that the call stops") from None
            except RPCError as error:
                if error.status not in _PASSING:
                    raise CallStopped(f"the server has given the attempt up: {error}") from None
            await asyncio.sleep(_RETRY_PAUSE_S)
