"""JSON types that a value of a schema may have, and types that a parameter accepts: never fewer than there are.

Arguments of tools are validated by pydantic in its lax mode, which converts some types; convertible types count as
accepted. A part of a schema that is not understood here allows every type.
"""

from collections.abc import Mapping, Sequence
from typing import Any

JsonTypes = frozenset[str]
ALL: JsonTypes = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_MOST_STEPS = 50
"""Most references followed in one schema, because they may be circular."""
_SCALARS: JsonTypes = frozenset({"boolean", "integer", "number", "string"})
_CONVERTED: Mapping[str, JsonTypes] = {"boolean": _SCALARS, "integer": _SCALARS, "number": _SCALARS}
"""Type of a parameter -> what pydantic's lax mode may convert to it."""


class _SubSchema:
    """A part of a schema, with the whole schema, in which its references are resolved."""

    def __init__(self, schema: Any, root: Mapping[str, Any]) -> None:
        self.schema, self.root = _resolved(schema, root), root


def schema_at(schema: Any, root: Mapping[str, Any], path: Sequence[str | int]) -> Any:
    """Return the part of a schema for a path in its values; `True` if that is unknown.

    Args:
        root: the schema in which references are resolved.
    """
    part = _SubSchema(schema, root)
    for step in path:
        child: Any = True
        if isinstance(part.schema, Mapping) and part.schema.keys().isdisjoint(_COMBINED):
            properties, items = part.schema.get("properties"), part.schema.get("items")
            if isinstance(step, str) and isinstance(properties, Mapping):
                child = properties.get(step, True)
            elif isinstance(step, int) and isinstance(items, Mapping) and "prefixItems" not in part.schema:
                child = items
        part = _SubSchema(child, root)
    return part


_COMBINED = ("anyOf", "oneOf", "allOf", "not", "if", "patternProperties")


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        definitions = root.get("$defs")
        schema = definitions.get(name, True) if isinstance(definitions, Mapping) else True
    return True


def types_made(schema: Any) -> JsonTypes:
    """Return the types that a value of a schema may have."""
    return _types(schema if isinstance(schema, _SubSchema) else _SubSchema(schema, schema), accepts=False)


def types_accepted(schema: Any) -> JsonTypes:
    """Return the types that a parameter of a schema accepts, including types that are converted."""
    return _types(schema if isinstance(schema, _SubSchema) else _SubSchema(schema, schema), accepts=True)


def _types(part: _SubSchema, *, accepts: bool, depth: int = 0) -> JsonTypes:
    schema = part.schema
    if not isinstance(schema, Mapping) or depth > _MOST_STEPS:
        return ALL
    choices = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(choices, list):
        each = [_types(_SubSchema(choice, part.root), accepts=accepts, depth=depth + 1) for choice in choices]
        return frozenset().union(*each) or ALL
    written = schema.get("type")
    names = [written] if isinstance(written, str) else written
    if not isinstance(names, list) or not names or not ALL.issuperset(names):
        return ALL
    if accepts and ("enum" in schema or "const" in schema):
        return ALL
    if not accepts:
        # An integer is a number too.
        return frozenset(names) | (frozenset({"integer"}) if "number" in names else frozenset())
    # A date, a time or a duration may be given as a number.
    is_formatted = "format" in schema
    types: set[str] = set()
    for name in names:
        types |= _SCALARS if name == "string" and is_formatted else _CONVERTED.get(name, frozenset({name}))
    return frozenset(types)
