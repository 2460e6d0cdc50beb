"""Request headers as text, and response headers for the OpenAPI document."""

from typing import Any

Described = dict[str, Any]


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
    "x-request-id": _text("ID of the request: the `x-request-id` of the caller if it is valid, else a new one."),
    "x-should-retry": _text("`false`: a retry would give the same result.", enum=["false"]),
}
ANSWER_HEADERS = header_descriptions("X-Run-Id", "X-Session-Id", "X-Routing-Mode")
"""Headers of answers in OpenAI's form; the first two only if a run answers."""
COMMON_HEADERS = header_descriptions("x-request-id")
"""Headers of every response."""
