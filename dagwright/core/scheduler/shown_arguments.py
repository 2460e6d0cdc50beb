"""The arguments of a call as users see them: secrets by their name, stored values by reference."""

from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.expressions.value_refs import shown_in_arguments, with_shown
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.run_state import RunState

_UNDER_WAY = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)


def shown_arguments(state: RunState, task_id: str) -> Any:
    """Return the arguments of a node or item; `None` if it has not started, or if its items have the arguments."""
    ref = state.find(task_id)
    if ref is None or state.chunk(ref) is not None:
        return None
    if ref.item is None and state.plan.nodes[ref.node].for_each is not None:
        return None
    record = state.record(ref)
    if not record.attempts and record.status not in _UNDER_WAY:
        return None
    try:
        return with_shown(state.arguments_of(ref), shown_in_arguments)
    except (MissingData, TooMuchWork):
        return None
