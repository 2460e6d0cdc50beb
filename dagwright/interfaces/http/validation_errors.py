"""Messages for request fields that fail validation. Pure.

A field that accepts several types has one pydantic error per type; they are reported as one problem.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dagwright.core.name_hints import cut_name, format_names, not_one_of, suggestion

_TYPES: Mapping[str, str] = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
}
"""Pydantic error type -> description of accepted values."""

_CHOICE = re.compile("'([^']*)'")
"""One of the accepted values in pydantic's text, `'running', 'waiting' or 'failed'`."""

Problem = Mapping[str, Any]


def describe(problems: Sequence[Problem], body: Any, known: Collection[str]) -> tuple[str, str]:
    """Return the field and the message of the first invalid field; the field is empty for the body itself.

    Args:
        problems: pydantic errors; each location starts with the part of the request, such as `body`.
        known: fields of the body.
    """
    first = problems[0]
    same = [problem for problem in problems if problem["loc"][:2] == first["loc"][:2]]
    paths = [_path_of(problem, body) for problem in same]
    # Report the most specific error: the others are about types that were not meant.
    longest = max(paths, key=len)
    deepest = [problem for problem, at in zip(same, paths, strict=True) if at == longest]
    name = ".".join(cut_name(str(part)) for part in longest)
    if deepest[0]["type"] == "extra_forbidden":
        return name, _unknown(name, known if len(longest) == 1 else ())
    accepted = list(dict.fromkeys(_TYPES[problem["type"]] for problem in deepest if problem["type"] in _TYPES))
    message = str(deepest[0]["msg"]).removeprefix("Value error, ")
    value = deepest[0].get("input")
    if deepest[0]["type"] in ("enum", "literal_error") and isinstance(value, str):
        message = not_one_of(value, _CHOICE.findall(deepest[0]["ctx"]["expected"]))
    if accepted:
        message = f"must be {' or '.join(filter(None, (', '.join(accepted[:-1]), accepted[-1])))}"
    return name, f"{name}: {message}" if name else message


def _unknown(name: str, known_names: Collection[str]) -> str:
    if near := suggestion(name, known_names):
        return f"unknown field {name!r} ({near})"
    return f"unknown field {name!r}" + (f"; allowed are {format_names(known_names, limit=20)}" if known_names else "")


def _path_of(problem: Problem, body: Any) -> tuple[str | int, ...]:
    """Return the location of an error without the type names that pydantic adds to it."""
    start, *parts = problem["loc"]
    if start != "body" or problem["type"] in ("missing", "extra_forbidden"):
        return tuple(parts)
    path: list[str | int] = []
    for part in parts:
        if body is problem["input"]:
            break
        if (isinstance(body, dict) and part in body) or (isinstance(body, list) and isinstance(part, int)):
            body = body[part]
            path.append(part)
    return tuple(path) or tuple(parts)
