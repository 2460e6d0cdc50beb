"""The resolver of parties: nodes of `find_party` find each party of a plan, and one of `bind_parties` binds them."""

from collections.abc import Callable, Mapping
from typing import Any

from dagwright.core.expressions.references import Lookup
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import Record
from dagwright.features.lookups.lookups import (
    BIND_PARTIES,
    FIND_PARTY,
    found_before,
    has_created,
    is_settled,
    parties_of_call,
    why_unbound,
)
from dagwright.features.lookups.uses import for_what


class PartyResolver:
    """Resolves the parties of one run.

    Args:
        bound: lookups that are known before the run -> their party, `{"id", "name", "kind", "jurisdiction"}`.
    """

    def __init__(self, bound: Mapping[Lookup, Mapping[str, Any]] | None = None) -> None:
        self._bound = bound or {}

    def known_result(self, node: CompiledNode) -> Any | None:
        """Return the party that the plan names by ID, or that was bound before the run."""
        return found_before(node, self._bound) if node.tool == FIND_PARTY else None

    def arguments_without_people(self, node: CompiledNode, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a search that fails where it would ask a person."""
        return {**arguments, "asks": False} if node.tool == FIND_PARTY else arguments

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:
        """Return why not every party could be bound."""
        return why_unbound(result) if node.tool == BIND_PARTIES else None

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:
        """Tell whether a search came to a party, or to one that is to be created."""
        return node.tool != FIND_PARTY or is_settled(result)

    def has_changed(self, result: Any) -> bool:
        """Tell whether a call of `bind_parties` created a party."""
        return has_created(result)

    def request_context(self, plan: CompiledPlan, task_id: str) -> str:
        """Return which calls need the party."""
        return for_what(plan, task_id) or ""

    def names_in_call(
        self, node: CompiledNode, arguments: Any, record_of: Callable[[str], Record | None]
    ) -> Mapping[str, str]:
        """Return the parties in the arguments of a call: ID -> name and kind."""
        return parties_of_call(node, arguments, record_of=record_of)
