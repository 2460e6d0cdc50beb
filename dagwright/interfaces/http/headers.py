"""Headers: those of requests as they are read, and those of answers for the document of the API."""

from typing import Any

Described = dict[str, Any]


def header_text(value: str) -> str:
    """Returns what a header of a request says: clients send names as UTF-8, servers read each byte as a letter.

    What is no UTF-8 stays as it was read.
    """
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def header_descriptions(*names: str) -> dict[str, Described]:
    """Returns how headers of an answer are described."""
    return {name: _ANSWERED[name] for name in names}


def _text(description: str, **schema: Any) -> Described:
    return {"description": description, "schema": {"type": "string", **schema}}


_ANSWERED = {
    "X-Run-Id": _text("The run that answers."),
    "X-Session-Id": _text("The session whose turn it is."),
    "X-Routing-Mode": _text("Who has answered.", enum=["direct", "orchestration"]),
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}},
    "Location": _text("The address of the run.", format="uri-reference"),
    "x-request-id": _text("Id of the request: that of the caller's `x-request-id` if it is valid, else a new one."),
    "x-should-retry": _text("`false`: the same request would come to the same.", enum=["false"]),
}
OF_ANSWERS = header_descriptions("X-Run-Id", "X-Session-Id", "X-Routing-Mode")
"""Of what answers in OpenAI's form; the first two only if a run does."""
OF_ALL = header_descriptions("x-request-id")
"""Of every answer."""
