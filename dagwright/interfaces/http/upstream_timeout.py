"""Fail read requests fast while the Temporal server does not respond.

The Temporal client retries for half a minute. This is right for commands, but too long for reads. So the gateway checks
the server while a read waits, and aborts the read if the server does not respond to a check.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.service import RPCError

from dagwright.interfaces.http.errors import ApiError, api_error

_UNAVAILABLE_STATUS = 503
CHECK_INTERVAL_S = 3.0
"""Seconds without a response to a read request after which the gateway checks the server."""


class UpstreamTimeoutMiddleware:
    """Middleware that checks the Temporal server while a read request waits.

    Args:
        check_connection: check that the server responds; raises `RPCError`.
        check_interval_s: interval of the checks, until the response starts.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        check_connection: Callable[[], Awaitable[object]],
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        self._app = app
        self._check_connection = check_connection
        self._check_interval_s = check_interval_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        response_started = asyncio.Event()

        async def send_and_record_start(message: Message) -> None:
            response_started.set()
            await send(message)

        async def respond() -> None:
            await self._app(scope, receive, send_and_record_start)

        response_task = asyncio.create_task(respond())
        started_task = asyncio.create_task(response_started.wait())
        try:
            error = await self._wait_for_server_error({response_task, started_task})
            # A response that has started is sent to its end. It may have started during the last check of the server.
            if error is None or response_started.is_set():
                await response_task
                return
        finally:
            response_task.cancel()
            started_task.cancel()
            await asyncio.gather(response_task, started_task, return_exceptions=True)
        await error.response()(scope, receive, send)

    async def _wait_for_server_error(self, tasks: "set[asyncio.Task[Any]]") -> ApiError | None:
        """Return the error when the server does not respond; `None` if one of the tasks ends first."""
        while True:
            done, _ = await asyncio.wait(tasks, timeout=self._check_interval_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None
            try:
                await self._check_connection()
            except RPCError as error:
                failure = api_error(error)
                # After any error of the check except 503, the server may still respond to the request.
                if failure is not None and failure.status == _UNAVAILABLE_STATUS:
                    return failure
