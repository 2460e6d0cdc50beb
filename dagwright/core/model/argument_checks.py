"""Check the arguments of a call before the run: against the schema of the tool, and the kinds of entities it takes.

The value of a reference is unknown at this time, so errors that depend on such a value are dropped.

Three keywords in the schema of a parameter describe the entities whose ids the parameter takes:

- `x-dagwright-entity` lists the kinds of the entities, such as `["company", "fund"]`.
- `x-dagwright-other-than` names another parameter, which must have a different entity.
- `x-dagwright-entity-only` allows only one kind if another parameter has a certain value. With
  `{"role": {"person": ["SECRETARY"]}}`, the entity must be a person if `role` is `SECRETARY`.

If a tool has a parameter with `x-dagwright-entity`, or declares `returns`, the parameters without this keyword take no
entity. For any other tool the kinds are unknown, and nothing is rejected.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from dagwright.core.expressions.paths import format_path, replace_parts
from dagwright.core.expressions.references import Lookup, Placeholder, Reference, ResultOf
from dagwright.core.expressions.stored_values import BindingPath
from dagwright.core.model.compiled import Binding
from dagwright.core.model.json_schemas import ENTITY_KEYWORD, validator_of
from dagwright.core.model.resolvers import Resolver, join_kinds
from dagwright.core.model.tools import ToolDeclaration, parameter_name
from dagwright.core.model.value_schemas import JSON_NAMES, TypeNames, ValueSchema, format_types, type_of
from dagwright.core.name_hints import (
    DEFAULT_HINT_COST,
    HintBudget,
    find_nearest_names,
    format_names,
)

OTHER_ENTITY_KEYWORD: Final = "x-dagwright-other-than"
KIND_CONDITION_KEYWORD: Final = "x-dagwright-entity-only"

ArgumentProblem = tuple[BindingPath, str, str | None]
"""Path into the arguments, problem, and a hint."""

_UNKNOWN_KIND = ""
_UNIONS = ("anyOf", "oneOf")
_MAX_SEARCHED_NODES = 200
_MAX_LISTED_NODES = 3


def problem_of_kinds(tool: ToolDeclaration, resolver: Resolver) -> str | None:
    """Return the problem if a schema names unknown kinds; `None` also if the resolver declares no kinds."""
    properties = (tool.input_schema or {}).get("properties")
    for schema in properties.values() if isinstance(properties, Mapping) and resolver.kinds else ():
        kinds = _kinds_of(schema)
        if not all(kind in resolver.kinds for kind in kinds):
            return f"{ENTITY_KEYWORD} is {[*kinds]!r}, expected a list of some of {', '.join(resolver.kinds)}"
    return None


def accepted_kinds(tool: ToolDeclaration, key: str) -> tuple[str, ...] | None:
    """Return the kinds of entities that an argument takes: `()` for no entity, `None` if the kinds are unknown.

    Args:
        key: name of the argument as written, such as `order-id` or `order_id`.
    """
    schema = tool.input_schema
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping):
        return None
    kinds = _kinds_of(properties.get(parameter_name(key, properties)))
    if kinds or tool.returns is not None or any(map(_kinds_of, properties.values())):
        return kinds
    return None


def accepted_kinds_of_call(tool: ToolDeclaration, key: str, arguments: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the kinds of entities that an argument of one call takes; see `accepted_kinds`.

    Args:
        arguments: arguments of the call, as written; the value of another argument may allow one kind only.
    """
    return accepted_kinds_with_condition(tool, key, arguments).kinds


def kind_conditions(tool: ToolDeclaration, key: str) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the conditions on the kind of an argument: other argument -> kind -> values that allow only this kind."""
    properties = (tool.input_schema or {}).get("properties")
    schema = properties.get(parameter_name(key, properties)) if isinstance(properties, Mapping) else None
    conditions = schema.get(KIND_CONDITION_KEYWORD) if isinstance(schema, Mapping) else None
    return conditions if isinstance(conditions, Mapping) else {}


@dataclass(frozen=True, slots=True)
class AcceptedKinds:
    """Kinds that one argument of a call takes.

    Args:
        kinds: as in `accepted_kinds`.
        condition: the value of another argument that allows only these kinds, as text for a message:
            ` where 'role' is SECRETARY`; empty if there is no such value.
    """

    kinds: tuple[str, ...] | None
    condition: str = ""

    @property
    def description(self) -> str:
        """The kinds and the condition, for a message."""
        return join_kinds(self.kinds or ()) + self.condition


def accepted_kinds_with_condition(tool: ToolDeclaration, key: str, arguments: Mapping[str, Any]) -> AcceptedKinds:
    """Return the kinds that an argument of one call takes, and their condition."""
    if values_by_argument := kind_conditions(tool, key):
        properties = (tool.input_schema or {})["properties"]
        for argument, value in arguments.items():
            for kind, values in values_by_argument.get(parameter_name(argument, properties), {}).items():
                if value in values:
                    return AcceptedKinds((kind,), f" where {argument!r} is {value}")
    return AcceptedKinds(accepted_kinds(tool, key))


@dataclass(frozen=True, slots=True)
class EntityChecks:
    """Validation of the lookups and references of a plan against the kinds that its tools take.

    Args:
        resolver: resolver of the plan, which defines the entity types.
        producers: id of a node -> the tool that makes its result.
    """

    resolver: Resolver
    producers: Mapping[str, ToolDeclaration]

    def problems_of(
        self,
        tool: ToolDeclaration,
        bindings: Sequence[Binding],
        lookups: Collection[Lookup],
        *,
        node_id: str,
        arguments: Mapping[str, Any],
    ) -> Iterator[ArgumentProblem]:
        """Yield a problem for each argument whose lookup or reference has an entity of a wrong kind.

        Args:
            bindings: references in the arguments of one call; a lookup appears as the placeholder of its input.
            lookups: lookups of the call.
            node_id: id of the node that makes the call.
            arguments: arguments of the call, null at each reference.
        """
        lookups_by_input: Mapping[Reference, Lookup] = {
            Placeholder(lookup.input_name): lookup for lookup in lookups if lookup.known_as is None
        }
        for path, template in bindings:
            if len(path) != 1 or len(template) != 1:
                continue
            key, part = str(path[0]), template[0]
            if not isinstance(part, str) and (lookup := lookups_by_input.get(part)) is not None:
                argument_kinds = accepted_kinds_with_condition(tool, key, arguments)
                # An empty search text marks a text that the dialect could not parse and has reported.
                yield from self._lookup_problem(tool, key, lookup, argument_kinds) if lookup.search_text else ()
            elif isinstance(part, ResultOf) and (
                part.field == "identity" or (part.field, part.path) == ("result", ("id",))
            ):
                producer = self.producers.get(part.node_id)
                if producer is not None and producer.returns is not None and part.node_id != node_id:
                    argument_kinds = accepted_kinds_with_condition(tool, key, arguments)
                    yield from self._reference_problem(tool, key, part, argument_kinds, node_id=node_id)
        yield from _same_entity_problems(tool, bindings, lookups)

    def _lookup_problem(
        self, tool: ToolDeclaration, key: str, lookup: Lookup, argument_kinds: AcceptedKinds
    ) -> Iterator[ArgumentProblem]:
        kinds = argument_kinds.kinds
        if kinds is None:
            return
        searched_kinds = self.resolver.kinds_of(lookup.entity_type)
        if not kinds:
            if searched_kinds is None or key not in self.resolver.terms or key not in searched_kinds:
                hint = f"write the value of {key!r} itself, without a lookup"
                yield (key,), f"{tool.name}: {key!r} takes no entity, so it cannot have a lookup", hint
            return
        if searched_kinds is not None and not any(kind in kinds for kind in searched_kinds):
            lookup_text = f"{lookup.search_text!r:.80} is looked up as a {join_kinds(searched_kinds)}"
            message = f"{tool.name}: {key!r} takes a {argument_kinds.description}, and {lookup_text}"
            yield (key, "entity_type"), message, f"write the entity_type {join_kinds(kinds)} if that is the right type"

    def _reference_problem(
        self, tool: ToolDeclaration, key: str, reference: ResultOf, argument_kinds: AcceptedKinds, *, node_id: str
    ) -> Iterator[ArgumentProblem]:
        kinds, producer = argument_kinds.kinds, self.producers[reference.node_id]
        if kinds is None or can_make(producer, kinds, self.resolver):
            return
        reference_text = f"{reference} is the result of {producer.name}, a {producer.returns}"
        if not kinds:
            message = f"{tool.name}: {key!r} takes no entity, and {reference_text}"
            yield (key,), message, f"write the value of {key!r} itself, without a reference"
            return
        alternatives = (
            f"{other_node} makes a {producer.returns}"
            for other_node, producer in islice(self.producers.items(), _MAX_SEARCHED_NODES)
            if other_node != node_id and can_make(producer, kinds, self.resolver)
        )
        hint = "; ".join(islice(alternatives, _MAX_LISTED_NODES))
        yield (key,), f"{tool.name}: {key!r} takes a {argument_kinds.description}, and {reference_text}", hint or None


def can_make(producer: ToolDeclaration, kinds: Sequence[str], resolver: Resolver) -> bool:
    """Return whether a tool's result can be an entity of one of these kinds."""
    returns = producer.returns or ""
    # `None` is any kind of entities.
    kind = resolver.types.get(returns, _UNKNOWN_KIND) if resolver.types else returns
    return kind in kinds if kind is not None else bool(kinds)


def _same_entity_problems(
    tool: ToolDeclaration, bindings: Sequence[Binding], lookups: Collection[Lookup]
) -> Iterator[ArgumentProblem]:
    properties = tool.input_schema.get("properties") if tool.input_schema is not None else None
    if not isinstance(properties, Mapping) or len(bindings) < 2:
        return
    other_parameters = {
        name: schema[OTHER_ENTITY_KEYWORD]
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and OTHER_ENTITY_KEYWORD in schema
    }
    if not other_parameters:
        return
    # Known entities are compared by id only, because the kinds of their lookups may differ. Lookups without a text were
    # reported before.
    entity_by_reference: Mapping[Any, Any] = {
        Placeholder(lookup.input_name): lookup if lookup.known_as is None else lookup.search_text
        for lookup in lookups
        if lookup.search_text
    }
    entities = {
        parameter_name(str(path[0]), properties): (str(path[0]), entity_by_reference.get(template[0], template[0]))
        for path, template in bindings
        if len(path) == 1
        and len(template) == 1
        and (template[0] in entity_by_reference or isinstance(template[0], ResultOf))
    }
    for name, other_parameter in other_parameters.items():
        if name in entities and other_parameter in entities and entities[name][1] == entities[other_parameter][1]:
            key, other_key = entities[name][0], entities[other_parameter][0]
            yield (
                (key,),
                f"{tool.name}: {key!r} is the same entity as {other_key!r}, and must be a different entity",
                None,
            )


def _kinds_of(schema: Any) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(kinds_of_schema := schema.get(ENTITY_KEYWORD), list):
        return tuple(kinds_of_schema)
    parts = (part for union in _UNIONS for part in schema.get(union, ()))
    return next((kinds for part in parts if (kinds := _kinds_of(part))), ())


_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains", "dependentSchemas"})
_UNKNOWN_VALUE = "\ue000"
"""Placeholder for an unknown value; errors about the placeholder are dropped."""

_MAX_PROBLEMS = 5
_MESSAGE_CHARACTERS = 400
_VALUE_CHARACTERS = 100


class SchemaOfTool:
    """Input schema of one tool, ready to check many calls.

    Args:
        schema: JSON Schema of the arguments object.
        names: names of types in messages. With `JSON_NAMES`, the messages quote the schema library. With other names,
            the messages are for programmers: they name the argument, the expected type and the actual type.

    Raises:
        ValueError: the schema is invalid.
    """

    def __init__(self, schema: Mapping[str, Any], names: TypeNames = JSON_NAMES) -> None:
        self._validator = validator_of(schema)
        self._names_of_types = names
        self._schema = schema
        self._properties: Mapping[str, Any] = schema.get("properties", {})
        self._parameter_names = frozenset(self._properties)
        self._hint_budget = HintBudget(DEFAULT_HINT_COST)

    def problems_of(
        self, arguments: Mapping[str, Any], bindings: Sequence[Binding], *, dialect_has_dashes: bool = False
    ) -> Iterator[ArgumentProblem]:
        """Yield the problems of the arguments of one call, as far as they can be known before the run.

        Args:
            dialect_has_dashes: whether the dialect writes `order-id`, not `order_id`; ignored if an argument name of
                the call has `-` or `_`.
        """
        unknown_paths: list[BindingPath] = [path for path, _ in bindings]
        written_keys: Mapping[Any, str] = {}
        arguments_by_parameter = arguments
        if not arguments.keys() <= self._parameter_names:
            written_keys = {parameter_name(key, self._properties): key for key in arguments}
            arguments_by_parameter = {name: arguments[key] for name, key in written_keys.items()}
            unknown_paths = [(parameter_name(str(path[0]), self._properties), *path[1:]) for path in unknown_paths]
        if unknown_paths:
            arguments_by_parameter = replace_parts(
                arguments_by_parameter, [(path, _UNKNOWN_VALUE) for path in unknown_paths]
            )
        if self._validator.is_valid(arguments_by_parameter):
            return
        near_parameters = self._near_parameters(arguments_by_parameter)
        for error in self._validator.iter_errors(arguments_by_parameter):
            if near_parameters and self._missing_parameters(error) & near_parameters:
                # A misspelt name was reported as unknown already.
                continue
            error_path = tuple(error.instance_path)
            keyword = str(error.schema_path[-1]) if error.schema_path else ""
            if _depends_on_unknown(error_path, keyword, unknown_paths):
                continue
            error_path = (written_keys.get(str(error_path[0]), error_path[0]), *error_path[1:]) if error_path else ()
            uses_dashes = any("-" in key for key in arguments) or (
                dialect_has_dashes and not any("_" in key for key in arguments)
            )
            yield from self._problems_of_error(error, error_path, uses_dashes=uses_dashes)

    def _near_parameters(self, arguments_by_parameter: Mapping[str, Any]) -> frozenset[str]:
        """Return the missing parameters that are nearest to the unknown arguments."""
        unknown_names = (
            [name for name in arguments_by_parameter if name not in self._parameter_names]
            if not arguments_by_parameter.keys() <= self._parameter_names
            else []
        )
        missing_names = self._parameter_names - arguments_by_parameter.keys() if unknown_names else ()
        return frozenset(
            near_name
            for name in unknown_names
            for near_name in find_nearest_names(name, sorted(missing_names), limit=1, budget=self._hint_budget)
        )

    def _missing_parameters(self, error: jsonschema_rs.ValidationError) -> frozenset[str]:
        """Return the parameters whose absence is the error."""
        if list(error.instance_path):
            return frozenset()
        missing_name = getattr(error.kind, "property", None)
        if isinstance(missing_name, str):
            return frozenset([missing_name])
        choices = self._schema["oneOf"] if list(error.schema_path) == ["oneOf"] else ()
        return frozenset(name for part in choices for name in part.get("required", ()))

    def _problems_of_error(
        self, error: jsonschema_rs.ValidationError, path: BindingPath, *, uses_dashes: bool
    ) -> Iterator[ArgumentProblem]:
        """Yield the error of the library, with argument names spelled as in the call."""

        def spell(name: str) -> str:
            return name.replace("_", "-") if uses_dashes else name

        unexpected_names = getattr(error.kind, "unexpected", None)
        if unexpected_names and not path:
            known_names = [spell(parameter) for parameter in self._properties]
            for name in unexpected_names:
                yield (
                    (name,),
                    f"unknown argument {name!r}",
                    self._hint_budget.suggestion(name, known_names),
                )
            return
        if self._names_of_types is not JSON_NAMES:
            yield path, *self._message_for_programmers(error, path)
            return
        missing_name = None if path else getattr(error.kind, "property", None)
        if isinstance(missing_name, str):
            yield path, f'"{spell(missing_name)}" is a required property', None
            return
        options = getattr(error.kind, "options", None)
        if isinstance(options, list):
            yield path, *_option_problem(error.instance, options, self._hint_budget)
            return
        yield (
            path,
            self._oneof_message(error) or _optional_message(error) or _type_message(error) or _short_message(error),
            None,
        )

    def _message_for_programmers(
        self, error: jsonschema_rs.ValidationError, path: BindingPath
    ) -> tuple[str, str | None]:
        """Return a message with the argument, the expected type and the actual type, and a hint."""
        names, value = self._names_of_types, error.instance
        label = repr(str(path[0])) + format_path(path[1:]) if path else "the arguments"
        missing_name = getattr(error.kind, "property", None)
        if isinstance(missing_name, str):
            expected_type = format_types(ValueSchema(self._schema).at((*path, missing_name)).types, names)
            owner = f" of {label}" if path else ""
            return f"missing argument {missing_name!r}{owner}, of type {expected_type}", None
        options = getattr(error.kind, "options", None)
        if isinstance(options, list):
            message, hint = _option_problem(value, options, self._hint_budget)
            return f"{label}: {message}", hint
        accepted_types, actual_type = ValueSchema(self._schema).at(path).types, type_of(value)
        if actual_type not in accepted_types:
            value_text = "" if value is None else f" {value!r:.60}"
            return f"{label} takes {format_types(accepted_types, names)}, not {names[actual_type]}{value_text}", None
        message = self._oneof_message(error) or _optional_message(error) or _short_message(error)
        return (f"{label}: {message}" if path else message), None

    def _oneof_message(self, error: jsonschema_rs.ValidationError) -> str | None:
        """Return a message for a `oneOf` over required names, because the library's message quotes all arguments."""
        if list(error.schema_path) != ["oneOf"] or not all("required" in part for part in self._schema["oneOf"]):
            return None
        choices = [" and ".join(map(repr, part["required"])) for part in self._schema["oneOf"]]
        return f"exactly one of {' or '.join(choices)} must be given"


def _optional_message(error: jsonschema_rs.ValidationError) -> str | None:
    """Return a message for a value that may be null, because the library's message names the null branch too."""
    if list(error.schema_path)[-1:] != ["anyOf"]:
        return None
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", ())
    messages = [
        [_short_message(branch_error) for branch_error in branch] for branch in branches if not _is_null_branch(branch)
    ]
    return messages[0][0] if len(messages) == 1 and len(messages[0]) == 1 else None


def _short_message(error: jsonschema_rs.ValidationError) -> str:
    """Return the library's message, with a long value cut so that the reason after it remains."""
    message: str = error.message
    if len(message) <= _MESSAGE_CHARACTERS:
        return message
    value = json.dumps(error.instance, ensure_ascii=False, separators=(",", ":"))
    reason = message[len(value) :] if message.startswith(value) else message[-_VALUE_CHARACTERS:]
    return f"{message[:_VALUE_CHARACTERS]}…{reason}"


def _option_problem(value: Any, options: Sequence[Any], hint_budget: HintBudget) -> tuple[str, str | None]:
    """Return the message and the hint for a value that is not in an enumeration."""
    texts = [option if isinstance(option, str) else json.dumps(option) for option in options]
    name = value if isinstance(value, str) else ""
    message = f"{json.dumps(value)[:60]} is not one of {format_names(texts, nearest_to=name, budget=hint_budget)}"
    return message, hint_budget.suggestion(name, texts)


def _type_message(error: jsonschema_rs.ValidationError) -> str | None:
    """Return a message with the expected types, if the value has none of them."""
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", ())
    type_lists = [getattr(branch_error.kind, "types", None) for branch in branches for branch_error in branch]
    if not type_lists or not all(isinstance(types, list) for types in type_lists):
        return None
    names = dict.fromkeys(str(name) for types in type_lists for name in types or ())
    return f"{json.dumps(error.instance)[:60]} is not of type {' or '.join(names)}"


def _is_null_branch(branch: Sequence[jsonschema_rs.ValidationError]) -> bool:
    return any(getattr(branch_error.kind, "types", None) == ["null"] for branch_error in branch)


def problem_of_call(
    tool: ToolDeclaration, arguments: Mapping[str, Any], *, unknown_paths: Iterable[BindingPath] = ()
) -> str | None:
    """Return the problems of the arguments of one call as text, if the schema of the tool is known.

    Args:
        unknown_paths: paths of values that only a worker fills in.
    """
    if tool.input_schema is None:
        return None
    bindings: list[Binding] = [(path, ()) for path in unknown_paths]
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


def _depends_on_unknown(error_path: BindingPath, keyword: str, unknown_paths: Sequence[BindingPath]) -> bool:
    for path in unknown_paths:
        if error_path == path or error_path[: len(path)] == path:
            return True
        if path[: len(error_path)] == error_path and (
            keyword in _COMBINATORS or keyword in {"uniqueItems", "const", "enum"}
        ):
            return True
    return False
