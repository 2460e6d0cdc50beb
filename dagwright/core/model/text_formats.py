"""Text formats of arguments: the schema keyword, and the parsers that check a text.

The keyword `x-dagwright-text` of a schema names the format of a text; other keywords check values that are not texts.
It exists because no pattern can describe a query, and validators may ignore `format`.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dagwright.core.model.times import parse_duration
from dagwright.core.plugins import text_format, text_format_names

if TYPE_CHECKING:
    import jsonpath

KEYWORD: Final = "x-dagwright-text"

_HTTP_URL = re.compile(r"https?://[^/?#]", re.IGNORECASE)


def parse_jsonpath(text: str) -> "jsonpath.JSONPath | jsonpath.CompoundJSONPath":
    """Parse a query of RFC 9535.

    Raises:
        ValueError: the text is not a query.
    """
    import jsonpath  # noqa: PLC0415 - takes long to import, and few arguments are queries

    try:
        return jsonpath.JSONPathEnvironment(strict=True).compile(text)
    except (jsonpath.JSONPathError, RecursionError) as error:
        # `str` of an error at the end of a query may fail; its first argument is always available.
        reason = str(error.args[0] if error.args else type(error).__name__).partition("\n")[0]
        raise ValueError(f"{text[:200]!r} is not a JSONPath query: {reason}") from None


def check_http_url(text: str) -> None:
    """Refuse a text that is not an HTTP URL.

    Raises:
        ValueError: the text does not start with a scheme and a host.
    """
    if _HTTP_URL.match(text) is None:
        raise ValueError(f"{text[:200]!r} is not a URL; it must start with http:// or https:// and a host")


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "duration": parse_duration,
    "http_url": check_http_url,
    "jsonpath": parse_jsonpath,
}
"""Name of a format -> a parser that raises ValueError for an invalid text; plugins contribute more."""


def parser_of(name: str) -> Callable[[str], Any] | None:
    """Return the parser of a format, of the engine or of a plugin; `None` for an unknown format."""
    return PARSERS.get(name) or text_format(name)


class TextFormat:
    """The keyword `x-dagwright-text`, in the interface that jsonschema_rs requires."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - the library's shape
        parse = parser_of(value) if isinstance(value, str) else None
        if parse is None:
            known = [*PARSERS, *text_format_names()]
            raise ValueError(f"{KEYWORD} is {value!r}, expected one of {', '.join(known)}")
        self._parse = parse

    def validate(self, instance: Any) -> None:
        """Raise ValueError for a text that does not have the format."""
        if isinstance(instance, str):
            self._parse(instance)
