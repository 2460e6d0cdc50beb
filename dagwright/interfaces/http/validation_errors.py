"""Messages for request fields that fail validation.

A field that accepts several types has one pydantic error per type. One message reports them together.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dagwright.core.name_hints import cut_name, format_names, not_one_of_message, suggestion

_TYPES: Mapping[str, str] = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
}
"""Pydantic error type -> description of accepted values."""

_ACCEPTED_VALUE = re.compile("'([^']*)'")
"""One of the accepted values in pydantic's text, such as `'running', 'waiting' or 'failed'`."""

PydanticError = Mapping[str, Any]


def describe_errors(errors: Sequence[PydanticError], body: Any, body_fields: Collection[str]) -> tuple[str, str]:
    """Return the path of the first invalid field, and a message; the path is empty for the body itself.

    Args:
        errors: pydantic errors; each location starts with the part of the request, such as `body`.
        body_fields: fields of the body's model.
    """
    first_error = errors[0]
    # A location starts with the part of the request, such as `body`, and the name of the field.
    errors_of_field = [error for error in errors if error["loc"][:2] == first_error["loc"][:2]]
    paths = [_path_of(error, body) for error in errors_of_field]
    # Report the most specific error. The other errors are about types that the client did not mean.
    longest_path = max(paths, key=len)
    deepest_errors = [error for error, path in zip(errors_of_field, paths, strict=True) if path == longest_path]
    field_path = ".".join(cut_name(str(part)) for part in longest_path)
    if deepest_errors[0]["type"] == "extra_forbidden":
        return field_path, _unknown_field_message(field_path, body_fields if len(longest_path) == 1 else ())
    accepted_types = list(dict.fromkeys(_TYPES[error["type"]] for error in deepest_errors if error["type"] in _TYPES))
    message = str(deepest_errors[0]["msg"]).removeprefix("Value error, ")
    value = deepest_errors[0].get("input")
    if deepest_errors[0]["type"] in ("enum", "literal_error") and isinstance(value, str):
        message = not_one_of_message(value, _ACCEPTED_VALUE.findall(deepest_errors[0]["ctx"]["expected"]))
    if accepted_types:
        message = f"must be {' or '.join(filter(None, (', '.join(accepted_types[:-1]), accepted_types[-1])))}"
    return field_path, f"{field_path}: {message}" if field_path else message


def _unknown_field_message(name: str, known_names: Collection[str]) -> str:
    if hint := suggestion(name, known_names):
        return f"unknown field {name!r} ({hint})"
    return f"unknown field {name!r}" + (f"; allowed are {format_names(known_names, limit=20)}" if known_names else "")


def _path_of(error: PydanticError, body: Any) -> tuple[str | int, ...]:
    """Return the location of an error, as keys and indexes of the body.

    If a field accepts several types, pydantic adds the names of the types to the location. Names that are no keys of
    the value at their position are removed; the path is complete when it has reached the invalid value.
    """
    start, *parts = error["loc"]
    if start != "body" or error["type"] in ("missing", "extra_forbidden"):
        return tuple(parts)
    path: list[str | int] = []
    for part in parts:
        if body is error["input"]:
            break
        if (isinstance(body, dict) and part in body) or (isinstance(body, list) and isinstance(part, int)):
            body = body[part]
            path.append(part)
    return tuple(path) or tuple(parts)
