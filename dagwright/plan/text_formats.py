"""Texts in arguments that mean something: what a tool's schema says of them, and whether one is such a text.

The keyword `x-dagwright-text` of a schema names the format of a text; values that are no text are left to the other
keywords. It exists because no pattern says what a query is, and `format` promises nothing.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from typing import Any, Final

import jsonpath

from dagwright.plan.durations import parse_duration
from dagwright.plan.entity_types import jurisdiction_of

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


def check_date(text: str) -> None:
    """Refuses a text that is no day such as `1970-12-31`.

    Raises:
        ValueError: it is none.
    """
    with suppress(ValueError):
        if date.fromisoformat(text).isoformat() == text:
            return
    raise ValueError(f"{text[:200]!r} is no date such as 1970-12-31")


def check_name(text: str) -> None:
    """Refuses a text that holds nothing to call somebody by.

    Raises:
        ValueError: it is one.
    """
    if not any(map(str.isalnum, text)):
        raise ValueError(f"{text[:200]!r} is no name: it holds no letter or digit")


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": check_date,
    "duration": parse_duration,
    "http_url": check_http_url,
    "jsonpath": parse_jsonpath,
    "jurisdiction": jurisdiction_of,
    "name": check_name,
}
"""Name of a format -> what raises ValueError for a text that is none."""


class TextFormat:
    """The keyword, as the library for schemas wants it."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - the library's shape
        if value not in PARSERS:
            raise ValueError(f"{KEYWORD} is {value!r}, expected one of {', '.join(PARSERS)}")
        self._parse = PARSERS[value]

    def validate(self, instance: Any) -> None:
        """Raises ValueError for a text that is none of the format."""
        if isinstance(instance, str):
            self._parse(instance)
