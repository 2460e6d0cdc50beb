"""Headers: decoding of request headers, response headers for the OpenAPI document, and an ID for each request."""

import re
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HeaderDescription = dict[str, Any]
REQUEST_ID_HEADER = "x-request-id"
ASGI_REQUEST_ID = "dagwright.request_id"
"""Key of the request ID in the ASGI scope."""
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def header_text(value: str) -> str:
    """Decode the value of a request header, such as a person's name, as UTF-8. The server has decoded it as Latin-1.

    A value that is not UTF-8 is returned unchanged.
    """
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def header_descriptions(*names: str) -> dict[str, HeaderDescription]:
    """Return the descriptions of response headers."""
    return {name: _RESPONSE_HEADERS[name] for name in names}


def _string_header(description: str, **schema: Any) -> HeaderDescription:
    return {"description": description, "schema": {"type": "string", **schema}}


_RESPONSE_HEADERS = {
    "X-Run-Id": _string_header("The run that answers."),
    "X-Session-Id": _string_header("The session of which the run is a turn."),
    "X-Routing-Mode": _string_header("Whether the model or a run answered.", enum=["direct", "orchestration"]),
    "Retry-After": {
        "description": "Seconds after which the client may retry.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Location": _string_header("URL of the run.", format="uri-reference"),
    REQUEST_ID_HEADER: _string_header(
        "ID of the request: the `x-request-id` of the caller if it is valid, else a new one."
    ),
    "x-should-retry": _string_header("`false`: a retry would give the same result.", enum=["false"]),
}
ANSWER_HEADERS = header_descriptions("X-Run-Id", "X-Session-Id", "X-Routing-Mode")
"""Headers of answers in OpenAI's form. The first two are sent only if a run answers."""
COMMON_HEADERS = header_descriptions(REQUEST_ID_HEADER)
"""Headers of every response."""


class RequestIdMiddleware:
    """Middleware that adds `x-request-id` to every response: the valid ID that the caller sent, else a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[ASGI_REQUEST_ID] = _request_id(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def _request_id(scope: MutableMapping[str, Any]) -> str:
    header = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    return header if _VALID_ID.fullmatch(header) else f"req_{uuid4().hex}"
