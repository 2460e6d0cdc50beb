"""Texts in arguments that mean something: what a tool's schema says of them, and whether one is such a text.

The keyword `x-dagwright-text` of a schema names the format of a text; values that are no text are left to the other
keywords. It exists because no pattern says what a query is, and `format` promises nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonpath

from dagwright.core.model.times import parse_duration
from dagwright.core.plugins import text_format, text_format_names

KEYWORD: Final = "x-dagwright-text"

_HTTP_URL = re.compile(r"https?://[^/?#]", re.IGNORECASE)


def parse_jsonpath(text: str) -> jsonpath.JSONPath | jsonpath.CompoundJSONPath:
    """Returns a query of RFC 9535.

    Raises:
        ValueError: it is none.
    """
    try:
        return jsonpath.JSONPathEnvironment(strict=True).compile(text)
    except (jsonpath.JSONPathError, RecursionError) as error:
        # The text of an error at the end of a query cannot always be made; its first argument is there.
        said = str(error.args[0] if error.args else type(error).__name__).partition("\n")[0]
        raise ValueError(f"{text[:200]!r} is no JSONPath query: {said}") from None


def check_http_url(text: str) -> None:
    """Refuses a text that is surely no address of HTTP.

    Raises:
        ValueError: it is none.
    """
    if _HTTP_URL.match(text) is None:
        raise ValueError(f"{text[:200]!r} is no address; it starts with http:// or https:// and a host")


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "duration": parse_duration,
    "http_url": check_http_url,
    "jsonpath": parse_jsonpath,
}
"""Name of a format -> what raises ValueError for a text that is none; plugins contribute more."""


def parser_of(name: str) -> Callable[[str], Any] | None:
    """Return what reads a text of a format, of the engine or of a plugin; `None` for an unknown format."""
    return PARSERS.get(name) or text_format(name)


class TextFormat:
    """The keyword, as the library for schemas wants it."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - the library's shape
        parse = parser_of(value) if isinstance(value, str) else None
        if parse is None:
            known = [*PARSERS, *text_format_names()]
            raise ValueError(f"{KEYWORD} is {value!r}, expected one of {', '.join(known)}")
        self._parse = parse

    def validate(self, instance: Any) -> None:
        """Raises ValueError for a text that is none of the format."""
        if isinstance(instance, str):
            self._parse(instance)
