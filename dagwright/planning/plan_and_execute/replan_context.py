"""State of a run at a replan: the nodes that the next plan may refer to and replace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary.json_codec import JsonCodec
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import ToolDeclaration

EXISTING_NODE = ToolDeclaration("\0a node of the run")
"""Tool of the stand-ins: nodes that represent existing nodes of the run when a plan is parsed. No plan can name this
tool."""
REFERABLE_STATUSES = (NodeStatus.COMPLETED, NodeStatus.SKIPPED)
"""States of the nodes that new nodes may refer to."""
REPLACEABLE_STATUSES = (NodeStatus.FAILED, NodeStatus.BLOCKED)
"""States of the nodes that new nodes may replace."""


@dataclass(frozen=True, slots=True)
class ReplanContext:
    """State of the run at a replan.

    Args:
        cause_ids: IDs of the nodes that caused the replan: nodes that failed, nodes with guidance from a person, or an
            answer that reports missing information.
        ids_by_status: state -> IDs of the plan's nodes in that state.
    """

    cause_ids: Sequence[str]
    ids_by_status: Mapping[str, Sequence[str]]

    @property
    def referable_ids(self) -> Sequence[str]:
        """IDs of the nodes that new nodes may refer to."""
        return [node_id for status in REFERABLE_STATUSES for node_id in self.ids_by_status.get(status.value, ())]

    @property
    def not_referable_ids(self) -> Sequence[str]:
        """IDs of the nodes that new nodes may not refer to."""
        referable_ids = frozenset(self.referable_ids)
        return [node_id for ids in self.ids_by_status.values() for node_id in ids if node_id not in referable_ids]

    def stand_ins(self) -> Sequence[Mapping[str, str]]:
        """Return the stand-ins, in plan syntax, for the nodes that new nodes may refer to."""
        return [{"id": node_id, "tool": EXISTING_NODE.name} for node_id in self.referable_ids]


def is_stand_in(node: CompiledNode) -> bool:
    """Return whether a parsed node is the stand-in for an existing node."""
    return node.tool == EXISTING_NODE.name


REPLAN_CONTEXTS: JsonCodec[ReplanContext | None] = JsonCodec(ReplanContext | None, name="replan context")


def encoded_replan_context(replan_context: ReplanContext | None) -> dict[str, Any]:
    """Return the field `replan_context` of a parser's options; empty for a first plan."""
    return {} if replan_context is None else {"replan_context": REPLAN_CONTEXTS.encode(replan_context)}
