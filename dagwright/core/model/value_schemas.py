"""Schemas of values that exist only when a plan runs: their JSON types and their parts.

A `ValueSchema` never allows less than its JSON Schema: keywords that are not supported allow any value. Pydantic
validates the arguments of tools in its lax mode, which converts some types; `accepted_types` includes these types.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dagwright.core.name_hints import HintBudget, format_names, suggestion

JsonTypes = frozenset[str]
ALL_TYPES: JsonTypes = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_MAX_STEPS = 50
"""Maximum number of references that are followed to one schema, and maximum depth of a comparison. Circular schemas
would otherwise be processed without end."""
_MAX_CHOICES = 300
"""Maximum number of choices of one schema. The number of nested choices may grow exponentially, or without end if the
schema is circular."""
_SCALARS: JsonTypes = frozenset({"boolean", "integer", "number", "string"})
_CONVERTIBLE_TYPES: Mapping[str, JsonTypes] = {"boolean": _SCALARS, "integer": _SCALARS, "number": _SCALARS}
"""Type of a parameter -> types of values that pydantic's lax mode may convert to this type."""
_OPEN_KEYWORDS = ("allOf", "not", "if", "patternProperties", "$dynamicRef", "unevaluatedProperties", "dependentSchemas")
"""Keywords that allow parts not listed in `properties` and `items`."""

TypeNames = Mapping[str, str]
"""JSON type -> its name in messages."""
JSON_NAMES: TypeNames = {name: name for name in ALL_TYPES}
PYTHON_NAMES: TypeNames = {
    "array": "list", "boolean": "bool", "integer": "int", "null": "None", "number": "float", "object": "dict",
    "string": "str",
}  # fmt: skip


def format_types(types: JsonTypes, names: TypeNames) -> str:
    """Return types as text; with `PYTHON_NAMES`, `float` includes integers."""
    named_types = types - {"integer"} if names is PYTHON_NAMES and "number" in types else types
    return " or ".join(sorted(names[json_type] for json_type in named_types))


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """JSON Schema of a value, as far as it is known.

    Args:
        schema: a JSON Schema, whose parts may be `ValueSchema`s; `True` for any value.
        root: the schema in which references are resolved; by default `schema`.
    """

    schema: Any = True
    root: Any = None

    @classmethod
    def of_value(cls, value: Any) -> "ValueSchema":
        """Return a schema that matches this JSON value and no other value."""
        if isinstance(value, Mapping):
            return cls.of_object({name: cls.of_value(part) for name, part in value.items()})
        if isinstance(value, list | tuple):
            return cls.of_items([cls.of_value(part) for part in value])
        return cls({"type": type_of(value), "const": value})

    @classmethod
    def of_object(cls, properties: "Mapping[str, ValueSchema]") -> "ValueSchema":
        """Return the schema of an object with exactly these properties."""
        keywords = {"type": "object", "additionalProperties": False, "required": [*properties]}
        return cls({**keywords, "properties": properties})

    @classmethod
    def of_items(cls, items: "Sequence[ValueSchema]") -> "ValueSchema":
        """Return the schema of a list of exactly these items."""
        return cls({"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)})

    @classmethod
    def any_of(cls, *choices: "ValueSchema") -> "ValueSchema":
        """Return the schema of a value that matches one of several schemas."""
        return choices[0] if len(choices) == 1 else cls({"anyOf": choices})

    @property
    def types(self) -> JsonTypes:
        """The JSON types that the value may have."""
        return frozenset().union(*(_types_of(choice.schema) for choice in self.choices()))

    @property
    def accepted_types(self) -> JsonTypes:
        """The types of values that a parameter of this schema accepts, including types that are converted."""
        return frozenset().union(*(_accepted_types(choice.schema) for choice in self.choices()))

    @property
    def constants(self) -> list[Any] | None:
        """The constants that the schema lists as allowed values; `None` if it does not list them."""
        constants: list[Any] = []
        for choice in self.choices():
            values = _constants_of(choice.schema)
            if values is None:
                return None
            constants += values
        return constants

    @property
    def properties(self) -> list[str]:
        """The names of the declared parts of an object."""
        schemas = [choice.schema for choice in self.choices() if isinstance(choice.schema, Mapping)]
        return list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", ())))

    def choices(self) -> "Iterator[ValueSchema]":
        """Resolve references, `anyOf` and `oneOf`, and yield the alternative schemas of the value."""
        stack = [(self.schema, self.schema if self.root is None else self.root)]
        for _ in range(_MAX_CHOICES):
            if not stack:
                return
            schema, root = _resolve_refs(*stack.pop())
            choices = schema.get("anyOf", schema.get("oneOf")) if isinstance(schema, Mapping) else None
            if isinstance(choices, list | tuple) and choices:
                stack += [(choice, root) for choice in reversed(choices)]
            else:
                yield ValueSchema(schema, root)
        yield ANY

    def part(self, step: str | int) -> "ValueSchema | None":
        """Return the schema of a part of the value; `None` if the value cannot have the part."""
        parts = [part for choice in self.choices() if (part := choice._part_of_choice(step)) is not None]
        return ValueSchema.any_of(*parts) if parts else None

    def at(self, path: Sequence[str | int]) -> "ValueSchema":
        """Return the schema of the value at a path; `ANY` if the value cannot have such a part."""
        schema: ValueSchema | None = self
        for step in path:
            schema = schema.part(step) if schema is not None else None
        return schema or ANY

    def _part_of_choice(self, step: str | int) -> "ValueSchema | None":
        schema, types = self.schema, _types_of(self.schema)
        if not isinstance(schema, Mapping) or any(key in schema for key in _OPEN_KEYWORDS):
            return ANY
        if isinstance(step, int) and "array" in types:
            return self._item(step)
        if "object" not in types:
            return None
        properties, name = schema.get("properties"), str(step)
        if isinstance(properties, Mapping) and name in properties:
            return self._subschema(properties[name])
        additional_schema = schema.get("additionalProperties", properties is None)
        return None if additional_schema is False else self._subschema(additional_schema)

    def _item(self, step: int) -> "ValueSchema | None":
        prefix_items, max_items = self.schema.get("prefixItems", ()), self.schema.get("maxItems")
        if step < 0 and max_items is not None and max_items == self.schema.get("minItems"):
            step = step + max_items if step + max_items >= 0 else max_items
        if isinstance(max_items, int) and step >= max_items:
            return None
        if step < 0 and prefix_items:
            return ANY
        return self._subschema(prefix_items[step] if 0 <= step < len(prefix_items) else self.schema.get("items", True))

    def _subschema(self, schema: Any) -> "ValueSchema":
        return schema if isinstance(schema, ValueSchema) else ValueSchema(schema, self.root)

    def problem_of(
        self, step: str | int, *, names: TypeNames, hint_budget: HintBudget | None = None
    ) -> tuple[str, str | None] | None:
        """Return why the value cannot have the part `step`, with a hint; `None` if the value may have the part."""
        if self.part(step) is not None:
            return None
        types, property_names = self.types, self.properties
        if isinstance(step, str) and "object" in types:
            hint = suggestion(step, property_names, budget=hint_budget)
            return f"it has {format_names(property_names, nearest_to=step, budget=hint_budget) or 'no parts'}", hint
        if isinstance(step, int) and "array" in types:
            return "it has fewer items", None
        hint = "write [0] for the first item" if "array" in types else None
        expected = names["object" if isinstance(step, str) else "array"]
        return f"it is {format_types(types, names)}, not {expected}", hint


ANY = ValueSchema()
"""Schema of any value."""
TEXT = ValueSchema({"type": "string"})
INTEGER = ValueSchema({"type": "integer"})


def never_equal_problem(
    operand_text: str, value: Any, constants: Sequence[Any], *, hint_budget: HintBudget | None = None
) -> tuple[str, str | None]:
    """Return the message and the hint for a comparison that is always false.

    Args:
        operand_text: text of the operand that is always one of the constants.
        value: value with which the operand is compared.
    """
    names = [constant if isinstance(constant, str) else json.dumps(constant) for constant in constants]
    hint = suggestion(value, names, budget=hint_budget) if isinstance(value, str) else None
    known_names = format_names(names, nearest_to=value if hint else "", limit=10, budget=hint_budget)
    return f"{operand_text} is never {value!r:.80}: it is one of {known_names}", hint


def type_of(value: Any) -> str:
    """Return the JSON type of a JSON value."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", tuple: "array"}
    return names.get(type(value), "object")


Mismatch = tuple[tuple[str | int, ...], Literal["type", "missing"]]
"""Path of a part, and the problem there."""


def find_mismatch(value_schema: ValueSchema, expected: ValueSchema, *, depth: int = 0) -> Mismatch | None:
    """Return the mismatch at the deepest path, if no value of `value_schema` matches `expected`; otherwise `None`.

    Like a type checker, the comparison converts nothing. Lists of different item types never match, although both
    lists may be empty.
    """
    mismatches: list[Mismatch] = []
    for choice in value_schema.choices():
        for expected_choice in expected.choices():
            mismatch = _mismatch_of_choice(choice, expected_choice, depth)
            if mismatch is None:
                return None
            mismatches.append(mismatch)
    return max(mismatches, key=lambda mismatch: len(mismatch[0]))


def _mismatch_of_choice(value_schema: ValueSchema, expected: ValueSchema, depth: int) -> Mismatch | None:
    common_types = _types_of(value_schema.schema) & _types_of(expected.schema)
    if not common_types:
        return (), "type"
    if len(common_types) > 1 or depth > _MAX_STEPS or not isinstance(value_schema.schema, Mapping):
        return None
    for step in _parts_of(value_schema.schema, expected.schema, common_types):
        part_schema, expected_part_schema = value_schema.part(step), expected.part(step)
        if expected_part_schema is None:
            continue
        if part_schema is None and step in expected.schema.get("required", ()):
            return (step,), "missing"
        if part_schema is None:
            continue
        mismatch = find_mismatch(part_schema, expected_part_schema, depth=depth + 1)
        if mismatch is not None:
            return (step, *mismatch[0]), mismatch[1]
    return None


def _parts_of(value_schema: Mapping[str, Any], expected: Any, types: JsonTypes) -> Sequence[str | int]:
    """Return the names or positions of the parts to compare in values of these types."""
    if types == {"array"}:
        expected_items = expected.get("prefixItems", ()) if isinstance(expected, Mapping) else ()
        return range(max(1, len(value_schema.get("prefixItems", ())), len(expected_items)))
    return [*expected.get("properties", ())] if types == {"object"} and isinstance(expected, Mapping) else []


def _resolve_refs(schema: Any, root: Any) -> tuple[Any, Any]:
    for _ in range(_MAX_STEPS):
        if isinstance(schema, ValueSchema):
            schema, root = schema.schema, schema.schema if schema.root is None else schema.root
        elif isinstance(schema, Mapping) and "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/$defs/")
            definitions = root.get("$defs") if isinstance(root, Mapping) else None
            schema = definitions.get(name, True) if isinstance(definitions, Mapping) else True
        elif isinstance(schema, Mapping) and _is_single(schema.get("allOf")):
            schema = schema["allOf"][0]
        else:
            return schema, root
    return True, root


def _is_single(choices: Any) -> bool:
    return isinstance(choices, list) and len(choices) == 1


def _constants_of(schema: Any) -> list[Any] | None:
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else [None] if schema.get("type") == "null" else None


def _types_of(schema: Any) -> JsonTypes:
    declared_types = schema.get("type") if isinstance(schema, Mapping) else None
    names = [declared_types] if isinstance(declared_types, str) else declared_types
    if not isinstance(names, list) or not names or not ALL_TYPES.issuperset(names):
        return ALL_TYPES
    # An integer is a number too.
    return frozenset(names) | (frozenset({"integer"}) if "number" in names else frozenset())


def _accepted_types(schema: Any) -> JsonTypes:
    types = _types_of(schema)
    if types == ALL_TYPES or "enum" in schema or "const" in schema:
        return ALL_TYPES
    # A date, a time or a duration may be passed as a number.
    convertible_types = {**_CONVERTIBLE_TYPES, "string": _SCALARS} if "format" in schema else _CONVERTIBLE_TYPES
    return frozenset().union(*(convertible_types.get(name, frozenset({name})) for name in types))
