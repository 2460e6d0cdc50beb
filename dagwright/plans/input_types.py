"""JSON Schemas from Python types, for the inputs of a plan built in Python."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from dagwright.core.model.value_schemas import ValueSchema

_MAX_REF_DEPTH = 20


def input_schema_of(annotation: Any) -> dict[str, Any]:
    """Return a JSON Schema, with a `type` and without definitions, for a Python type or for the name of a JSON type.

    Raises:
        TypeError: the type has no JSON Schema, or is recursive.
    """
    if isinstance(annotation, str):
        return {"type": annotation}
    try:
        schema = TypeAdapter(annotation).json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
        raise TypeError(f"an input cannot be of type {annotation!r}: {str(error).splitlines()[0]}") from None
    types = ValueSchema(schema).types
    inline_schema: dict[str, Any] = _inline_definitions(schema, schema.pop("$defs", {}), ref_depth=0)
    inline_schema.pop("title", None)
    if "type" not in inline_schema:
        inline_schema = {"type": sorted(types), **inline_schema}
    return inline_schema


def _inline_definitions(schema: Any, definitions: Mapping[str, Any], *, ref_depth: int) -> Any:
    if ref_depth > _MAX_REF_DEPTH:
        raise TypeError("an input cannot be of a type that contains itself")
    if isinstance(schema, list):
        return [_inline_definitions(part, definitions, ref_depth=ref_depth) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        definition = definitions[schema["$ref"].removeprefix("#/$defs/")]
        other_keywords = {key: part for key, part in schema.items() if key != "$ref"}
        return _inline_definitions({**definition, **other_keywords}, definitions, ref_depth=ref_depth + 1)
    return {key: _inline_definitions(part, definitions, ref_depth=ref_depth) for key, part in schema.items()}
