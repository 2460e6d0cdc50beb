"""What a run for a request had come to when its planner was asked again: what the next plan may name, and take over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagwright.core.boundary.json_codec import JsonCodec
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import ToolDeclaration

EXISTING_NODE = ToolDeclaration("\0a node of the run")
"""Stands, where a plan is read, for whatever the nodes are that the run has already; no plan can name it."""
REFERABLE = (NodeStatus.COMPLETED, NodeStatus.SKIPPED)
"""States of the nodes that new ones may refer to."""
REPLACEABLE = (NodeStatus.FAILED, NodeStatus.BLOCKED)
"""States of the nodes whose places new ones may take."""


@dataclass(frozen=True, slots=True)
class ReplanContext:
    """State of the run at a replan.

    Args:
        because: ids of the nodes for which it was: those that failed, those that a person answered with guidance, or
            the answer in which something is missing.
        ended: state -> the names of the nodes of the plan that were in it.
    """

    because: Sequence[str]
    ended: Mapping[str, Sequence[str]]

    @property
    def referable(self) -> Sequence[str]:
        """Names of the nodes that new ones may refer to."""
        return [name for status in REFERABLE for name in self.ended.get(status.value, ())]

    @property
    def left(self) -> Sequence[str]:
        """Names of the nodes that ended otherwise."""
        there = frozenset(self.referable)
        return [name for names in self.ended.values() for name in names if name not in there]

    def stand_ins(self) -> Sequence[Mapping[str, str]]:
        """Returns what stands for the nodes that new ones may refer to, as written nodes."""
        return [{"id": name, "tool": EXISTING_NODE.name} for name in self.referable]


REPLAN_CONTEXTS: JsonCodec[ReplanContext | None] = JsonCodec(ReplanContext | None, name="replan context")
