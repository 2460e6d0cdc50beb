"""The verbs as a readable file: parameters (by value, lookup or reference), effects and results.

The file is generated from the declarations of the tools, which also validate plans and describe the tools to models.
This module must not import the database.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter

from dagwright.plugins.entities import TEXT_FORMAT, ToolDeclaration, accepted_kinds, can_make, kind_conditions
from dagwright.tools import ToolSpec
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.onboarding import onboarding_tools

CATALOGUE_FILE = Path(__file__).parent.parent / "docs" / "verbs.yaml"

_HEAD = """\
# The onboarding verbs, generated from dagwright_onboarding/onboarding.py by `make docs-schema`; see onboarding.md.
# A parameter with `lookups` takes the result of a lookup for one of these entity types. A parameter with `refs` takes a
# party: the result of one of these verbs, a context name, or an id. Other parameters take a value in `params`. `only`
# lists the values of another parameter that restrict the party to one kind.
"""
_TYPES = {"string": "text", "boolean": "true or false", "array": "list", "object": "object", "integer": "number"}
_NULL = {"type": "null"}


def catalogue_text() -> str:
    """Return the content of the file."""
    specs = onboarding_tools("sqlite:///never-opened.db")
    declarations = [spec.declaration for spec in specs]
    hidden_names = {RESOLVER.find, RESOLVER.bind, *(declaration.undo for declaration in declarations)}
    verbs = {spec.name: _verb(spec, declarations) for spec in specs if spec.name not in hidden_names}
    return _HEAD + yaml.safe_dump(
        {"verbs": verbs}, sort_keys=False, allow_unicode=True, width=150, default_flow_style=None
    )


def _verb(spec: ToolSpec, declarations: Sequence[ToolDeclaration]) -> dict[str, Any]:
    declaration = spec.declaration
    schema: Mapping[str, Any] = declaration.input_schema or {}
    parameters = {
        name.replace("_", "-"): _parameter(declaration, name, field_schema, declarations)
        | ({"required": True} if name in schema["required"] else {})
        for name, field_schema in schema["properties"].items()
    }
    optional_fields = {"sets": f"@{declaration.sets}" if declaration.sets else None, "undo": declaration.undo}
    return {
        "description": declaration.description,
        "effects": declaration.effects.value,
        "parameters": parameters,
        "returns": {"id": f"of a {declaration.returns}", **_fields(spec)},
        **{name: value for name, value in optional_fields.items() if value is not None},
    }


def _parameter(
    verb: ToolDeclaration, name: str, schema: Mapping[str, Any], declarations: Sequence[ToolDeclaration]
) -> dict[str, Any]:
    description: dict[str, Any] = {"description": schema["description"]}
    kinds = accepted_kinds(verb, name)
    if not kinds:
        return {**description, **_type_of(schema), **({"lookups": [name]} if name in RESOLVER.terms else {})}
    return {
        **description,
        "lookups": [entity_type for entity_type, kind in RESOLVER.types.items() if kind is None or kind in kinds],
        "refs": [maker.name for maker in declarations if can_make(maker, kinds, RESOLVER)],
        **(
            {"only": {parameter: dict(values_by_kind) for parameter, values_by_kind in conditions.items()}}
            if (conditions := kind_conditions(verb, name))
            else {}
        ),
    }


def _type_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in schema.get("anyOf", [schema]) if choice != _NULL]
    if "enum" in choices[0]:
        return {"one_of": list(choices[0]["enum"])}
    text_format = choices[0].get(TEXT_FORMAT)
    return {"type": _TYPES[choices[0]["type"]], **({"format": text_format} if text_format is not None else {})}


def _fields(spec: ToolSpec) -> dict[str, str]:
    """Return the fields of a result except `id`, each with its type in words."""
    result_schema = TypeAdapter(get_type_hints(spec.function)["return"]).json_schema()
    return {
        name: _type_text(field_schema) for name, field_schema in result_schema["properties"].items() if name != "id"
    }


def _type_text(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join("null" if choice == _NULL else _type_text(choice) for choice in schema["anyOf"])
    if schema.get("type") == "array":
        items = schema["items"]
        return "list of objects" if "$ref" in items else f"list of {_TYPES[items['type']]}s"
    return _TYPES[schema["type"]]
