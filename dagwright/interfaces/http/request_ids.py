"""An id for each request, which its answer and the log of the gateway name."""

import re
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
REQUEST_ID = "dagwright.request_id"
"""Where the scope of a request has its id."""
_VALID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestIdMiddleware:
    """Middleware that puts `x-request-id` on every answer: the id that the caller sent if it is valid, else a new one.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = _id_of(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def _id_of(scope: MutableMapping[str, Any]) -> str:
    header = Headers(scope=scope).get(HEADER, "")
    return header if _VALID.fullmatch(header) else f"req_{uuid4().hex}"
