"""Convert a JSON Schema to OpenAI's strict mode, and convert the model's output back to the original schema.

Strict mode supports only a subset of JSON Schema: every object is closed, every property is required, and the root is
an object. So an optional property becomes nullable, and an object with arbitrary keys or a value of any type becomes a
string that contains JSON. Other unsupported keywords are dropped, because the output is validated against the original
schema.

Source: OpenAI's guide to Structured Outputs, section on supported schemas.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_SUPPORTED_KEYWORDS = ("type", "enum", "const", "description", "title", "pattern", "format", "$ref")
_SUPPORTED_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems")
_SUPPORTED_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())  # noqa: SIM905
_WRAPPER_PROPERTY = "value"
"""Property of the object that wraps an answer that is not an object."""
_JSON_TEXT_DESCRIPTION = "The value as a text of JSON."
_NULL: Schema = {"type": "null"}


class StrictSchema:
    """A schema in strict mode.

    Args:
        schema: any JSON Schema whose references point to its own `$defs` or `definitions`.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._is_wrapped = not _is_object_with_properties(_resolve_refs(schema, schema))
        root = (
            _to_strict(schema, schema)
            if not self._is_wrapped
            else _object_of({_WRAPPER_PROPERTY: _to_strict(schema, schema)})
        )
        if "$ref" in root:
            root = _to_strict(_resolve_refs(schema, schema), schema)
        definitions = {
            keyword: {name: _to_strict(part, schema) for name, part in schema[keyword].items()}
            for keyword in ("$defs", "definitions")
            if isinstance(schema.get(keyword), Mapping)
        }
        self.schema: dict[str, Any] = {**root, **definitions}

    def from_strict(self, output: Any) -> Any:
        """Convert a value from the strict to the original schema. Parts that violate the strict schema are kept."""
        if self._is_wrapped:
            if not isinstance(output, dict) or set(output) != {_WRAPPER_PROPERTY}:
                return output
            output = output[_WRAPPER_PROPERTY]
        return _from_strict(output, self._schema, self._schema)


def _object_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _resolve_refs(schema: Any, root: Schema) -> Schema:
    """Follow `$ref` to the referenced schema; return an empty schema if a reference cannot be resolved."""
    for _ in range(100):
        if not isinstance(schema, Mapping):
            return {}
        if "$ref" not in schema:
            return schema
        schema = _referenced_schema(schema["$ref"], root)
    return {}


def _referenced_schema(ref: Any, root: Schema) -> Any:
    if not isinstance(ref, str) or not ref.startswith("#"):
        return {}
    target: Any = root
    for step in ref.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return {}
        target = target[name]
    return target


def _types(schema: Schema) -> Sequence[str]:
    types = schema.get("type", ())
    if not types:
        # Some schemas omit a type that other keywords imply.
        inferred_types = [kind for keyword, kind in (("properties", "object"), ("items", "array")) if keyword in schema]
        return inferred_types or [kind for kind in dict.fromkeys(map(_type_of, schema.get("enum", ()))) if kind]
    return [types] if isinstance(types, str) else list(types)


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names.get(type(value), "")


def _is_object_with_properties(schema: Schema) -> bool:
    return _types(schema) == ["object"] and bool(schema.get("properties")) and "anyOf" not in schema


def _choices(schema: Schema) -> Sequence[Any]:
    return schema.get("anyOf") or schema.get("oneOf") or ()


def _requires_json_text(schema: Schema) -> bool:
    """Check whether a schema allows any value or an object with arbitrary keys, which strict mode does not support."""
    if "$ref" in schema or "enum" in schema or "const" in schema or _choices(schema):
        return False
    types = _types(schema)
    allows_any_keys = not schema.get("properties") and schema.get("additionalProperties") is not False
    return not types or ("object" in types and allows_any_keys)


def _merge_all_of(schema: Schema, root: Schema) -> Schema:
    """Merge the parts of `allOf` into a schema, as far as their keywords can be merged."""
    merged_schema = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    for part in schema.get("allOf", ()):
        part_schema = _merge_all_of(_resolve_refs(part, root), root)
        properties = {**merged_schema.get("properties", {}), **part_schema.get("properties", {})}
        required_names = [*merged_schema.get("required", ()), *part_schema.get("required", ())]
        merged_schema = {**part_schema, **merged_schema}
        if properties:
            merged_schema |= {"properties": properties, "required": required_names}
    return merged_schema


def _to_strict(schema: Any, root: Schema) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or (_requires_json_text(schema) and "allOf" not in schema):
        description = schema.get("description") if isinstance(schema, Mapping) else None
        return {
            "type": "string",
            "description": f"{description} {_JSON_TEXT_DESCRIPTION}" if description else _JSON_TEXT_DESCRIPTION,
        }
    if "$ref" in schema:
        # Strict mode allows no keywords next to a reference.
        return {"$ref": schema["$ref"]}
    if "allOf" in schema:
        return _to_strict(_merge_all_of(schema, root), root)
    if _choices(schema):
        base = {"description": schema["description"]} if "description" in schema else {}
        return {**base, "anyOf": [_to_strict(choice, root) for choice in _choices(schema)]}
    strict_schema = {
        keyword: schema[keyword] for keyword in (*_SUPPORTED_KEYWORDS, *_SUPPORTED_BOUNDS) if keyword in schema
    }
    if strict_schema.get("format") not in _SUPPORTED_FORMATS:
        strict_schema.pop("format", None)
    if "const" in strict_schema:
        strict_schema["enum"] = [strict_schema.pop("const")]
    types = _types({**schema, **strict_schema})
    strict_schema["type"] = types[0] if len(types) == 1 else types
    if "object" in types:
        required_names = set(schema.get("required", ()))
        strict_schema |= _object_of(
            {
                name: _to_strict(part, root) if name in required_names else _make_nullable(_to_strict(part, root))
                for name, part in schema.get("properties", {}).items()
            }
        )
        strict_schema["type"] = types[0] if len(types) == 1 else types
    if "array" in types:
        strict_schema["items"] = _to_strict(schema.get("items", {}), root)
    return strict_schema


def _make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if _NULL in schema.get("anyOf", ()) or "null" in _types(schema):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], dict(_NULL)]}
    return {"anyOf": [schema, dict(_NULL)]}


def _from_strict(output: Any, schema: Any, root: Schema) -> Any:
    """Convert a value to the original schema: drop nulls of omitted properties, and parse strings that contain JSON."""
    resolved_schema = _resolve_refs(schema, root)
    if "allOf" in resolved_schema:
        resolved_schema = _merge_all_of(resolved_schema, root)
    if _requires_json_text(resolved_schema):
        return _parse_json_text(output)
    if _choices(resolved_schema):
        return _from_strict_choice(output, resolved_schema, root)
    if isinstance(output, list) and "array" in _types(resolved_schema):
        return [_from_strict(item, resolved_schema.get("items", {}), root) for item in output]
    if isinstance(output, dict) and "object" in _types(resolved_schema):
        properties, required_names = resolved_schema.get("properties", {}), set(resolved_schema.get("required", ()))
        return {
            name: _from_strict(value, properties.get(name, {}), root) if name in properties else value
            for name, value in output.items()
            if value is not None or name in required_names or _allows_null(properties.get(name), root)
        }
    return output


def _from_strict_choice(output: Any, schema: Schema, root: Schema) -> Any:
    """Convert a value with the first schema of `anyOf` or `oneOf` that it appears to match."""
    for choice in _choices(schema):
        resolved_schema = _resolve_refs(choice, root)
        if isinstance(output, dict):
            properties = resolved_schema.get("properties", {})
            is_match = properties and output.keys() <= properties.keys() and _has_allowed_values(output, properties)
        elif isinstance(output, list):
            is_match = "array" in _types(resolved_schema)
        elif isinstance(output, str):
            is_match = "string" in _types(resolved_schema) or _requires_json_text(resolved_schema)
        else:
            is_match = False
        if is_match:
            return _from_strict(output, choice, root)
    return output


def _has_allowed_values(output: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Check whether each field has an allowed value, if its property restricts the values."""
    for name, part in properties.items():
        allowed_values = [part["const"]] if "const" in part else part.get("enum")
        if allowed_values is not None and name in output and output[name] not in allowed_values:
            return False
    return True


def _allows_null(schema: Any, root: Schema) -> bool:
    resolved_schema = _resolve_refs(schema, root)
    if "null" in _types(resolved_schema) or None in resolved_schema.get("enum", ()):
        return True
    return any(_allows_null(choice, root) for choice in _choices(resolved_schema))


def _parse_json_text(output: Any) -> Any:
    """Parse a string that contains JSON. A value that the model wrote directly is returned unchanged."""
    if not isinstance(output, str):
        return output
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return output
