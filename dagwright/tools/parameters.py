"""Derive a JSON Schema from a function's signature and docstring, and bind JSON objects to its arguments."""

import copy
import dataclasses
import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.json_schema import GenerateJsonSchema

from dagwright.core.model.tools import parameter_name
from dagwright.tools.docstrings import Documentation
from dagwright.tools.errors import InvalidArguments
from dagwright.tools.result_json import pointer_of

_VALIDATOR_TYPE_PREFIX = "function-"
"""Start of the type of a Python validator in pydantic's core schema. Such a validator may convert values in any way."""
_MAX_CACHED_SIGNATURES = 512
"""Maximum number of cached signatures. A process has about 100 tools, and loads some of them repeatedly."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How a tool receives its arguments.

    Args:
        schema: JSON Schema (2020-12) of the arguments object.
        adapter: validates the complete arguments object.
        model_parameter: name of the single parameter that receives the complete object as a model; `None` for keyword
            arguments.
        keyword_of_field: field of the arguments model -> keyword; empty for a model parameter.
        extra_adapter: validates arguments that have no parameter of their name; `None` rejects such arguments.
        plain_parameters: names of the parameters without custom validators. Each accepts exactly the values that the
            schema allows.
    """

    schema: Mapping[str, Any]
    adapter: TypeAdapter[Any]
    model_parameter: str | None = None
    keyword_of_field: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extra_adapter: TypeAdapter[Any] | None = None
    plain_parameters: tuple[str, ...] = ()

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the function for `arguments`; omitted parameters keep their default.

        Args:
            arguments: keys as written; `-` may stand for `_`.

        Raises:
            InvalidArguments: names every invalid path; values are never shown, as they may be secrets.
        """
        if self.model_parameter is None and arguments.keys() <= self.schema["properties"].keys():
            # The common case; an invalid call is validated again for its error message.
            try:
                return self._keywords_of(self.adapter.validate_python(arguments))
            except ValidationError:
                pass
        named_arguments = self._rename_to_parameters(arguments)
        declared_arguments = {key: value for key, value in named_arguments.items() if key in self.schema["properties"]}
        extra_arguments = {key: value for key, value in named_arguments.items() if key not in declared_arguments}
        problems: list[str] = []
        if self.extra_adapter is None:
            problems += [f"{pointer_of((key,))}: no such parameter" for key in extra_arguments]
        values = declared_arguments if self.model_parameter is None else named_arguments
        validated_arguments = _validate(self.adapter, values, problems=problems)
        if self.extra_adapter is not None and self.model_parameter is None:
            extra_arguments = _validate(self.extra_adapter, extra_arguments, problems=problems)
        if problems:
            raise InvalidArguments("Invalid arguments: " + "; ".join(problems))
        if self.model_parameter is not None:
            return {self.model_parameter: validated_arguments}
        return self._keywords_of(validated_arguments) | extra_arguments

    def _keywords_of(self, model: Any) -> dict[str, Any]:
        set_fields = model.model_fields_set
        return {
            keyword: getattr(model, field) for field, keyword in self.keyword_of_field.items() if field in set_fields
        }

    def _rename_to_parameters(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        named_arguments: dict[str, Any] = {}
        for key, value in arguments.items():
            name = parameter_name(key, self.schema["properties"])
            if name in named_arguments:
                raise InvalidArguments(f"Invalid arguments: {pointer_of((key,))}: {name} is given twice")
            named_arguments[name] = value
        return named_arguments


def parameters_of(function: Callable[..., Any], documentation: Documentation) -> Parameters:
    """Derive how `function` receives a JSON object.

    Raises:
        TypeError: a parameter cannot be filled from JSON; the message names it.
    """
    parameters, hints = _signature_parameters(function), hints_of(function)
    if len(parameters) == 1 and _is_model(hints.get(parameters[0].name)):
        return _model_parameters(parameters[0].name, hints[parameters[0].name])
    return _derive_parameters(parameters, hints, descriptions=documentation.descriptions)


def keyword_parameters(function: Callable[..., Any], documentation: Documentation) -> Parameters:
    """Derive how `function` receives a JSON object with one key per parameter, even if its only parameter is a model.

    Raises:
        TypeError: a parameter cannot be filled from JSON; the message names it.
    """
    return _derive_parameters(
        _signature_parameters(function), hints_of(function), descriptions=documentation.descriptions
    )


def _signature_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"parameter {parameter.name!r} has no keyword; arguments of a tool are passed by name")
        if parameter.annotation is parameter.empty and parameter is parameters[0] and parameter.name in ("self", "cls"):
            raise TypeError("it is a method; decorate a function that calls the method")
        if parameter.annotation is parameter.empty:
            advice = f"`{parameter.name}: str`, or `{parameter.name}: Any` for any JSON value"
            raise TypeError(f"parameter {parameter.name!r} has no type annotation; write {advice}")
    return parameters


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters by name.

    Raises:
        TypeError: a type is not defined where the function is defined.
    """
    annotations = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    unwrapped_function = inspect.unwrap(function)
    scope = SimpleNamespace(__annotations__=annotations)
    try:
        return typing.get_type_hints(
            scope, unwrapped_function.__globals__, _closure(unwrapped_function), include_extras=True
        )
    except NameError as error:
        raise TypeError(f"the annotation {error.name!r} is not defined where the function is defined") from error


def output_schema_of(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a function's return value; `None` if its annotation is missing or unusable."""
    unwrapped_function = inspect.unwrap(function)
    annotations = inspect.get_annotations(function)
    if "return" not in annotations:
        return None
    scope = SimpleNamespace(__annotations__={"return": annotations["return"]})
    try:
        hint = typing.get_type_hints(
            scope, unwrapped_function.__globals__, _closure(unwrapped_function), include_extras=True
        )["return"]
        schema = _output_schema(_Hint(hint, repr(hint)))
    except PydanticUserError as error:
        if error.code == "typed-dict-version":
            raise TypeError(f"the type of the result: {_first_line(error)}") from error
        return None
    except (NameError, TypeError, PydanticSchemaGenerationError):
        return None
    return copy.deepcopy(schema) or None


@dataclass(frozen=True, slots=True)
class _Hint:
    """A type as a part of a cache key, with its repr, because `Annotated[int, 1]` equals `Annotated[int, True]`."""

    type: Any
    repr_text: str

    def __hash__(self) -> int:
        """Return the same hash for equal types, also for types that are not hashable."""
        return hash(self.repr_text)


@functools.lru_cache(maxsize=_MAX_CACHED_SIGNATURES)
def _output_schema(hint: _Hint) -> dict[str, Any]:
    return TypeAdapter(hint.type).json_schema(mode="serialization", schema_generator=_SchemaWithoutTitles)


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the closure variables that have a value. While a recursive tool is decorated, its name has no value."""
    definitions: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            definitions[name] = cell.cell_contents
    return definitions


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))


def _model_parameters(name: str, hint: Any) -> Parameters:
    adapter: TypeAdapter[Any] = _adapter(name, hint)
    schema = _schema(adapter)
    if schema.get("type") != "object" or ("properties" not in schema and "additionalProperties" not in schema):
        raise TypeError(f"parameter {name!r}: {hint.__name__} is not an object with named fields")
    schema.setdefault("properties", {})
    accepts_extra = schema.setdefault("additionalProperties", False) is not False
    return Parameters(schema, adapter, model_parameter=name, extra_adapter=TypeAdapter(Any) if accepts_extra else None)


@dataclass(frozen=True, slots=True)
class _ParameterKey:
    """A parameter as a part of a cache key: `default_json` is compared instead of `default`, as 1 equals `True`."""

    name: str
    kind: Any
    hint: _Hint
    default_json: str | None
    """JSON of the default; `None` if there is no default, or if the default is not JSON and so not in the schema."""
    has_default: bool
    description: str | None
    default: Any = dataclasses.field(compare=False)


def _derive_parameters(
    parameters: list[inspect.Parameter], hints: dict[str, Any], *, descriptions: Mapping[str, str]
) -> Parameters:
    """Return parameters whose schema the caller may change."""
    parameter_keys = [
        _parameter_key(parameter, hints.get(parameter.name, Any), descriptions.get(parameter.name))
        for parameter in parameters
    ]
    cached_parameters = _build_parameters(tuple(parameter_keys))
    return dataclasses.replace(cached_parameters, schema=copy.deepcopy(cached_parameters.schema))


def _parameter_key(parameter: inspect.Parameter, hint: Any, description: str | None) -> _ParameterKey:
    has_default = parameter.default is not parameter.empty
    default_json: str | None = None
    if has_default:
        with suppress(TypeError, ValueError):
            default_json = json.dumps(parameter.default, allow_nan=False)
    return _ParameterKey(
        name=parameter.name,
        kind=parameter.kind,
        hint=_Hint(hint, repr(hint)),
        default_json=default_json,
        has_default=has_default,
        description=description,
        default=parameter.default,
    )


@functools.lru_cache(maxsize=_MAX_CACHED_SIGNATURES)
def _build_parameters(parameters: tuple[_ParameterKey, ...]) -> Parameters:
    fields: dict[str, Any] = {}
    keyword_of_field: dict[str, str] = {}
    extra_adapter: TypeAdapter[Any] | None = None
    plain_parameters: list[str] = []
    for parameter in parameters:
        hint = parameter.hint.type
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra_adapter = _adapter(parameter.name, dict[str, hint])  # type: ignore[valid-type] # a run-time type
            continue
        if _VALIDATOR_TYPE_PREFIX not in repr(_adapter(parameter.name, hint).core_schema):
            plain_parameters.append(parameter.name)
        field = f"parameter_{len(keyword_of_field)}"
        keyword_of_field[field] = parameter.name
        fields[field] = (hint, _field(parameter))
    model = create_model("Arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    schema = _schema(adapter)
    schema.setdefault("properties", {})
    if extra_adapter is not None:
        schema["additionalProperties"] = _schema(extra_adapter).get("additionalProperties", True)
    return Parameters(
        schema,
        adapter,
        keyword_of_field=keyword_of_field,
        extra_adapter=extra_adapter,
        plain_parameters=tuple(plain_parameters),
    )


def _field(parameter: _ParameterKey) -> Any:
    if not parameter.has_default:
        return Field(alias=parameter.name, description=parameter.description)
    default = parameter.default
    if parameter.default_json is None:
        # A default that is not JSON cannot be in the schema; the function's own default applies anyway.
        return Field(alias=parameter.name, description=parameter.description, default_factory=lambda: default)
    return Field(alias=parameter.name, description=parameter.description, default=default)


def _adapter(name: str, hint: Any) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        adapter.json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = _first_line(error).partition(". Set `arbitrary_types_allowed")[0]
        advice = "use JSON types, dataclasses, TypedDicts or pydantic models"
        raise TypeError(f"parameter {name!r} cannot be filled from JSON: {reason}; {advice}") from error
    return adapter


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Omit the titles that pydantic derives from names, because they repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def _schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=_SchemaWithoutTitles)
    if "$ref" in schema:
        # A recursive model: copy its definition to the top level, and leave all definitions in `$defs`.
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    return {key: value for key, value in schema.items() if key != "title"}


def _validate(adapter: TypeAdapter[Any], value: Mapping[str, Any], *, problems: list[str]) -> Any:
    try:
        return adapter.validate_python(dict(value))
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False, include_context=False):
            path = _path_of(problem["loc"], value, is_missing=problem["type"] == "missing")
            problems.append(f"{pointer_of(path) or '/'}: {problem['msg']}")
        return {}


def _path_of(location: tuple[str | int, ...], value: Any, *, is_missing: bool) -> tuple[str | int, ...]:
    """Return the part of pydantic's location that exists in the value; the location also contains union members."""
    path: list[str | int] = []
    for index, step in enumerate(location):
        is_key = isinstance(value, Mapping) and step in value
        is_index = isinstance(value, list) and isinstance(step, int)
        if is_key or is_index:
            path.append(step)
            value = value[step]
        elif is_missing and index == len(location) - 1:
            path.append(step)
    return tuple(path)
