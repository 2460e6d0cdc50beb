"""Which arguments of a tool are parties, and of which kinds: what may be looked up there, and referred to.

The keyword `x-dagwright-party` in the schema of a parameter lists the kinds of parties whose ids it takes, such as
`["company", "fund"]`; `x-dagwright-other-than` beside it names the parameter whose party it cannot be, and
`x-dagwright-party-only` the values of other parameters that leave one kind: `{"role": {"person": ["SECRETARY"]}}`. A
tool that has such a parameter, or that says what it `returns`, has said it of all its parameters: the others take no
party. Of any other tool nothing is known, and nothing is refused.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from dagwright.core.expressions.references import Lookup, Placeholder, Reference, ResultOf
from dagwright.core.model.compiled import Hole, HolePath
from dagwright.core.model.tools import ToolDeclaration, parameter_name
from dagwright.features.lookups.entity_types import KIND_OF, TERM_KINDS, either, kinds_of

KEYWORD: Final = "x-dagwright-party"
OTHER_THAN: Final = "x-dagwright-other-than"
ONLY: Final = "x-dagwright-party-only"

PARTY_KINDS: Final[Sequence[str]] = tuple(
    dict.fromkeys(kind for kind in KIND_OF.values() if kind is not None and kind not in TERM_KINDS)
)

PartyProblem = tuple[HolePath, str, str | None]
"""Where in the arguments, what is wrong, and a hint."""

_NO_PARTY = ""
_UNIONS = ("anyOf", "oneOf")
_NODES_LOOKED_AT = 200
_NODES_TOLD = 3


class PartyIds:
    """The keyword, as the library for schemas wants it."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: Any) -> None:  # noqa: ARG002 - the library's shape
        if not isinstance(value, list) or not value or any(kind not in PARTY_KINDS for kind in value):
            raise ValueError(f"{KEYWORD} is {value!r}, expected a list of some of {', '.join(PARTY_KINDS)}")

    def validate(self, instance: Any) -> None:
        """Takes any value: whether a text is the id of a party is known when the tool is called."""


def kinds_taken(tool: ToolDeclaration, key: str) -> tuple[str, ...] | None:
    """Returns the kinds of parties that an argument takes, none of them if it takes no party; `None` if nobody knows.

    Args:
        key: as written, so `cbu-id` or `cbu_id`.
    """
    schema = tool.input_schema
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping):
        return None
    kinds = _kinds_of(properties.get(parameter_name(key, properties)))
    if kinds or tool.returns is not None or any(map(_kinds_of, properties.values())):
        return kinds
    return None


def kinds_given(tool: ToolDeclaration, key: str, arguments: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the kinds of parties that an argument of one call takes; see `kinds_taken`.

    Args:
        arguments: of the call, as written; a value among them may leave one kind alone.
    """
    return taken_by_call(tool, key, arguments).kinds


def only_kinds(tool: ToolDeclaration, key: str) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Returns what leaves one kind of party for an argument: name of another argument -> kind -> its values."""
    properties = (tool.input_schema or {}).get("properties")
    schema = properties.get(parameter_name(key, properties)) if isinstance(properties, Mapping) else None
    found = schema.get(ONLY) if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Taken:
    """What one argument of a call takes.

    Args:
        kinds: as `kinds_taken` has them.
        where: what leaves no other kind, in words that follow it.
    """

    kinds: tuple[str, ...] | None
    where: str = ""

    @property
    def words(self) -> str:
        """The kinds, and what leaves no other, as a message names them."""
        return either(self.kinds or ()) + self.where


def taken_by_call(tool: ToolDeclaration, key: str, arguments: Mapping[str, Any]) -> Taken:
    """Returns what an argument of one call takes, and what leaves no other kind; see `kinds_given`."""
    if narrowing := only_kinds(tool, key):
        properties = (tool.input_schema or {})["properties"]
        for written, value in arguments.items():
            for kind, values in narrowing.get(parameter_name(written, properties), {}).items():
                if value in values:
                    return Taken((kind,), f" where {written!r} is {value}")
    return Taken(kinds_taken(tool, key))


def term_taken(key: str) -> str | None:
    """Returns the kind of terms whose code an argument takes that is called after it, such as `product`."""
    return key if key in TERM_KINDS else None


def misplaced_parties(
    tool: ToolDeclaration,
    holes: Sequence[Hole],
    lookups: Collection[Lookup],
    *,
    node: str,
    made_by: Mapping[str, ToolDeclaration],
    arguments: Mapping[str, Any],
) -> Iterator[PartyProblem]:
    """Yields each lookup and each reference to a party that stands where the tool does not take it, or a second time.

    Args:
        holes: the references in the arguments of one call; what is looked up stands there as its input.
        lookups: those of the call.
        node: id of its node.
        made_by: id of a node -> the tool that makes its result.
        arguments: of the call, null where a reference stands.
    """
    by_input: Mapping[Reference, Lookup] = {Placeholder(each.input): each for each in lookups if each.known_as is None}
    for path, template in holes:
        if len(path) != 1 or len(template) != 1:
            continue
        key, part = str(path[0]), template[0]
        # What the dialect could not read, and has told, stands as a lookup of nothing.
        if not isinstance(part, str) and (lookup := by_input.get(part)) is not None:
            yield from (
                _wrong_lookup(tool, key, lookup, taken_by_call(tool, key, arguments)) if lookup.search_text else ()
            )
        elif isinstance(part, ResultOf) and (
            part.field == "identity" or (part.field, part.path) == ("result", ("id",))
        ):
            maker = made_by.get(part.node)
            if maker is not None and maker.returns is not None and part.node != node:
                taken, others = taken_by_call(tool, key, arguments), _others(made_by, node)
                yield from _wrong_reference(tool, key, part, taken, maker=maker, others=others)
    yield from _same_parties(tool, holes, lookups)


def is_made(maker: ToolDeclaration, kinds: Sequence[str]) -> bool:
    """Tells whether what a tool makes can be a party of one of these kinds."""
    kind = KIND_OF.get(maker.returns or "", _NO_PARTY)
    return kind in kinds if kind is not None else bool(kinds)


def _same_parties(tool: ToolDeclaration, holes: Sequence[Hole], lookups: Collection[Lookup]) -> Iterator[PartyProblem]:
    properties = tool.input_schema.get("properties") if tool.input_schema is not None else None
    if not isinstance(properties, Mapping) or len(holes) < 2:
        return
    others = {
        name: schema[OTHER_THAN]
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and OTHER_THAN in schema
    }
    if not others:
        return
    # The same id may be looked at twice, for parameters that take other kinds; what was not read means nothing.
    meant: Mapping[Any, Any] = {
        Placeholder(each.input): each if each.known_as is None else each.search_text
        for each in lookups
        if each.search_text
    }
    given = {
        parameter_name(str(path[0]), properties): (str(path[0]), meant.get(template[0], template[0]))
        for path, template in holes
        if len(path) == 1 and len(template) == 1 and (template[0] in meant or isinstance(template[0], ResultOf))
    }
    for name, other in others.items():
        if name in given and other in given and given[name][1] == given[other][1]:
            key, other_key = given[name][0], given[other][0]
            yield (key,), f"{tool.name}: {key!r} is the same party as {other_key!r}, and has to be another one", None


def _wrong_lookup(tool: ToolDeclaration, key: str, lookup: Lookup, taken: Taken) -> Iterator[PartyProblem]:
    kinds = taken.kinds
    if kinds is None:
        return
    looked_up = kinds_of(lookup.entity_type)
    if not kinds:
        if looked_up is None or term_taken(key) not in looked_up:
            hint = f"give {key!r} as it is"
            yield (key,), f"{tool.name}: {key!r} takes no party, so nothing is looked up for it", hint
        return
    if looked_up is not None and not any(kind in kinds for kind in looked_up):
        what = f"{lookup.search_text!r:.80} is looked up as a {either(looked_up)}"
        message = f"{tool.name}: {key!r} takes a {taken.words}, and {what}"
        yield (key, "entity_type"), message, f"write the entity_type {either(kinds)} if it is one"


def _wrong_reference(
    tool: ToolDeclaration,
    key: str,
    reference: ResultOf,
    taken: Taken,
    *,
    maker: ToolDeclaration,
    others: Iterable[tuple[str, ToolDeclaration]],
) -> Iterator[PartyProblem]:
    kinds = taken.kinds
    if kinds is None or is_made(maker, kinds):
        return
    what = f"{reference} is what {maker.name} makes, a {maker.returns}"
    if not kinds:
        message = f"{tool.name}: {key!r} takes no id of what another call makes, and {what}"
        yield (key,), message, f"give {key!r} as it is"
        return
    fitting = (f"{node} makes a {other.returns}" for node, other in others if is_made(other, kinds))
    hint = "; ".join(islice(fitting, _NODES_TOLD))
    yield (key,), f"{tool.name}: {key!r} takes a {taken.words}, and {what}", hint or None


def _others(made_by: Mapping[str, ToolDeclaration], own: str) -> Iterator[tuple[str, ToolDeclaration]]:
    """Yields the nodes among which those that fit are looked for, for the sake of a hint."""
    return ((node, tool) for node, tool in islice(made_by.items(), _NODES_LOOKED_AT) if node != own)


def _kinds_of(schema: Any) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(found := schema.get(KEYWORD), list):
        return tuple(found)
    parts = (part for union in _UNIONS for part in schema.get(union, ()))
    return next((kinds for part in parts if (kinds := _kinds_of(part))), ())
