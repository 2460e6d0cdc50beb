"""JSON Schemas: their validator, with Dagwright's keywords for text formats and entity kinds.

The keyword `x-dagwright-text` names the format of a text and accepts all values that are not texts. It is a separate
keyword because no pattern can describe a JSONPath query, and validators may ignore `format`. A schema must be
self-contained, so that checking a plan never uses the network.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from dagwright.core.model.times import parse_duration
from dagwright.core.plugins import text_format_names, text_format_parser

if TYPE_CHECKING:
    import jsonpath

TEXT_FORMAT: Final = "x-dagwright-text"

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
        # `str(error)` may fail for a syntax error at the end of the query; `error.args` is always available.
        reason = str(error.args[0] if error.args else type(error).__name__).partition("\n")[0]
        raise ValueError(f"{text[:200]!r} is not a JSONPath query: {reason}") from None


def check_http_url(text: str) -> None:
    """Reject a text that is not an HTTP URL.

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
    """Return the parser of a format that the engine or a plugin defines; `None` for an unknown format."""
    return PARSERS.get(name) or text_format_parser(name)


class TextFormatKeyword:
    """The keyword `x-dagwright-text`, in the interface that jsonschema_rs requires."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - required signature
        parse = parser_of(value) if isinstance(value, str) else None
        if parse is None:
            known_formats = [*PARSERS, *text_format_names()]
            raise ValueError(f"{TEXT_FORMAT} is {value!r}, expected one of {', '.join(known_formats)}")
        self._parse = parse

    def validate(self, instance: Any) -> None:
        """Raise ValueError for a text that does not have the format."""
        if isinstance(instance, str):
            self._parse(instance)


ENTITY_KEYWORD: Final = "x-dagwright-entity"


class EntityKeyword:
    """The keyword `x-dagwright-entity`, in the interface that jsonschema_rs requires."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - required signature
        if not isinstance(value, list) or not value or not all(isinstance(kind, str) for kind in value):
            raise ValueError(f"{ENTITY_KEYWORD} is {value!r}, expected a list of kinds of entities")

    def validate(self, instance: Any) -> None:
        """Accept any value: only the call of the tool can decide whether a text is the id of an entity."""


def reject_remote(uri: str) -> Any:
    """Reject a reference to another schema: a retriever in the interface that jsonschema_rs requires."""
    raise ValueError(f"a schema must not refer to {uri}")


@lru_cache(maxsize=512)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    keywords: dict[str, type[jsonschema_rs.KeywordValidator]] = {
        TEXT_FORMAT: TextFormatKeyword,
        ENTITY_KEYWORD: EntityKeyword,
    }
    return jsonschema_rs.Draft202012Validator(json.loads(schema_text), retriever=reject_remote, keywords=keywords)


def validator_of(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Return the validator of a schema; equal schemas are compiled once.

    Raises:
        ValueError: the schema is invalid.
    """
    try:
        return _validator(json.dumps(schema, sort_keys=True))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise ValueError(f"not a valid JSON Schema: {str(error).splitlines()[0]:.200}") from None
