"""Narrow each lookup to the kinds of entities that the argument with the lookup accepts.

If a lookup leaves the kind open (its `entity_type` is `entity`), only these kinds are searched, offered or created. The
tool would reject an entity of another kind, but only after other nodes have run. If several arguments have the same
lookup, only the kinds that all of these arguments accept are possible.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dagwright.core.expressions.reference_parser import contains_reference
from dagwright.core.expressions.references import BY_ID, Lookup, Reference
from dagwright.core.model.argument_checks import AcceptedKinds, accepted_kinds_of_call, accepted_kinds_with_condition
from dagwright.core.model.plan import Node
from dagwright.core.model.resolvers import Resolver, join_kinds
from dagwright.core.model.tools import ToolDeclaration

ArgumentParts = Mapping[str, Reference | Lookup]
"""Name of an argument of a node -> the lookup or reference that the dialect found in it."""

KindProblem = tuple[int, str, str, str]
"""Number of the node, name of the argument, problem, and a hint."""


@dataclass(frozen=True, slots=True)
class _LookupArgument:
    """An argument with a lookup."""

    index: int
    node: Node
    key: str
    accepted_kinds: AcceptedKinds


@dataclass(slots=True)
class _SharedLookup:
    """All arguments with the same lookup, and the kinds that they have in common.

    Args:
        kinds: empty if the arguments have no kind in common.
        uses: the arguments, in plan order.
    """

    kinds: tuple[str, ...]
    uses: list[_LookupArgument] = field(default_factory=list)


class LookupKinds:
    """The lookups of one plan, narrowed to the kinds that their arguments accept.

    Args:
        nodes: nodes of the plan by number.
        dialect_parts: lookups and references that the dialect found, by number of the node.
        tools: tools by name.
        resolver: resolver of the plan, which defines the entity types.
        reads_ids: whether a text in an entity argument is the id of the entity.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        dialect_parts: Mapping[int, ArgumentParts],
        tools: Mapping[str, ToolDeclaration],
        *,
        resolver: Resolver,
        reads_ids: bool,
    ) -> None:
        self._resolver = resolver
        self._dialect_parts = dialect_parts
        self._tools = tools
        self._reads_ids = reads_ids
        self._shared_lookups: dict[Lookup, _SharedLookup] = {}
        for index, node in nodes.items():
            tool = tools.get(node.tool or "")
            for key, part in dialect_parts.get(index, {}).items() if tool is not None else ():
                if tool is not None and isinstance(part, Lookup) and self._is_of_any_kind(part):
                    self._add(
                        part,
                        _LookupArgument(index, node, key, accepted_kinds_with_condition(tool, key, node.arguments)),
                    )

    def _add(self, lookup: Lookup, use: _LookupArgument) -> None:
        # `None`: the kinds are unknown. `()`: an argument that takes no entity needs no lookup.
        if not use.accepted_kinds.kinds:
            return
        shared_lookup = self._shared_lookups.setdefault(lookup, _SharedLookup(self._resolver.kinds))
        shared_lookup.kinds = tuple(kind for kind in shared_lookup.kinds if kind in use.accepted_kinds.kinds)
        shared_lookup.uses.append(use)

    def parts_of(self, index: int, node: Node) -> dict[str, Reference | Lookup]:
        """Return the lookups and references of a node. If `reads_ids`, each id in an entity argument becomes a lookup.

        Complexity: linear in the arguments of the node.
        """
        parts: dict[str, Reference | Lookup] = {}
        dialect_parts, tool = self._dialect_parts.get(index, {}), self._tools.get(node.tool or "")
        for key, part in dialect_parts.items():
            if not isinstance(part, Lookup):
                parts[key] = part
            elif part.known_as is None:
                parts[key] = self._narrow_lookup(part)
            elif tool is not None and (kinds := accepted_kinds_of_call(tool, key, node.arguments)):
                parts[key] = replace(part, entity_type=join_kinds(kinds))
        if tool is not None and self._reads_ids:
            for key, value in node.arguments.items():
                if key in dialect_parts or not isinstance(value, str) or contains_reference(value):
                    continue
                if kinds := accepted_kinds_of_call(tool, key, node.arguments):
                    parts[key] = Lookup(value, join_kinds(kinds), known_as=BY_ID)
        return parts

    def _is_of_any_kind(self, lookup: Lookup) -> bool:
        # An empty search text marks a text that the dialect could not parse and has reported.
        return (
            bool(lookup.search_text) and lookup.known_as is None and self._resolver.kinds_of(lookup.entity_type) is None
        )

    def _narrow_lookup(self, lookup: Lookup) -> Lookup:
        shared_lookup = self._shared_lookups.get(lookup)
        if shared_lookup is None or len(shared_lookup.kinds) in (0, len(self._resolver.kinds)):
            return lookup
        return replace(lookup, entity_type=join_kinds(shared_lookup.kinds))

    def problems(self) -> Iterator[KindProblem]:
        """Yield a problem for each lookup whose arguments have no kind in common."""
        for lookup, shared_lookup in self._shared_lookups.items():
            if shared_lookup.kinds:
                continue
            first_use, last_use = shared_lookup.uses[0], shared_lookup.uses[-1]
            conflicting_use = next(
                (use for use in shared_lookup.uses if not _have_kind_in_common(use, last_use)), first_use
            )
            message = (
                f"{last_use.node.tool}: {last_use.key!r} takes a {last_use.accepted_kinds.description}, but "
                f"{lookup.search_text!r:.80} is also the lookup of {conflicting_use.key!r} of "
                f"{conflicting_use.node.id}, which takes a {conflicting_use.accepted_kinds.description}"
            )
            hint = "write the entity_type of each lookup if two entities are meant"
            yield last_use.index, last_use.key, message, hint


def _have_kind_in_common(use: _LookupArgument, other_use: _LookupArgument) -> bool:
    return any(kind in (other_use.accepted_kinds.kinds or ()) for kind in use.accepted_kinds.kinds or ())
