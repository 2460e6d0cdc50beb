"""Resolvers: tools of applications that find the entities of a plan by their names, before other nodes run.

A plan names an entity by a lookup: a text, an entity type, and filters that narrow the search. The tool `find` of the
resolver is called for each distinct lookup and may ask a person. `bind` is called once with all results, and may
create entities that users asked for. `find` declares the resolver (`ToolDeclaration.resolver`) as JSON, so that the
resolver travels with a compiled plan. Plans cannot name these tools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion

_KIND_SEPARATOR: Final = " or "


class UnknownEntityType(ValueError):
    """Unknown entity type. `hint` suggests a similar known type, if any; `message` is the text without the hint."""

    def __init__(self, entity_type: str, known_types: Mapping[str, Any]) -> None:
        self.hint = suggestion(slug_of(entity_type), known_types)
        problem, known_types_text = f"Unknown entity type {entity_type!r:.80}", f"Known types: {', '.join(known_types)}"
        self.message = f"{problem}. {known_types_text}"
        super().__init__(f"{problem}; {self.hint} {known_types_text}" if self.hint else self.message)


@dataclass(frozen=True, slots=True)
class Resolver:
    """Entity types that an application resolves, and the tools that resolve them.

    Args:
        find: name of the tool that finds the entity of one lookup.
        bind: name of the tool that binds the found entities.
        undo: name of the tool that compensates for `bind`; in a model's plan for the profile `intents`, calls with this
            compensation need no approval.
        types: entity type as plans write it, in lower case with dashes -> its kind; `None` is any kind of entities.
        terms: kinds whose members are the terms of a closed list, not entities. An argument with the name of such a
            kind takes the code of a term.
        filters: name of a filter -> its text format, empty for any text.
    """

    find: str
    bind: str
    undo: str | None = None
    types: Mapping[str, str | None] = field(default_factory=dict)
    terms: Sequence[str] = ()
    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entities, in the order of the types."""
        return tuple(dict.fromkeys(kind for kind in self.types.values() if kind is not None and kind not in self.terms))

    def kind_of(self, entity_type: str) -> str | None:
        """Return the kind of an entity type in any spelling (`Limited Company`); `None` is any kind of entities.

        Raises:
            UnknownEntityType: the type is unknown.
        """
        slug = slug_of(entity_type)
        if not self.types:
            # The types are unknown, so each type counts as a separate kind.
            return slug
        if slug not in self.types:
            raise UnknownEntityType(entity_type, self.types)
        return self.types[slug]

    def kinds_of(self, entity_type: str) -> tuple[str, ...] | None:
        """Return the kinds of an entity type, or of several (`company or fund`); `None` is any kind of entities.

        Raises:
            UnknownEntityType: the type is unknown.
        """
        kinds = [self.kind_of(entity_type_name) for entity_type_name in entity_type.split(_KIND_SEPARATOR)]
        return None if None in kinds else tuple(dict.fromkeys(kind for kind in kinds if kind is not None))

    def tools(self) -> dict[str, ToolDeclaration]:
        """Return the declarations of the resolver's tools for a compiled plan."""
        undo = {} if self.undo is None else {self.undo: ToolDeclaration(self.undo, Effects.IDEMPOTENT)}
        return undo | {
            self.find: ToolDeclaration(self.find, Effects.READ, resolver=self.to_json()),
            self.bind: ToolDeclaration(self.bind, Effects.IDEMPOTENT, undo=self.undo),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for `ToolDeclaration.resolver`."""
        required_fields = {"find": self.find, "bind": self.bind, "types": dict(self.types)}
        optional_fields = {"undo": self.undo, "terms": [*self.terms], "filters": dict(self.filters)}
        return required_fields | {name: value for name, value in optional_fields.items() if value}


UNKNOWN_RESOLVER: Final = Resolver("", "")
"""Resolver of plans whose tools declare no resolver."""


def resolver_of(tools: Mapping[str, ToolDeclaration]) -> Resolver:
    """Return the resolver that one of the tools declares, else `UNKNOWN_RESOLVER`."""
    encoded = next((tool.resolver for tool in tools.values() if tool.resolver is not None), None)
    if encoded is None:
        return UNKNOWN_RESOLVER
    undo = encoded.get("undo")
    return Resolver(
        str(encoded.get("find")),
        str(encoded.get("bind")),
        undo if isinstance(undo, str) else None,
        dict(encoded.get("types", {})),
        tuple(encoded.get("terms", ())),
        dict(encoded.get("filters", {})),
    )


def callable_tools(tools: Mapping[str, ToolDeclaration]) -> dict[str, ToolDeclaration]:
    """Return the tools that plans and models can name: all tools except `find` and `bind` of the resolver."""
    resolver = resolver_of(tools)
    return {name: tool for name, tool in tools.items() if name not in (resolver.find, resolver.bind)}


def join_kinds(kinds: Sequence[str]) -> str:
    """Return several kinds as one entity type: `company or fund`."""
    return _KIND_SEPARATOR.join(kinds)


def slug_of(entity_type: str) -> str:
    """Return the canonical spelling of an entity type."""
    return "-".join(entity_type.lower().replace("_", " ").replace("-", " ").split())
