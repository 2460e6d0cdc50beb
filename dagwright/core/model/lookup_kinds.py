"""Which kinds of entities a lookup can mean: those that are taken where it stands.

Of one that says no kind (`entity`), no other kind is searched for, offered or created: an entity that the tool refuses
would be found out when other nodes have run. Where one lookup stands at several arguments, these are the kinds that
all of them take.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dagwright.core.expressions.references import BY_ID, Lookup, Reference, holds_reference
from dagwright.core.model.entity_arguments import Taken, kinds_given, taken_by_call
from dagwright.core.model.plan import Node
from dagwright.core.model.resolvers import Resolver, either
from dagwright.core.model.tools import ToolDeclaration

Parts = Mapping[str, Reference | Lookup]
"""Name of an argument of a node -> what the dialect found there."""

KindProblem = tuple[int, str, str, str]
"""Number of the node, name of the argument, what is wrong, and a hint."""


@dataclass(frozen=True, slots=True)
class _Use:
    """An argument at which something is looked up."""

    index: int
    node: Node
    key: str
    taken: Taken


@dataclass(slots=True)
class _Shared:
    """What all arguments take at which the same is looked up.

    Args:
        kinds: empty if no kind is taken by all.
        uses: in order.
    """

    kinds: tuple[str, ...]
    uses: list[_Use] = field(default_factory=list)


class LookupKinds:
    """The lookups of one plan with the kinds that they can mean.

    Args:
        nodes: by number.
        extra: what the dialect found in each.
        tools: by name.
        resolver: knows the entity types.
        reads_ids: whether a text that stands where an entity is taken is its id.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        extra: Mapping[int, Parts],
        tools: Mapping[str, ToolDeclaration],
        *,
        resolver: Resolver,
        reads_ids: bool,
    ) -> None:
        self._resolver = resolver
        self._extra = extra
        self._tools = tools
        self._reads_ids = reads_ids
        self._shared: dict[Lookup, _Shared] = {}
        for index, node in nodes.items():
            tool = tools.get(node.tool or "")
            for key, part in extra.get(index, {}).items() if tool is not None else ():
                if tool is not None and isinstance(part, Lookup) and self._is_of_any_kind(part):
                    self._add(part, _Use(index, node, key, taken_by_call(tool, key, node.arguments)))

    def _add(self, lookup: Lookup, use: _Use) -> None:
        # Of other tools nothing is known, and where no entity is taken nothing is looked up.
        if not use.taken.kinds:
            return
        shared = self._shared.setdefault(lookup, _Shared(self._resolver.kinds))
        shared.kinds = tuple(kind for kind in shared.kinds if kind in use.taken.kinds)
        shared.uses.append(use)

    def parts_of(self, index: int, node: Node) -> dict[str, Reference | Lookup]:
        """Returns what the dialect found in a node; of the entities that are known those that stand where one is taken.

        Complexity: linear in the arguments of the node.
        """
        found: dict[str, Reference | Lookup] = {}
        extra, tool = self._extra.get(index, {}), self._tools.get(node.tool or "")
        for key, part in extra.items():
            if not isinstance(part, Lookup):
                found[key] = part
            elif part.known_as is None:
                found[key] = self._narrowed(part)
            elif tool is not None and (kinds := kinds_given(tool, key, node.arguments)):
                found[key] = replace(part, entity_type=either(kinds))
        if tool is not None and self._reads_ids:
            for key, value in node.arguments.items():
                if key in extra or not isinstance(value, str) or holds_reference(value):
                    continue
                if kinds := kinds_given(tool, key, node.arguments):
                    found[key] = Lookup(value, either(kinds), known_as=BY_ID)
        return found

    def _is_of_any_kind(self, lookup: Lookup) -> bool:
        # What the dialect could not read, and has reported, stands as a lookup of nothing.
        return (
            bool(lookup.search_text) and lookup.known_as is None and self._resolver.kinds_of(lookup.entity_type) is None
        )

    def _narrowed(self, lookup: Lookup) -> Lookup:
        shared = self._shared.get(lookup)
        if shared is None or len(shared.kinds) in (0, len(self._resolver.kinds)):
            return lookup
        return replace(lookup, entity_type=either(shared.kinds))

    def problems(self) -> Iterator[KindProblem]:
        """Yields each lookup that stands where no entity can be of all kinds that are taken."""
        for lookup, shared in self._shared.items():
            if shared.kinds:
                continue
            first, last = shared.uses[0], shared.uses[-1]
            other = next((each for each in shared.uses if not _have_kind_in_common(each, last)), first)
            message = (
                f"{last.node.tool}: {last.key!r} takes a {last.taken.words}, and {lookup.search_text!r:.80} is looked"
                f" up for {other.key!r} of {other.node.id} too, which takes a {other.taken.words}"
            )
            hint = "write at each lookup the entity_type that is taken there, if two entities are meant"
            yield last.index, last.key, message, hint


def _have_kind_in_common(one: _Use, other: _Use) -> bool:
    return any(kind in (other.taken.kinds or ()) for kind in one.taken.kinds or ())
