"""Region batches: apply the reports of activity executions that run batches of pure nodes."""

from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import Attempt, NodeError, NodeStatus, Record

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RegionState
    from dagwright.core.scheduler.scheduler import Scheduler


class RegionBatchHandler:
    """Handler of the reports of region batches."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self._state = scheduler.state

    def handle_node_end(self, node_id: str, end: Record, *, at: float) -> bool:
        """Handle the end of a node that ran in a region; return whether the end was expected.

        Args:
            end: record of the node, in a final state.
        """
        state, number = self._state, self._state.numbers.get(node_id)
        if number is None or not state.regions.is_reported(number, state.records):
            return False
        record = state.records[number]
        if record.status.is_final:
            return False
        record.result, record.partial, record.blocked_by = end.result, end.partial, end.blocked_by
        record.cached, record.message = end.cached, end.message
        record.attempts, record.started_at, record.tool_version = end.attempts, end.started_at, end.tool_version
        ended_at = at if end.ended_at is None else end.ended_at
        self._scheduler.propagation.end(state.items.node_ref(number), end.status, ended_at, error=end.error)
        self._scheduler.propagate(at)
        return True

    def handle_batch_end(self, task_id: str, *, at: float, has_progress: bool, error: NodeError | None = None) -> None:
        """Handle the end of a batch, after the reports of its nodes.

        The region becomes ready again if it has open nodes.

        Args:
            has_progress: whether the batch made progress. If not, the open nodes run as single tasks; an offloaded
                region fails.
            error: error of an offloaded region without progress.
        """
        state, propagation = self._state, self._scheduler.propagation
        call_number = state.records[state.numbers[task_id]].attempts + 1
        ref = self._scheduler.record_end_of_call(task_id, Attempt(call_number))
        if ref is None:
            return
        if state.is_stopped:
            propagation.end(ref, NodeStatus.CANCELLED, at)
        elif not state.regions.is_open(ref.node, state.records):
            propagation.end(ref, NodeStatus.COMPLETED, at)
        elif has_progress:
            propagation.enqueue(ref)
        elif state.plan.nodes[ref.node].inner is None:
            propagation.end(ref, NodeStatus.SUPERSEDED, at)
        else:
            propagation.end(ref, NodeStatus.FAILED, at, error=error)
        self._scheduler.propagate(at)

    def set_region_state(self, task_id: str, region_state: "RegionState") -> None:
        """Store the state of an offloaded region after a batch."""
        self._state.records[self._state.numbers[task_id]].result = region_state
