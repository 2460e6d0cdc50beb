"""Headers: texts of request headers, response headers for the OpenAPI document, and an ID for each request."""

import re
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Described = dict[str, Any]
REQUEST_ID_HEADER = "x-request-id"
REQUEST_ID = "dagwright.request_id"
"""Where the scope of a request has its id."""
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def header_text(value: str) -> str:
    """Return a request header as text: clients send names as UTF-8, servers decode headers as Latin-1.

    A value that is not UTF-8 is returned unchanged.
    """
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def header_descriptions(*names: str) -> dict[str, Described]:
    """Return the descriptions of response headers."""
    return {name: _ANSWERED[name] for name in names}


def _text(description: str, **schema: Any) -> Described:
    return {"description": description, "schema": {"type": "string", **schema}}


_ANSWERED = {
    "X-Run-Id": _text("The run that answers."),
    "X-Session-Id": _text("The session that the run is a turn of."),
    "X-Routing-Mode": _text("Whether the model or a run answered.", enum=["direct", "orchestration"]),
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}},
    "Location": _text("URL of the run.", format="uri-reference"),
    REQUEST_ID_HEADER: _text("ID of the request: the `x-request-id` of the caller if it is valid, else a new one."),
    "x-should-retry": _text("`false`: a retry would give the same result.", enum=["false"]),
}
ANSWER_HEADERS = header_descriptions("X-Run-Id", "X-Session-Id", "X-Routing-Mode")
"""Headers of answers in OpenAI's form; the first two only if a run answers."""
COMMON_HEADERS = header_descriptions(REQUEST_ID_HEADER)
"""Headers of every response."""


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
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def _id_of(scope: MutableMapping[str, Any]) -> str:
    header = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    return header if _VALID_ID.fullmatch(header) else f"req_{uuid4().hex}"
