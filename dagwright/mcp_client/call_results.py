"""Convert the response of a server to the result or the failure of a tool.

The result is `structuredContent` if the response has it. If all content parts are text, the result is their text,
joined by line breaks and parsed if it is a JSON object or list. Otherwise, the result is the list of content parts as
sent, with bytes as base64.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.tools.errors import GiveUp, InvalidArguments, NotStarted, RemoteFailed, RetryLater, ToolError

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
CONNECTION_CLOSED = -32000
_SESSION_TERMINATED = "Session terminated"
"""Message of the SDK if the server no longer knows the session, and responds with 404. The call was not run."""
_REJECTED_STATUSES = frozenset({400, 401, 403, 404, 405, 407, 410})
_TOO_MANY_REQUESTS = 429
_LOCATION_ARGUMENTS = frozenset(
    {"url", "urls", "uri", "uris", "path", "paths", "file", "files", "file_path", "filepath", "filename", "directory"}
)
"""Names of arguments for the files or addresses that a tool accesses."""


def result_of(response: Mapping[str, Any], *, reads_json: bool) -> Any:
    """Return the result of a call.

    Args:
        response: the result of `tools/call`, as JSON.
        reads_json: whether a text that is a JSON object or list is parsed.
    """
    structured = response.get("structuredContent")
    if structured is not None:
        return structured
    parts: Sequence[Mapping[str, Any]] = response.get("content") or ()
    if not parts:
        return None
    if any(part.get("type") != "text" for part in parts):
        return [dict(part) for part in parts]
    text = _text_of(parts)
    return _parse_json(text) if reads_json else text


def locations_of(arguments: Mapping[str, Any], response: Mapping[str, Any]) -> list[str]:
    """Return the files and addresses that a call accessed, according to common argument names.

    Args:
        response: the result of `tools/call`, as JSON; it may contain resources.
    """
    locations: list[str] = []
    for name, value in arguments.items():
        if name.lower() in _LOCATION_ARGUMENTS:
            locations += [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)]
    for part in response.get("content") or ():
        resource = part.get("resource") if part.get("type") == "resource" else part
        uri = resource.get("uri") if isinstance(resource, Mapping) else None
        if isinstance(uri, str):
            locations.append(uri)
    return locations


def failure_text(response: Mapping[str, Any]) -> str | None:
    """Return the error message of a failed call; `None` if the call succeeded."""
    if not response.get("isError"):
        return None
    return _text_of(response.get("content") or ()) or "the server reports a failure without a message"


def tool_error_of(
    code: int, message: str, *, status: int | None, retry_after: Any = None, requested_by: str | None = None
) -> ToolError:
    """Convert a protocol error to a tool error.

    Args:
        status: HTTP status of the response, if there was one.
        retry_after: delay that the server requested, if any.
        requested_by: the server that requested the delay, as in `RetryLater`.
    """
    if status == _TOO_MANY_REQUESTS:
        # The server rejected the call before running it.
        return RetryLater(f"{message} (HTTP {status})", after=retry_after, requested_by=requested_by)
    if status in _REJECTED_STATUSES and message != _SESSION_TERMINATED and code != INVALID_PARAMS:
        hint = "; check the headers of the server in the file of MCP servers" if status in (401, 403) else ""
        return GiveUp(f"{message} (HTTP {status}){hint}")
    if code == INVALID_REQUEST and message == _SESSION_TERMINATED:
        return NotStarted("the server has closed the session; the call starts a new session")
    if code == INVALID_PARAMS:
        return InvalidArguments(f"Invalid arguments: {message}")
    if code in (INVALID_REQUEST, METHOD_NOT_FOUND):
        return GiveUp(message)
    return RemoteFailed(f"{message} (HTTP {status})" if status else message)


def is_session_gone(code: int, message: str) -> bool:
    """Check whether the server no longer knows the session, so that a new session is needed."""
    return code == INVALID_REQUEST and message == _SESSION_TERMINATED


def _text_of(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _parse_json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json_from_bytes(text.encode())
    except ValueError:
        return text
