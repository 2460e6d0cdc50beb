"""Fail read requests fast while the Temporal server does not respond.

The Temporal client retries for half a minute, which is right for commands, and long for reads. Reads that are slow
because there is much to read are not aborted: the server responds to the check.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.service import RPCError

from dagwright.interfaces.http.errors import ApiError, api_error

_UNAVAILABLE = 503
CHECK_INTERVAL_S = 3.0
"""Seconds without a response after which the server is checked."""


class UpstreamTimeoutMiddleware:
    """Middleware that checks the Temporal server while a read request waits.

    Args:
        check_connection: check that the server responds; raises `RPCError`.
        check_interval_s: interval of the checks, until the response starts.
    """

    def __init__(
        self, app: ASGIApp, *, check_connection: Callable[[], Awaitable[object]], check_interval_s: float = CHECK_INTERVAL_S
    ) -> None:
        self._app = app
        self._check_connection = check_connection
        self._check_interval_s = check_interval_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        started = asyncio.Event()

        async def sent(message: Message) -> None:
            started.set()
            await send(message)

        async def answer() -> None:
            await self._app(scope, receive, sent)

        work = asyncio.create_task(answer())
        started_waiter = asyncio.create_task(started.wait())
        try:
            error = await self._server_error({work, started_waiter})
            # Nothing is awaited between the two checks: a response that has started is sent to its end.
            if error is None or started.is_set():
                await work
                return
        finally:
            work.cancel()
            started_waiter.cancel()
            await asyncio.gather(work, started_waiter, return_exceptions=True)
        await error.response()(scope, receive, send)

    async def _server_error(self, waited: "set[asyncio.Task[Any]]") -> ApiError | None:
        """Return the error once the server does not respond; `None` if a response starts or the request ends first."""
        while True:
            done, _ = await asyncio.wait(waited, timeout=self._check_interval_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None
            try:
                await self._check_connection()
            except RPCError as error:
                failure = api_error(error)
                # A server that refuses the check may still answer the request.
                if failure is not None and failure.status == _UNAVAILABLE:
                    return failure
