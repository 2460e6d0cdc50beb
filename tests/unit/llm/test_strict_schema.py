"""Conversion of schemas to the strict form of OpenAI, and of strict answers to the original form."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dagwright.core.model.json_schemas import validator_of
from dagwright.llm.strict_schema import StrictSchema
from dagwright.testing.protocol import strict_schema_problem


class Leaf(BaseModel):
    kind: Literal["leaf"]
    value: int | str | None = None
    tags: list[str] = Field(default=[], max_length=3)


class Tree(BaseModel):
    kind: Literal["tree"] = "tree"
    left: "Tree | Leaf"
    named: dict[str, Leaf] = {}
    anything: Any = None
    pair: tuple[int, str] | None = None
    note: str | None = Field(default=None, description="For people.", min_length=2)


JSON_TEXT = {"type": "string", "description": "The value as a text of JSON."}
NULL = {"type": "null"}
CLOSED_OBJECT = {"type": "object", "additionalProperties": False}


def test_pydantic_schema_becomes_strict_and_an_answer_is_converted_back() -> None:
    schema = Tree.model_json_schema()
    strict_schema = StrictSchema(schema)
    assert strict_schema_problem(strict_schema.schema) == ""
    assert strict_schema.schema["$defs"]["Leaf"]["properties"] == {
        "kind": {"type": "string", "enum": ["leaf"], "title": "Kind"},
        "value": {"anyOf": [{"type": "integer"}, {"type": "string"}, NULL]},
        "tags": {"anyOf": [{"type": "array", "title": "Tags", "maxItems": 3, "items": {"type": "string"}}, NULL]},
    }
    strict_left = {"kind": "leaf", "value": "7", "tags": None}
    answer = {"kind": None, "left": strict_left, "named": '{"x": {"kind": "leaf"}}', "anything": "[1, 2]"}
    actual = strict_schema.from_strict({**answer, "pair": None, "note": "ok"})
    fields = {"left": {"kind": "leaf", "value": "7"}, "named": {"x": {"kind": "leaf"}}, "anything": [1, 2]}
    assert actual == {**fields, "pair": None, "note": "ok"}
    assert Tree.model_validate(actual).left == Leaf(kind="leaf", value="7")


@pytest.mark.parametrize(
    ("schema", "strict_property", "answer", "value"),
    [
        ({}, JSON_TEXT, "[1]", [1]),
        (True, JSON_TEXT, "no JSON", "no JSON"),
        ({"type": "object"}, JSON_TEXT, '{"a": 1}', {"a": 1}),
        ({"type": "object"}, JSON_TEXT, {"a": 1}, {"a": 1}),
        ({"type": "integer", "minimum": 3, "default": 4}, {"type": "integer", "minimum": 3}, 5, 5),
        ({"type": "string", "minLength": 2, "format": "odd"}, {"type": "string"}, "ab", "ab"),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}, "2024-01-01", "2024-01-01"),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}, "a", "a"),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}, None, None),
        ({"const": 3}, {"type": "integer", "enum": [3]}, 3, 3),
        ({"oneOf": [{"type": "integer"}, NULL]}, {"anyOf": [{"type": "integer"}, NULL]}, None, None),
        ({"items": {"type": "integer"}}, {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        ({"type": "array"}, {"type": "array", "items": JSON_TEXT}, ["1", "x"], [1, "x"]),
        (CLOSED_OBJECT, CLOSED_OBJECT | {"properties": {}, "required": []}, {}, {}),
    ],
)
def test_schema_keyword_is_converted_to_its_strict_form(
    schema: Any, strict_property: Any, answer: Any, value: Any
) -> None:
    strict_schema = StrictSchema({"type": "object", "properties": {"x": schema}, "required": ["x"]})
    assert strict_schema.schema["properties"]["x"] == strict_property
    assert strict_schema_problem(strict_schema.schema) == ""
    assert strict_schema.from_strict({"x": answer}) == {"x": value}


def test_all_of_and_references_are_resolved() -> None:
    named_schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    aged_schema = {"properties": {"age": {"type": "integer"}}, "required": ["age"]}
    merged_schema = {"allOf": [{"$ref": "#/$defs/Named"}, aged_schema]}
    schema = {"type": "object", "properties": {"x": merged_schema}, "required": ["x"], "$defs": {"Named": named_schema}}
    strict_schema = StrictSchema(schema)
    assert strict_schema.schema["properties"]["x"]["required"] == ["name", "age"]
    assert strict_schema.from_strict({"x": {"name": None, "age": 3}}) == {"x": {"age": 3}}
    node_reference = {"$ref": "#/$defs/Node"}
    node_schema = {"type": "object", "properties": {"next": node_reference}}
    strict_schema = StrictSchema({**node_reference, "$defs": {"Node": node_schema}})
    assert strict_schema_problem(strict_schema.schema) == ""
    assert strict_schema.from_strict({"next": {"next": None}}) == {"next": {}}


def test_value_with_an_unresolvable_reference_is_a_text_of_json() -> None:
    for ref in ("#/$defs/Gone", "other.json", "#/$defs/Me", 7):
        schema = {"type": "object", "properties": {"x": {"$ref": ref}}, "$defs": {"Me": {"$ref": "#/$defs/Me"}}}
        assert StrictSchema(schema).from_strict({"x": "1"}) == {"x": 1}


INTEGERS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize("schema", [INTEGERS, {"anyOf": [{"type": "integer"}, INTEGERS]}, {"type": "object"}])
def test_root_that_is_not_a_closed_object_is_wrapped(schema: Any) -> None:
    strict_schema = StrictSchema(schema)
    assert (strict_schema.schema["required"], strict_schema_problem(strict_schema.schema)) == (["value"], "")
    assert strict_schema.from_strict({"value": [1]}) == strict_schema.from_strict([1]) == [1]


def _object_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    property_sets = st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
    return property_sets.flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties))).map(
            lambda required: {"type": "object", "properties": properties, "required": sorted(required)}
        )
    )


_SCALAR_SCHEMAS = st.sampled_from([{"type": "integer"}, {"type": "boolean"}, {"type": "string", "enum": ["p", "q"]}])
_SCHEMAS = st.recursive(
    _SCALAR_SCHEMAS,
    lambda inner: st.one_of(_object_schemas(inner), inner.map(lambda item: {"type": "array", "items": item})),
)


def _values(schema: Any) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "integer":
            return st.integers()
        case "boolean":
            return st.booleans()
        case "string":
            return st.sampled_from(schema["enum"])
        case "array":
            return st.lists(_values(schema["items"]), max_size=2)
    required = {name: _values(schema["properties"][name]) for name in schema["required"]}
    optional = {name: _values(inner) for name, inner in schema["properties"].items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def _to_strict(value: Any, schema: Any) -> Any:
    """Return the value in the form that strict mode requires of a model."""
    if schema["type"] == "array":
        return [_to_strict(item, schema["items"]) for item in value]
    if schema["type"] == "object":
        properties = schema["properties"].items()
        return {name: _to_strict(value[name], inner) if name in value else None for name, inner in properties}
    return value


@given(_object_schemas(_SCHEMAS).flatmap(lambda schema: st.tuples(st.just(schema), _values(schema))))
def test_every_value_is_restored_from_its_strict_form(schema_and_value: tuple[Any, Any]) -> None:
    schema, value = schema_and_value
    strict_schema = StrictSchema(schema)
    strict_value = _to_strict(value, schema)
    assert strict_schema_problem(strict_schema.schema) == ""
    assert validator_of(strict_schema.schema).is_valid(strict_value)
    assert strict_schema.from_strict(strict_value) == value
