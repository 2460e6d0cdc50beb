"""Check the arguments of a call against the schema of its tool, before anything runs.

The value of a reference is unknown at this time, so errors that depend on it are dropped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

from dagwright.core.expressions.paths import format_path, with_parts
from dagwright.core.expressions.references import HINT_BUDGET, NameHints, listed, nearest
from dagwright.core.model import entity_arguments, text_formats
from dagwright.core.model.compiled import Binding, BindingPath
from dagwright.core.model.tools import ToolDeclaration, parameter_name
from dagwright.core.model.value_schemas import JSON_NAMES, TypeNames, ValueSchema, names_of_types, type_of

_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains", "dependentSchemas"})
_UNKNOWN = "\ue000"
"""Placeholder for an unknown value; any value would do, because errors about it are dropped."""

_MAX_PROBLEMS = 5
_MESSAGE_CHARACTERS = 400
_VALUE_SHOWN = 100

ArgumentProblem = tuple[BindingPath, str, str | None]
"""Path into the arguments, problem, and a hint."""


def refuse_remote(uri: str) -> Any:
    """Retriever for schemas: a schema must be self-contained, so that checking a plan never uses the network."""
    raise ValueError(f"a schema must not refer to {uri}")


@lru_cache(maxsize=512)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    keywords: dict[str, type[jsonschema_rs.KeywordValidator]] = {
        text_formats.KEYWORD: text_formats.TextFormat,
        entity_arguments.KEYWORD: entity_arguments.EntityIds,
    }
    return jsonschema_rs.Draft202012Validator(json.loads(schema_text), retriever=refuse_remote, keywords=keywords)


def validator_of(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Return the validator of a schema; equal schemas are compiled once.

    Raises:
        ValueError: the schema is invalid.
    """
    try:
        return _validator(json.dumps(schema, sort_keys=True))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise ValueError(f"not a valid JSON Schema: {str(error).splitlines()[0]:.200}") from None


class SchemaOfTool:
    """Input schema of one tool, ready to check many calls.

    Args:
        schema: JSON Schema of the arguments object.
        names: names of types in messages; with names other than those of JSON, messages are written for programmers.

    Raises:
        ValueError: the schema is invalid.
    """

    def __init__(self, schema: Mapping[str, Any], names: TypeNames = JSON_NAMES) -> None:
        self._validator = validator_of(schema)
        self._names_of_types = names
        self._schema = schema
        self._properties: Mapping[str, Any] = schema.get("properties", {})
        self._names = frozenset(self._properties)
        self._hints = NameHints(HINT_BUDGET)

    def problems_of(
        self, arguments: Mapping[str, Any], bindings: Sequence[Binding], *, has_dashes: bool = False
    ) -> Iterator[ArgumentProblem]:
        """Yield the problems of the arguments of one call, as far as they can be known before the run.

        Args:
            has_dashes: whether names are written with dashes (`order-id`) if the arguments themselves do not show it.
        """
        unknown: list[BindingPath] = [path for path, _ in bindings]
        written: Mapping[Any, str] = {}
        named = arguments
        if not arguments.keys() <= self._names:
            written = {parameter_name(key, self._properties): key for key in arguments}
            named = {name: arguments[key] for name, key in written.items()}
            unknown = [(parameter_name(str(path[0]), self._properties), *path[1:]) for path in unknown]
        if unknown:
            named = with_parts(named, [(path, _UNKNOWN) for path in unknown])
        if self._validator.is_valid(named):
            return
        near = self._near_parameters(named)
        for error in self._validator.iter_errors(named):
            if near and self._missing_parameters(error) & near:
                # A misspelt name was reported as unknown already.
                continue
            error_path = tuple(error.instance_path)
            if _depends_on_unknown(error_path, str(error.schema_path[-1]) if error.schema_path else "", unknown):
                continue
            error_path = (written.get(str(error_path[0]), error_path[0]), *error_path[1:]) if error_path else ()
            dashed = any("-" in key for key in arguments) or (has_dashes and not any("_" in key for key in arguments))
            yield from self._problems_of_error(error, error_path, dashed=dashed)

    def _near_parameters(self, named: Mapping[str, Any]) -> frozenset[str]:
        """Return the missing parameters that are nearest to the unknown arguments."""
        unknown_names = [name for name in named if name not in self._names] if not named.keys() <= self._names else []
        missing = self._names - named.keys() if unknown_names else ()
        return frozenset(
            near for name in unknown_names for near in nearest(name, sorted(missing), most=1, hints=self._hints)
        )

    def _missing_parameters(self, error: jsonschema_rs.ValidationError) -> frozenset[str]:
        """Return the parameters whose absence is the error."""
        if list(error.instance_path):
            return frozenset()
        missing = getattr(error.kind, "property", None)
        if isinstance(missing, str):
            return frozenset([missing])
        choices = self._schema["oneOf"] if list(error.schema_path) == ["oneOf"] else ()
        return frozenset(name for part in choices for name in part.get("required", ()))

    def _problems_of_error(
        self, error: jsonschema_rs.ValidationError, path: BindingPath, *, dashed: bool
    ) -> Iterator[ArgumentProblem]:
        """Yield the error of the library, with argument names spelled as in the call."""

        def spelt(name: str) -> str:
            return name.replace("_", "-") if dashed else name

        unexpected = getattr(error.kind, "unexpected", None)
        if unexpected and not path:
            known = [spelt(prop) for prop in self._properties]
            for name in unexpected:
                yield (name,), f"unknown argument {name!r}", self._hints.near(name, known)
            return
        if self._names_of_types is not JSON_NAMES:
            yield path, *self._message_for_programmers(error, path)
            return
        missing = None if path else getattr(error.kind, "property", None)
        if isinstance(missing, str):
            yield path, f'"{spelt(missing)}" is a required property', None
            return
        options = getattr(error.kind, "options", None)
        if isinstance(options, list):
            yield path, *_not_an_option(error.instance, options, self._hints)
            return
        yield (
            path,
            self._oneof_message(error) or _optional_message(error) or _type_message(error) or _short_message(error),
            None,
        )

    def _message_for_programmers(
        self, error: jsonschema_rs.ValidationError, path: BindingPath
    ) -> tuple[str, str | None]:
        """Return a message with the argument, the expected type and the given type, and a hint."""
        names, value = self._names_of_types, error.instance
        label = repr(str(path[0])) + format_path(path[1:]) if path else "the arguments"
        missing = getattr(error.kind, "property", None)
        if isinstance(missing, str):
            expected = names_of_types(ValueSchema(self._schema).at((*path, missing)).types, names)
            owner = f" of {label}" if path else ""
            return f"missing argument {missing!r}{owner}, of type {expected}", None
        options = getattr(error.kind, "options", None)
        if isinstance(options, list):
            message, hint = _not_an_option(value, options, self._hints)
            return f"{label}: {message}", hint
        accepted, given = ValueSchema(self._schema).at(path).types, type_of(value)
        if given not in accepted:
            shown = "" if value is None else f" {value!r:.60}"
            return f"{label} takes {names_of_types(accepted, names)}, not {names[given]}{shown}", None
        message = self._oneof_message(error) or _optional_message(error) or _short_message(error)
        return (f"{label}: {message}" if path else message), None

    def _oneof_message(self, error: jsonschema_rs.ValidationError) -> str | None:
        """Return a message for a `oneOf` over required names; the library's message quotes all arguments."""
        if list(error.schema_path) != ["oneOf"] or not all("required" in part for part in self._schema["oneOf"]):
            return None
        choices = [" and ".join(map(repr, part["required"])) for part in self._schema["oneOf"]]
        return f"exactly one of {' or '.join(choices)} must be given"


def _optional_message(error: jsonschema_rs.ValidationError) -> str | None:
    """Return a message for a value that may be null; the library's message names the null branch too."""
    if list(error.schema_path)[-1:] != ["anyOf"]:
        return None
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", ())
    messages = [[_short_message(each) for each in branch] for branch in branches if not _is_null_branch(branch)]
    return messages[0][0] if len(messages) == 1 and len(messages[0]) == 1 else None


def _short_message(error: jsonschema_rs.ValidationError) -> str:
    """Return the library's message, with a long value cut so that the reason after it remains."""
    message: str = error.message
    if len(message) <= _MESSAGE_CHARACTERS:
        return message
    value = json.dumps(error.instance, ensure_ascii=False, separators=(",", ":"))
    reason = message[len(value) :] if message.startswith(value) else message[-_VALUE_SHOWN:]
    return f"{message[:_VALUE_SHOWN]}…{reason}"


def _not_an_option(value: Any, options: Sequence[Any], hints: NameHints) -> tuple[str, str | None]:
    """Return the message and the hint for a value that is not in an enumeration."""
    texts = [option if isinstance(option, str) else json.dumps(option) for option in options]
    near = value if isinstance(value, str) else ""
    return f"{json.dumps(value)[:60]} is not one of {listed(texts, near=near, hints=hints)}", hints.near(near, texts)


def _type_message(error: jsonschema_rs.ValidationError) -> str | None:
    """Return a message with the expected types, if the value has none of them."""
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", ())
    kinds = [getattr(each.kind, "types", None) for branch in branches for each in branch]
    if not kinds or not all(isinstance(kind, list) for kind in kinds):
        return None
    names = dict.fromkeys(str(name) for kind in kinds for name in kind or ())
    return f"{json.dumps(error.instance)[:60]} is not of type {' or '.join(names)}"


def _is_null_branch(branch: Sequence[jsonschema_rs.ValidationError]) -> bool:
    return any(getattr(each.kind, "types", None) == ["null"] for each in branch)


def problem_of_call(
    tool: ToolDeclaration, arguments: Mapping[str, Any], *, unknown: Iterable[BindingPath] = ()
) -> str | None:
    """Return the problems of the arguments of one call as text, if the schema of the tool is known.

    Args:
        unknown: paths of values that only a worker fills in.
    """
    if tool.input_schema is None:
        return None
    bindings: list[Binding] = [(path, ()) for path in unknown]
    try:
        problems = [*islice(SchemaOfTool(tool.input_schema).problems_of(arguments, bindings), _MAX_PROBLEMS)]
    except ValueError:
        # The worker that published the schema checks the call.
        return None
    messages = [
        "/".join(["arguments", *map(str, error_path)]) + f": {message}" + (f"; {hint}" if hint else "")
        for error_path, message, hint in problems
    ]
    return "; ".join(messages) or None


def _depends_on_unknown(error_path: BindingPath, keyword: str, unknown: Sequence[BindingPath]) -> bool:
    for path in unknown:
        if error_path == path or error_path[: len(path)] == path:
            return True
        if path[: len(error_path)] == error_path and (
            keyword in _COMBINATORS or keyword in {"uniqueItems", "const", "enum"}
        ):
            return True
    return False
