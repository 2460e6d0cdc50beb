"""Lets nobody who only looks wait for a server that does not answer.

The client of Temporal tries for half a minute, which is right for what is to be done, and long for a look. What takes
its time because there is much to read is not given up: the server says that it is there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.service import RPCError

from dagwright.interfaces.http.errors import ApiError, told_as

_AWAY = 503
PATIENCE_S = 3.0
"""How long a look may take before the server is asked whether it is there."""


class Patience:
    """Stands before an application.

    Args:
        reach: makes sure that the server answers, or raises `RPCError`.
        patience_s: after which it does, again and again until an answer begins.
    """

    def __init__(self, app: ASGIApp, *, reach: Callable[[], Awaitable[object]], patience_s: float = PATIENCE_S) -> None:
        self._app = app
        self._reach = reach
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
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
            # Between the two nothing is awaited: an answer that has begun is told to its end.
            if lost is None or begun.is_set():
                await work
                return
        finally:
            work.cancel()
            beginning.cancel()
            await asyncio.gather(work, beginning, return_exceptions=True)
        await lost.response()(scope, receive, send)

    async def _lost(self, waited: "set[asyncio.Task[Any]]") -> ApiError | None:
        """Returns what tells that the server is away; `None` as soon as an answer has begun or there will be none."""
        while True:
            done, _ = await asyncio.wait(waited, timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None
            try:
                await self._reach()
            except RPCError as error:
                told = told_as(error)
                # A server that refuses to say how it is may well answer what it is asked.
                if told is not None and told.status == _AWAY:
                    return told
