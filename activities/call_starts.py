"""Durable start records of `write` calls: heartbeats that the server acknowledges before the tool is called.

A worker may die after it received a call. If the server has no record of the attempt, the tool was not called and the
call may be repeated. If the server has a record, the outcome is unknown. The SDK's own heartbeats cannot serve as
records, because they are sent in the background. This module must not import workflows.
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
"""How many calls of a worker may wait for the server's acknowledgement of their record at the same time.

If the worker dies, at most this many writes have a record although their tools were not called.
"""
TRANSIENT_STATUSES = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
)
"""Statuses of requests that may succeed later."""


class CallStopped(Exception):
    """The server requested that the attempt stops, or has already timed out the attempt."""


class CallStarts:
    """Record the starts of `write` calls with the server.

    Args:
        client: client of the worker.

    Attributes:
        record_slots: semaphore that a call holds while its record is sent.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.record_slots = asyncio.Semaphore(MAX_OPEN_RECORDS)

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        """Send the details of a heartbeat and return when the server has them; retry while the server is unavailable.

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
                if error.status not in TRANSIENT_STATUSES:
                    raise CallStopped(f"the server has ended the attempt: {error}") from None
            await asyncio.sleep(_RETRY_PAUSE_S)
