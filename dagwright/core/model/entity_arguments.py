"""Entity arguments: which arguments of a tool are entities, and of which kinds, for the checks of a plan.

The keyword `x-dagwright-entity` in the schema of a parameter lists the kinds of entities whose ids it takes, such as
`["company", "fund"]`. Beside it, `x-dagwright-other-than` names the parameter that must have a different entity, and
`x-dagwright-entity-only` lists the values of other parameters that allow one kind only:
`{"role": {"person": ["SECRETARY"]}}`. If a tool has such a parameter, or declares `returns`, all its other
parameters take no entity. For any other tool the kinds are unknown, and nothing is refused.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from dagwright.core.expressions.references import Lookup, Placeholder, Reference, ResultOf
from dagwright.core.model.compiled import Binding, BindingPath
from dagwright.core.model.resolvers import Resolver, either
from dagwright.core.model.tools import ToolDeclaration, parameter_name

KEYWORD: Final = "x-dagwright-entity"
OTHER_THAN: Final = "x-dagwright-other-than"
ONLY: Final = "x-dagwright-entity-only"

EntityProblem = tuple[BindingPath, str, str | None]
"""Path into the arguments, problem, and a hint."""

_NO_ENTITY = ""
_UNIONS = ("anyOf", "oneOf")
_NODES_SEARCHED = 200
_NODES_LISTED = 3


class EntityIds:
    """The keyword `x-dagwright-entity`, in the interface that jsonschema_rs requires."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - the library's shape
        if not isinstance(value, list) or not value or not all(isinstance(kind, str) for kind in value):
            raise ValueError(f"{KEYWORD} is {value!r}, expected a list of kinds of entities")

    def validate(self, instance: Any) -> None:
        """Accept any value: only the call of the tool can decide whether a text is the id of an entity."""


def problem_of_kinds(tool: ToolDeclaration, resolver: Resolver) -> str | None:
    """Return the problem of the kinds that a schema names, if the resolver is known."""
    properties = (tool.input_schema or {}).get("properties")
    for schema in properties.values() if isinstance(properties, Mapping) and resolver.kinds else ():
        kinds = _kinds_of(schema)
        if not all(kind in resolver.kinds for kind in kinds):
            return f"{KEYWORD} is {[*kinds]!r}, expected a list of some of {', '.join(resolver.kinds)}"
    return None


def accepted_kinds(tool: ToolDeclaration, key: str) -> tuple[str, ...] | None:
    """Return the kinds of entities that an argument takes, `()` if it takes no entity; `None` if that is unknown.

    Args:
        key: as written, such as `order-id` or `order_id`.
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
        arguments: of the call, as written; the value of another argument may allow one kind only.
    """
    return accepted_by_call(tool, key, arguments).kinds


def only_kinds(tool: ToolDeclaration, key: str) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the values that allow one kind of entity for an argument: other argument -> kind -> its values."""
    properties = (tool.input_schema or {}).get("properties")
    schema = properties.get(parameter_name(key, properties)) if isinstance(properties, Mapping) else None
    kinds = schema.get(ONLY) if isinstance(schema, Mapping) else None
    return kinds if isinstance(kinds, Mapping) else {}


@dataclass(frozen=True, slots=True)
class AcceptedKinds:
    """Kinds that one argument of a call takes.

    Args:
        kinds: as in `accepted_kinds`.
        where: the value of another argument that allows no other kind, as words for a message.
    """

    kinds: tuple[str, ...] | None
    where: str = ""

    @property
    def description(self) -> str:
        """The kinds and the condition, for a message."""
        return either(self.kinds or ()) + self.where


def accepted_by_call(tool: ToolDeclaration, key: str, arguments: Mapping[str, Any]) -> AcceptedKinds:
    """Return the kinds that an argument of one call takes, and the condition; see `accepted_kinds_of_call`."""
    if narrowing := only_kinds(tool, key):
        properties = (tool.input_schema or {})["properties"]
        for written, value in arguments.items():
            for kind, values in narrowing.get(parameter_name(written, properties), {}).items():
                if value in values:
                    return AcceptedKinds((kind,), f" where {written!r} is {value}")
    return AcceptedKinds(accepted_kinds(tool, key))


@dataclass(frozen=True, slots=True)
class EntityChecks:
    """Check the lookups and references of a plan against the kinds that its tools take.

    Args:
        resolver: knows the entity types.
        made_by: id of a node -> the tool that makes its result.
    """

    resolver: Resolver
    made_by: Mapping[str, ToolDeclaration]

    def misplaced(
        self,
        tool: ToolDeclaration,
        bindings: Sequence[Binding],
        lookups: Collection[Lookup],
        *,
        node: str,
        arguments: Mapping[str, Any],
    ) -> Iterator[EntityProblem]:
        """Yield a problem for each lookup and each reference to an entity that the argument does not take.

        Args:
            bindings: the references in the arguments of one call; a lookup is in it as its input.
            lookups: those of the call.
            node: id of its node.
            arguments: of the call, null at each reference.
        """
        by_input: Mapping[Reference, Lookup] = {
            Placeholder(lookup.input): lookup for lookup in lookups if lookup.known_as is None
        }
        for path, template in bindings:
            if len(path) != 1 or len(template) != 1:
                continue
            key, part = str(path[0]), template[0]
            # The dialect has reported text that it could not read. Here it is a lookup with an empty text.
            if not isinstance(part, str) and (lookup := by_input.get(part)) is not None:
                accepted = accepted_by_call(tool, key, arguments)
                yield from self._lookup_problem(tool, key, lookup, accepted) if lookup.search_text else ()
            elif isinstance(part, ResultOf) and (
                part.field == "identity" or (part.field, part.path) == ("result", ("id",))
            ):
                maker = self.made_by.get(part.node)
                if maker is not None and maker.returns is not None and part.node != node:
                    accepted = accepted_by_call(tool, key, arguments)
                    yield from self._reference_problem(tool, key, part, accepted, node=node)
        yield from _same_entity_problems(tool, bindings, lookups)

    def _lookup_problem(
        self, tool: ToolDeclaration, key: str, lookup: Lookup, accepted: AcceptedKinds
    ) -> Iterator[EntityProblem]:
        kinds = accepted.kinds
        if kinds is None:
            return
        looked_up = self.resolver.kinds_of(lookup.entity_type)
        if not kinds:
            if looked_up is None or key not in self.resolver.terms or key not in looked_up:
                hint = f"give {key!r} as it is"
                yield (key,), f"{tool.name}: {key!r} takes no entity, so it cannot have a lookup", hint
            return
        if looked_up is not None and not any(kind in kinds for kind in looked_up):
            what = f"{lookup.search_text!r:.80} is looked up as a {either(looked_up)}"
            message = f"{tool.name}: {key!r} takes a {accepted.description}, and {what}"
            yield (key, "entity_type"), message, f"write the entity_type {either(kinds)} if it is one"

    def _reference_problem(
        self, tool: ToolDeclaration, key: str, reference: ResultOf, accepted: AcceptedKinds, *, node: str
    ) -> Iterator[EntityProblem]:
        kinds, maker = accepted.kinds, self.made_by[reference.node]
        if kinds is None or is_made(maker, kinds, self.resolver):
            return
        what = f"{reference} is the result of {maker.name}, a {maker.returns}"
        if not kinds:
            message = f"{tool.name}: {key!r} takes no id of another call's result, and {what}"
            yield (key,), message, f"give {key!r} as it is"
            return
        fitting = (
            f"{other} makes a {made.returns}"
            for other, made in islice(self.made_by.items(), _NODES_SEARCHED)
            if other != node and is_made(made, kinds, self.resolver)
        )
        hint = "; ".join(islice(fitting, _NODES_LISTED))
        yield (key,), f"{tool.name}: {key!r} takes a {accepted.description}, and {what}", hint or None


def is_made(maker: ToolDeclaration, kinds: Sequence[str], resolver: Resolver) -> bool:
    """Return whether the result of a tool can be an entity of one of these kinds."""
    returns = maker.returns or ""
    kind = resolver.types.get(returns, _NO_ENTITY) if resolver.types else returns
    return kind in kinds if kind is not None else bool(kinds)


def _same_entity_problems(
    tool: ToolDeclaration, bindings: Sequence[Binding], lookups: Collection[Lookup]
) -> Iterator[EntityProblem]:
    properties = tool.input_schema.get("properties") if tool.input_schema is not None else None
    if not isinstance(properties, Mapping) or len(bindings) < 2:
        return
    others = {
        name: schema[OTHER_THAN]
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and OTHER_THAN in schema
    }
    if not others:
        return
    # Parameters of different kinds may look up the same id; a lookup with an empty text has been reported before.
    meant: Mapping[Any, Any] = {
        Placeholder(lookup.input): lookup if lookup.known_as is None else lookup.search_text
        for lookup in lookups
        if lookup.search_text
    }
    entities = {
        parameter_name(str(path[0]), properties): (str(path[0]), meant.get(template[0], template[0]))
        for path, template in bindings
        if len(path) == 1 and len(template) == 1 and (template[0] in meant or isinstance(template[0], ResultOf))
    }
    for name, other in others.items():
        if name in entities and other in entities and entities[name][1] == entities[other][1]:
            key, other_key = entities[name][0], entities[other][0]
            yield (key,), f"{tool.name}: {key!r} is the same entity as {other_key!r}, and must be a different one", None


def _kinds_of(schema: Any) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(declared := schema.get(KEYWORD), list):
        return tuple(declared)
    parts = (part for union in _UNIONS for part in schema.get(union, ()))
    return next((kinds for part in parts if (kinds := _kinds_of(part))), ())
