"""Behaviour of lookup nodes: nodes that call the find tool or the bind tool of a resolver.

The declaration `Resolver` names both tools. The find tool finds one entity; the bind tool binds all found entities.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dagwright.core.expressions.references import Lookup
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.lookups import (
    KnownEntities,
    binding_error,
    entities_of_call,
    has_created_entity,
    has_entity,
    is_bind_node,
    is_find_node,
    known_result,
)
from dagwright.core.model.resolvers import UNKNOWN_RESOLVER, Resolver
from dagwright.core.model.states import NodeError, Record
from dagwright.core.scheduler.component import NodeResolver
from dagwright.features.lookups.uses import use_of_lookup


class EntityResolver(NodeResolver):
    """Behaviour of the lookup nodes of a plan.

    Args:
        resolver: declaration of the find tool, the bind tool and the entity types.
        known_entities: lookup resolved before the run -> its entity, in the form that the find tool returns.
    """

    def __init__(
        self, resolver: Resolver = UNKNOWN_RESOLVER, known_entities: Mapping[Lookup, Mapping[str, Any]] | None = None
    ) -> None:
        self._known_entities = KnownEntities(known_entities or {}, resolver)

    def known_result(self, node: CompiledNode) -> Any | None:
        """Return the entity that the plan names by ID, or that was bound before the run."""
        return known_result(node, self._known_entities) if is_find_node(node) else None

    def non_interactive_arguments(self, node: CompiledNode, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with which a search fails instead of asking a person."""
        return {**arguments, "is_interactive": False} if is_find_node(node) else arguments

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:
        """Return an error if some entities could not be bound, or `None`."""
        return binding_error(result) if is_bind_node(node) else None

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:
        """Return whether a fork may reuse a result. The result of a search is reusable only if the search found an
        entity or decided to create one."""
        return not is_find_node(node) or has_entity(result)

    def changed_something(self, result: Any) -> bool:
        """Return whether the call of the bind tool created an entity."""
        return has_created_entity(result)

    def describe_use(self, plan: CompiledPlan, task_id: str) -> str:
        """Return a sentence about the calls that need the entity of a lookup; empty if no such call is found."""
        return use_of_lookup(plan, task_id) or ""

    def entities_in_call(
        self, node: CompiledNode, arguments: Any, record_of: Callable[[str], Record | None]
    ) -> Mapping[str, str]:
        """Return the entities in the arguments of a call: ID -> name and kind."""
        return entities_of_call(node, arguments, record_of=record_of)
