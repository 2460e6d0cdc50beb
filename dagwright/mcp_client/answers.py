"""What a server answers to a call, as the result or the failure of a tool.

Result: `structuredContent` if there is any; else, if all parts are texts, those joined by line ends, and read as JSON
if that is an object or a list; else the list of all parts as the server sent them, bytes as base64.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.tools.errors import GiveUp, InvalidArguments, NotStarted, RemoteFailed, RetryLater, ToolError

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
CONNECTION_CLOSED = -32000
_SESSION_IS_GONE = "Session terminated"
"""What the SDK makes of status 404 for a session that the server does not know any more; it did nothing then."""
_REFUSED = frozenset({400, 401, 403, 404, 405, 407, 410})
_TOO_MANY = 429
_PLACES = frozenset(
    {"url", "urls", "uri", "uris", "path", "paths", "file", "files", "file_path", "filepath", "filename", "directory"}
)
"""Arguments that name what a tool looks at."""


def result_of(answer: Mapping[str, Any], *, reads_json: bool) -> Any:
    """Returns the result of a call.

    Args:
        answer: the result of `tools/call`, as JSON.
        reads_json: whether a text that is a JSON object or list becomes that.
    """
    structured = answer.get("structuredContent")
    if structured is not None:
        return structured
    parts: Sequence[Mapping[str, Any]] = answer.get("content") or ()
    if not parts:
        return None
    if any(part.get("type") != "text" for part in parts):
        return [dict(part) for part in parts]
    text = _text_of(parts)
    return _read(text) if reads_json else text


def places_of(arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Returns the files and addresses that a call was about, by the words that servers have for them.

    Args:
        answer: the result of `tools/call`, as JSON: it may name resources.
    """
    found: list[str] = []
    for name, value in arguments.items():
        if name.lower() in _PLACES:
            found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    for part in answer.get("content") or ():
        resource = part.get("resource") if part.get("type") == "resource" else part
        uri = resource.get("uri") if isinstance(resource, Mapping) else None
        if isinstance(uri, str):
            found.append(uri)
    return found


def failure_text(answer: Mapping[str, Any]) -> str | None:
    """Returns what a server says of a call that failed; `None` if it did not fail."""
    if not answer.get("isError"):
        return None
    return _text_of(answer.get("content") or ()) or "the server says that the call failed, and not why"


def tool_error_of(code: int, message: str, *, status: int | None, retry_after: Any = None) -> ToolError:
    """Returns the failure that an error of the protocol stands for.

    Args:
        status: of the HTTP answer, if there was one.
        retry_after: how long the server asks to be left alone, if it does.
    """
    if status == _TOO_MANY:
        # The server refused to begin.
        return RetryLater(f"{message} (HTTP {status})", after=retry_after)
    if status in _REFUSED and message != _SESSION_IS_GONE and code != INVALID_PARAMS:
        hint = "; look at the headers of the server in the file of MCP servers" if status in (401, 403) else ""
        return GiveUp(f"{message} (HTTP {status}){hint}")
    if code == INVALID_REQUEST and message == _SESSION_IS_GONE:
        return NotStarted("the server has forgotten the session; it is begun anew")
    if code == INVALID_PARAMS:
        return InvalidArguments(f"Invalid arguments: {message}")
    if code in (INVALID_REQUEST, METHOD_NOT_FOUND):
        return GiveUp(message)
    return RemoteFailed(f"{message} (HTTP {status})" if status else message)


def is_session_gone(code: int, message: str) -> bool:
    """Tells whether a server does not know the session any more, so that a new one has to be begun."""
    return code == INVALID_REQUEST and message == _SESSION_IS_GONE


def _text_of(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _read(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
