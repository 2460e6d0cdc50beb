"""Entities that plans look up: resolvers, arguments that take an ID of an entity, and text formats."""

from dagwright.core.expressions.references import BY_ID
from dagwright.core.model.argument_checks import (
    KIND_CONDITION_KEYWORD,
    OTHER_ENTITY_KEYWORD,
    accepted_kinds,
    can_make,
    kind_conditions,
)
from dagwright.core.model.json_schemas import ENTITY_KEYWORD, TEXT_FORMAT
from dagwright.core.model.lookups import KNOWN_AS
from dagwright.core.model.resolvers import Resolver, UnknownEntityType, join_kinds
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.name_hints import suggestion

__all__ = [
    "BY_ID",
    "ENTITY_KEYWORD",
    "KIND_CONDITION_KEYWORD",
    "KNOWN_AS",
    "OTHER_ENTITY_KEYWORD",
    "TEXT_FORMAT",
    "Resolver",
    "ToolDeclaration",
    "UnknownEntityType",
    "accepted_kinds",
    "can_make",
    "join_kinds",
    "kind_conditions",
    "suggestion",
]
