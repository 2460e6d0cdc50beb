"""Checks of values against the declared inputs of a plan.

A client checks the inputs before it starts a run. A sub-plan checks the inputs that its parent run passes, because
values from results are not known earlier.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.core.errors import Problem, pointer
from dagwright.core.expressions.stored_values import find_value_refs
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import Binding
from dagwright.core.model.value_schemas import JSON_NAMES, TypeNames
from dagwright.core.name_hints import suggestion

DeclaredInputs = Mapping[str, Mapping[str, Any]]
"""Name of an input -> its JSON Schema, with the additional keys `prompt` and `default`."""

_ADDITIONAL_KEYS = frozenset({"prompt", "default"})


_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_TYPES_OF_OTHER_LANGUAGES = {
    **dict.fromkeys(("int", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("str", "text", "date", "datetime", "file"), "string"),
    "bool": "boolean",
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map", "json"), "object"),
    **dict.fromkeys(("none", "nil"), "null"),
}
"""Type name in other languages -> JSON type."""
_VALUE_KEYWORDS = ("default", "enum", "const", "examples")
"""Keywords with plain values, which may look like schemas."""


def problems_of_types(
    schema: Any, *, at: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Yield the path, the message and the hint for each unknown type name in a schema."""
    if isinstance(schema, list):
        for index, part in enumerate(schema):
            yield from problems_of_types(part, at=(*at, index))
    if not isinstance(schema, Mapping):
        return
    types = schema.get("type")
    for name in types if isinstance(types, list) else [types]:
        if isinstance(name, str) and name not in _TYPES:
            json_type = _TYPES_OF_OTHER_LANGUAGES.get(name.casefold())
            hint = f"did you mean {json_type!r}?" if json_type else suggestion(name, _TYPES)
            message = f"{name!r:.60} is not a JSON type"
            yield (*at, "type"), message, hint or f"write one of {', '.join(_TYPES)}"
    for key, part in schema.items():
        if key not in _VALUE_KEYWORDS and isinstance(part, Mapping | list):
            yield from problems_of_types(part, at=(*at, key))


def schema_of(declared_inputs: DeclaredInputs, type_names: TypeNames = JSON_NAMES) -> SchemaOfTool:
    """Return the schema of an object with all inputs.

    Args:
        type_names: names of types in messages.

    Raises:
        ValueError: the declaration of an input is not a JSON Schema.
    """
    properties = {
        name: {key: part for key, part in schema.items() if key not in _ADDITIONAL_KEYS}
        for name, schema in declared_inputs.items()
    }
    return SchemaOfTool({"type": "object", "properties": properties}, type_names)


def problems_of_missing_inputs(declared_inputs: DeclaredInputs, values: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for every input that has neither a value nor a default."""
    return [
        Problem(
            "missing_input",
            f"the input {name!r} is missing" + (f": {schema['prompt']}" if schema.get("prompt") else ""),
            pointer("inputs", name),
            hint=f"give it with --input {name}=VALUE, or in Python with inputs={{{name!r}: VALUE}}",
        )
        for name, schema in declared_inputs.items()
        if name not in values and "default" not in schema
    ]


def schema_of_missing_inputs(declared_inputs: DeclaredInputs, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the JSON Schema of a form for missing inputs; `None` if all inputs have a value or a default.

    The form also contains the inputs whose value is their default.
    """
    missing_names = [name for name, schema in declared_inputs.items() if name not in values and "default" not in schema]
    if not missing_names:
        return None
    return schema_of_form(
        {
            name: schema
            for name, schema in declared_inputs.items()
            if name in missing_names
            or ("default" in schema and values.get(name, schema["default"]) == schema["default"])
        }
    )


def schema_of_form(declared_inputs: DeclaredInputs) -> dict[str, Any]:
    """Return the JSON Schema of a form for these inputs; inputs without a default are required."""
    properties: dict[str, Any] = {}
    for name, schema in declared_inputs.items():
        default = {"default": schema["default"]} if "default" in schema else {}
        prompt = {"description": schema["prompt"]} if schema.get("prompt") else {}
        keywords = {key: part for key, part in schema.items() if key not in _ADDITIONAL_KEYS}
        properties[name] = keywords | prompt | default
    required_names = [name for name, schema in declared_inputs.items() if "default" not in schema]
    return {"type": "object", "properties": properties, "required": required_names, "additionalProperties": False}


def problems_of_inputs(declared_inputs: DeclaredInputs, values: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for every value that does not match the declaration of its input.

    Undeclared inputs and values in the payload store are not checked.
    """
    if not declared_inputs:
        return []
    declared_values = {name: value for name, value in values.items() if name in declared_inputs}
    stored_bindings: list[Binding] = [(path, ()) for path, _ in find_value_refs(declared_values)]
    return [
        Problem("invalid_field", f"the input {str(path[0])!r}: {message}", pointer("inputs", *path), hint=hint)
        for path, message, hint in schema_of(declared_inputs).problems_of(declared_values, stored_bindings)
    ]


def problems_of_defaults(declared_inputs: DeclaredInputs, type_names: TypeNames = JSON_NAMES) -> list[Problem]:
    """Return a problem for every default that does not match the declaration of its input.

    Args:
        type_names: names of types in messages.
    """
    defaults = {name: schema["default"] for name, schema in declared_inputs.items() if "default" in schema}
    return [
        Problem(
            "invalid_field",
            f"the default of the input {str(path[0])!r}, {json.dumps(defaults[str(path[0])])[:60]}: {message}",
            pointer("inputs", str(path[0]), "default", *path[1:]),
        )
        for path, message, _ in schema_of(declared_inputs, type_names).problems_of(defaults, ())
    ]
