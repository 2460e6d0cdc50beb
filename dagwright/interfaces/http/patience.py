"""Fail read requests fast while the Temporal server does not respond.

The Temporal client retries for half a minute, which is right for commands, and long for reads. Reads that are slow
because there is much to read are not aborted: the server responds to the check.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.service import RPCError

from dagwright.interfaces.http.errors import ApiError, told_as

_AWAY = 503
PATIENCE_S = 3.0
"""Seconds without a response after which the server is checked."""


class Patience:
    """Middleware that checks the Temporal server while a read request waits.

    Args:
        reach: check that the server responds; raises `RPCError`.
        patience_s: interval of the checks, until the response starts.
    """

    def __init__(self, app: ASGIApp, *, reach: Callable[[], Awaitable[object]], patience_s: float = PATIENCE_S) -> None:
        self._app = app
        self._reach = reach
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def sent(message: Message) -> None:
            begun.set()
            await send(message)

        async def answer() -> None:
            await self._app(scope, receive, sent)

        work = asyncio.create_task(answer())
        beginning = asyncio.create_task(begun.wait())
        try:
            lost = await self._lost({work, beginning})
            # Nothing is awaited between the two checks: a response that has started is sent to its end.
            if lost is None or begun.is_set():
                await work
                return
        finally:
            work.cancel()
            beginning.cancel()
            await asyncio.gather(work, beginning, return_exceptions=True)
        await lost.response()(scope, receive, send)

    async def _lost(self, waited: "set[asyncio.Task[Any]]") -> ApiError | None:
        """Return the error once the server does not respond; `None` if a response starts or the request ends first."""
        while True:
            done, _ = await asyncio.wait(waited, timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None
            try:
                await self._reach()
            except RPCError as error:
                told = told_as(error)
                # A server that refuses the check may still answer the request.
                if told is not None and told.status == _AWAY:
                    return told
