"""Tables of the reference page about the plan format: types, defaults, descriptions and examples of the fields.

The tables are generated from the Pydantic classes of the plan and their JSON Schema.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from dagwright.core.model import plan as model
from dagwright.core.model.agents import InlineAgent
from dagwright.plans.schema import plan_schema
from scripts.reference.json_types import type_name
from scripts.reference.markdown import code, field_descriptions, first_paragraph, section, sentence, table

_PLAN_PATH = "dagwright/core/model/plan.py"
_SECTIONS: Mapping[type[BaseModel], str] = {
    model.PlanDocument: _PLAN_PATH,
    model.Input: _PLAN_PATH,
    model.Node: _PLAN_PATH,
    model.Human: _PLAN_PATH,
    model.OnTimeoutDefault: _PLAN_PATH,
    model.OnTimeoutEscalate: _PLAN_PATH,
    model.Retry: _PLAN_PATH,
    model.AtLeast: _PLAN_PATH,
    model.OnErrorValue: _PLAN_PATH,
    model.Cache: _PLAN_PATH,
    InlineAgent: "dagwright/core/model/agents.py",
}
"""Class -> file that defines it, in the order of the page."""
_EXAMPLE = re.compile(r"\s+Example: `(?P<example>[^`]+)`\Z")


def plan_sections() -> str:
    """Return a section for each Pydantic class of the plan format.

    Raises:
        ValueError: a field has no description or no example.
    """
    headings = ("Field", "Type", "Default", "Description", "Example")
    return "".join(
        section(
            document_class.__name__.removesuffix("Document"),
            first_paragraph(document_class.__doc__),
            table(headings, _rows(document_class, path)),
        )
        for document_class, path in _SECTIONS.items()
    )


def examples() -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield `CLASS.FIELD`, JSON Schema and example of each field."""
    for document_class, path in _SECTIONS.items():
        for name, schema, description in _fields(document_class, path):
            if match := _EXAMPLE.search(description):
                yield f"{document_class.__name__}.{name}", schema, match["example"]


def _rows(document_class: type[BaseModel], path: str) -> Iterator[tuple[str, ...]]:
    for name, schema, description in _fields(document_class, path):
        example = _EXAMPLE.search(description)
        if example is None:
            raise ValueError(f"{path}: {document_class.__name__}.{name} needs an example at the end of its description")
        yield (
            code(name),
            type_name(schema, link_template="#{name}"),
            _default(schema, is_required=name in _schema_of(document_class).get("required", ())),
            sentence(_EXAMPLE.sub("", description)),
            code(f"{name}: {example['example']}"),
        )


def _fields(document_class: type[BaseModel], path: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    descriptions = field_descriptions(path, document_class.__name__)
    for attribute, field in document_class.model_fields.items():
        name = field.alias or attribute
        if attribute not in descriptions:
            raise ValueError(f"{path}: {document_class.__name__}.{attribute} needs a description after its definition")
        yield name, _schema_of(document_class)["properties"][name], descriptions[attribute]


def _schema_of(document_class: type[BaseModel]) -> Mapping[str, Any]:
    schema = plan_schema()
    class_schema: Mapping[str, Any] = (
        schema if document_class is model.PlanDocument else schema["$defs"][document_class.__name__]
    )
    return class_schema


def _default(schema: Mapping[str, Any], *, is_required: bool) -> str:
    if is_required:
        return "required"
    default = schema.get("default")
    return "" if default is None else code(default if isinstance(default, str) else json.dumps(default))
