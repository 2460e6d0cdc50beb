"""Convert the Python values of a node to JSON: handles become references, pydantic converts other objects."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import pydantic_core
from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.times import Duration, format_duration
from dagwright.plans.expressions import Expression, Operand
from dagwright.plans.handles import Handle, HandleUse

ValuePath = tuple[str | int, ...]


@dataclass(slots=True)
class JsonWriter:
    """Converts values to JSON, and records their handles.

    Args:
        uses: the handles, each with its path in the converted value.
    """

    uses: list[tuple[ValuePath, HandleUse]] = field(default_factory=list)

    def write(self, value: object, at: ValuePath = ()) -> JsonValue:
        """Return a value as JSON.

        Raises:
            PlanInvalid: a part of the value is not JSON and cannot be converted.
        """
        if isinstance(value, Handle):
            self.uses.append((at, HandleUse(value)))
            return str(value)
        if isinstance(value, Text):
            self.uses += [(at, HandleUse(handle)) for handle in value.handles]
            return str(value)
        if isinstance(value, Mapping):
            return {_key(key, at): self.write(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.write(item, (*at, index)) for index, item in enumerate(value)]
        return _json_of(value, at)


def write_constant(value: object, *at: str) -> JsonValue:
    """Return a value without handles as JSON.

    Args:
        at: path of the field, for the message.

    Raises:
        PlanInvalid: the value has a handle, or is not JSON.
    """
    writer = JsonWriter()
    json_value = writer.write(value, at)
    for path, use in writer.uses:
        message = f"{use.handle!r} is used in {'.'.join(at)}, which is constant"
        raise PlanInvalid([Problem("invalid_reference", message, pointer(*path), hint="give a value")])
    return json_value


def write_duration(value: Duration, *at: str) -> str:
    """Return a duration in the plan format.

    Args:
        at: path of the field, for the message.

    Raises:
        PlanInvalid: the duration is invalid.
    """
    try:
        return format_duration(value)
    except ValueError as error:
        raise PlanInvalid([Problem("invalid_field", f"{'.'.join(at)}: {error}", pointer(*at))]) from None


def _key(key: object, at: ValuePath) -> str:
    if isinstance(key, Operand) or not isinstance(key, str):
        raise _not_json(key, at, "keys of objects are strings, and cannot be handles")
    return key


def _json_of(value: object, at: ValuePath) -> JsonValue:
    if value is None or (isinstance(value, bool | int | str) and type(value) in (bool, int, str)):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_json(value, at, "JSON has no such number")
    if isinstance(value, Expression):
        raise _not_json(value, at, "a condition is only allowed in when=; let a tool compute values of arguments")
    try:
        json_value: JsonValue = pydantic_core.to_jsonable_python(value)
    except (pydantic_core.PydanticSerializationError, ValueError):
        hint = "add it to the plan first, and give its handle" if callable(value) else "give a JSON value or a handle"
        raise _not_json(value, at, hint) from None
    return json_value


def _not_json(value: object, at: ValuePath, hint: str) -> PlanInvalid:
    message = f"{value!r:.80} of type {type(value).__name__} is not a JSON value"
    return PlanInvalid([Problem("invalid_arguments", message, pointer(*at), hint=hint)])


class Text:
    """A text with handles. Other text that looks like a reference stays literal."""

    __slots__ = ("_text", "handles")

    def __init__(self, template: str, values: Mapping[str, object]) -> None:
        """Fill a template like `str.format`: `{name}` is a value, `{{` a brace.

        Raises:
            TypeError: a value is missing or unused, or a format specification is given.
        """
        used_names: set[str] = set()
        parts: list[str | Handle[Any]] = [""]
        for literal, name, spec, conversion in Formatter().parse(template):
            parts = _with_part(parts, literal)
            if name is None:
                continue
            if spec or conversion:
                raise TypeError(f"{{{name}}}: a value cannot be formatted before the plan runs")
            if name not in values:
                raise TypeError(f"the text has {{{name}}}, but no value {name!r} is given")
            parts = _with_part(parts, values[name])
            used_names.add(name)
        if unused_names := sorted(values.keys() - used_names):
            raise TypeError(f"the text has no {{{unused_names[0]}}}")
        self.handles = [part for part in parts if isinstance(part, Handle)]
        self._text = "".join(part.replace("{{", "\\{{") if isinstance(part, str) else str(part) for part in parts)

    def __str__(self) -> str:
        """Return the text in the plan format."""
        return self._text

    def __repr__(self) -> str:
        return f"Text({self._text!r})"


def _with_part(parts: list[str | Handle[Any]], part: object) -> list[str | Handle[Any]]:
    """Append a part to a text. Adjacent strings are joined, because `{{` may be split between them."""
    last_part = parts[-1]
    if not isinstance(part, Handle):
        return [*parts[:-1], last_part + str(part)] if isinstance(last_part, str) else [*parts, str(part)]
    if isinstance(last_part, str) and last_part.endswith("\\"):
        raise TypeError(f"a backslash right before {part!r} cannot be written in a plan")
    return [*parts, part]
