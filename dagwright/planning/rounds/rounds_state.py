"""State of a run that answers a question in rounds: the planner's answers, and the outcome of each sub-goal.

The state is derived from plan and records, in plan order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.worker_results import DEPENDENCY_FAILED, reason_for_missing_outputs
from dagwright.core.validation.worker_tools import WorkerTool
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.response_summary import parsed_round_of
from dagwright.planning.rounds.rounds_spec import ANSWER, PLAN, REPAIR, RoundsSpec
from dagwright.planning.rounds.sub_goals import (
    DONE_STATUSES,
    SUB_GOALS,
    Input,
    InputRef,
    KnownSubGoal,
    PlannedSubGoal,
    SubGoalStatus,
    refs_of,
    work_digest,
)

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

Action = Literal["continue", "done", "failed"]
_SUB_GOAL_STATUS: Mapping[NodeStatus, SubGoalStatus] = {
    NodeStatus.COMPLETED: "success",
    NodeStatus.FAILED: "failed",
    NodeStatus.CANCELLED: "failed",
    NodeStatus.SKIPPED: "failed",
    NodeStatus.SUPERSEDED: "failed",
    NodeStatus.RUNNING: "running",
}


@dataclass(frozen=True, slots=True)
class PlannerCall:
    """One call of the planner.

    Args:
        number: number of its node.
        round: number of its round, from 1.
        parsed_answer: `None` while the call runs, or if the call ended without an answer.
        sub_goals: sub-goals that the answer starts.
    """

    number: int
    node: CompiledNode
    record: Record
    round: int
    parsed_answer: Mapping[str, Any] | None
    sub_goals: Sequence[PlannedSubGoal] = ()

    @property
    def is_repair(self) -> bool:
        """Whether the call repairs the previous answer."""
        return _is_repair(self.node)

    @property
    def action(self) -> Action | None:
        """Action that the planner chose; `None` if the answer is invalid."""
        return _action_of(self.parsed_answer)

    @property
    def reasoning(self) -> str:
        """The planner's reasons for the action."""
        return str(self.parsed_answer.get("reasoning", "")) if self.parsed_answer is not None else ""

    @property
    def problems_text(self) -> str:
        """Problems of an invalid answer; empty for a valid answer."""
        return (
            str(self.parsed_answer.get("message", "")) if self.parsed_answer is not None and self.action is None else ""
        )

    @property
    def synthesis_inputs(self) -> Mapping[str, Any]:
        """Slots that the answer is made of, as the planner wrote them."""
        inputs = self.parsed_answer.get("synthesis_inputs") if self.parsed_answer is not None else None
        return inputs if isinstance(inputs, Mapping) else {}


@dataclass(frozen=True, slots=True)
class SubGoalProgress:
    """Progress of one sub-goal.

    Args:
        number: number of its current node.
        round: round of its last attempt.
    """

    sub_goal: PlannedSubGoal
    number: int
    node: CompiledNode
    record: Record
    round: int
    attempt_count: int

    @property
    def status(self) -> SubGoalStatus:
        """Status of the last attempt."""
        if self.record.status is NodeStatus.COMPLETED:
            return "partial" if self.record.partial else "success"
        error = self.record.error
        if self.record.status is NodeStatus.SUPERSEDED and error is not None and error.code == DEPENDENCY_FAILED:
            return "pending"
        return _SUB_GOAL_STATUS.get(self.record.status, "pending")

    @property
    def is_done(self) -> bool:
        """Whether the sub-goal has outputs."""
        return self.status in DONE_STATUSES

    @property
    def slots(self) -> tuple[str, ...]:
        """Slots with a value other than null."""
        return tuple(slot for slot in self.sub_goal.outputs if self.value_of(slot) is not None) if self.is_done else ()

    def value_of(self, slot: str) -> Any:
        """Return the value of a slot, or a reference to the value in the store; `None` if the slot is empty."""
        result = self.record.result
        if isinstance(result, StoredValue):
            part, _ = result.part_at((slot,))
            if isinstance(part, StoredValue):
                small_part = part.root_part
                return small_part.value if small_part is not None and small_part.state in ("small", "whole") else part
            return None if part.state == "missing" else part.value
        return result.get(slot) if isinstance(result, Mapping) else None

    @property
    def message(self) -> str | None:
        """Message of the worker tool, in addition to its slots."""
        return self.record.message

    @property
    def error(self) -> str | None:
        """Reason for the failure; `None` unless the sub-goal failed."""
        if self.status != "failed":
            return None
        return reason_for_missing_outputs(self.record)

    def summary(self, worker: WorkerTool | None) -> KnownSubGoal:
        """Return the summary that the next answer of the planner is checked against.

        Args:
            worker: worker tool of the sub-goal.
        """
        sub_goal, work = self.sub_goal, work_digest(self.sub_goal, worker)
        return KnownSubGoal(
            sub_goal.id, sub_goal.worker, sub_goal.sources, work, self.status, self.slots, self.attempt_count
        )


def _is_repair(node: CompiledNode) -> bool:
    labels = node.arguments.get("labels")
    return isinstance(labels, Mapping) and labels.get("purpose") == REPAIR


class RoundsState:
    """Current state of the rounds of a run."""

    def __init__(self, state: "RunState", spec: RoundsSpec) -> None:
        self.state = state
        self.spec = spec

    @cached_property
    def calls(self) -> Sequence[PlannerCall]:
        """Every planner call that is not superseded, oldest first.

        Raises:
            GoalUnreachable: the result of a call is not an answer of a planner.
        """
        planner_calls: list[PlannerCall] = []
        round_number = 0
        for number, (node, record) in enumerate(self.state.visible_nodes()):
            if node.id.partition("#")[0] != PLAN or record.status is NodeStatus.SUPERSEDED:
                continue
            round_number += not _is_repair(node)
            parsed_answer = _parsed_answer_in(node, record)
            sub_goals = _sub_goals_in(node, parsed_answer)
            planner_calls.append(PlannerCall(number, node, record, round_number, parsed_answer, sub_goals))
        return planner_calls

    @property
    def last_call(self) -> PlannerCall:
        """Newest planner call."""
        return self.calls[-1]

    def calls_of(self, number: int) -> Sequence[PlannerCall]:
        """Return the planner call of a round and its repairs."""
        return [call for call in self.calls if call.round == number]

    @cached_property
    def sub_goals(self) -> Mapping[int, SubGoalProgress]:
        """Sub-goals that have a node, by id, in the order in which they were first requested."""
        progress_by_id: dict[int, SubGoalProgress] = {}
        for call in self.calls:
            for sub_goal in call.sub_goals:
                number = self.state.number_of(self.state.newest_id(sub_goal.node_id))
                if number is None or number <= call.number:
                    continue
                previous_progress = progress_by_id.get(sub_goal.id)
                attempt_count = 1
                if previous_progress is not None and previous_progress.sub_goal == sub_goal:
                    attempt_count += previous_progress.attempt_count
                node, record = self.state.plan.nodes[number], self.state.records[number]
                progress_by_id[sub_goal.id] = SubGoalProgress(sub_goal, number, node, record, call.round, attempt_count)
        return progress_by_id

    @cached_property
    def attempts(self) -> Sequence[tuple[int, CompiledNode, Record]]:
        """Round, node and record of each attempt of a sub-goal, in plan order, including superseded attempts.

        The round of an attempt is the latest round in which the attempt or one of its dependencies was started.
        """
        rounds: dict[int, int] = {}
        visible_nodes = list(self.state.visible_nodes())
        node_ids = {progress.sub_goal.node_id for progress in self.sub_goals.values()}
        numbers = [number for number, (node, _) in enumerate(visible_nodes) if node.id.partition("#")[0] in node_ids]
        return [(self._round_of(number, rounds), *visible_nodes[number]) for number in numbers]

    def _round_of(self, number: int, rounds: dict[int, int]) -> int:
        if number in rounds:
            return rounds[number]
        node = self.state.plan.nodes[number]
        earlier_calls = [call for call in self.calls if call.number < number] or self.calls[:1]
        caller = next((call for call in reversed(earlier_calls) if call.number in node.dependencies), earlier_calls[-1])
        rounds[number] = caller.round
        for source in node.dependencies:
            newest_number = self.state.number_of(self.state.newest_id(self.state.plan.nodes[source].id))
            if newest_number is not None and self.state.plan.nodes[newest_number].is_worker:
                rounds[number] = max(rounds[number], self._round_of(newest_number, rounds))
        return rounds[number]

    def has_added_sub_goals_of(self, call: PlannerCall) -> bool:
        """Return whether the sub-goals that a planner call requested were added to the run.

        Their nodes depend on the call. If people have already retried all of the sub-goals, no node is added.
        """
        node_ids = [sub_goal.node_id for sub_goal in call.sub_goals]
        is_started = any(
            node.id.partition("#")[0] in node_ids and call.number in node.dependencies
            for node in self.state.plan.nodes[call.number + 1 :]
        )
        return is_started or not self.sub_goals_to_start(call)

    def sub_goals_to_start(self, call: PlannerCall) -> Sequence[PlannedSubGoal]:
        """Return the requested sub-goals that are neither done nor running.

        A person may have retried a failed sub-goal while the planner was writing its answer.
        """
        return tuple(
            sub_goal
            for sub_goal in call.sub_goals
            if (progress := self.sub_goals.get(sub_goal.id)) is None
            or (progress.record.status.is_final and not progress.is_done)
        )

    @property
    def have_all_nodes_ended(self) -> bool:
        """Whether each node except the answer has a final status, including nodes that people added."""
        return all(
            record.status.is_final for node, record in self.state.visible_nodes() if node.id.partition("#")[0] != ANSWER
        )

    def deliverables(self) -> dict[str, InputRef]:
        """Return the filled slots of sub-goals of the type `deliverable`: name -> reference."""
        return {
            f"{progress.sub_goal.node_id}_{slot}": InputRef(progress.sub_goal.id, slot)
            for progress in self.sub_goals.values()
            if progress.sub_goal.goal_type == "deliverable"
            for slot in progress.slots
        }

    def incomplete_sub_goals(self, inputs: Mapping[str, Input]) -> Sequence[SubGoalProgress]:
        """Return the sub-goals whose results are missing, at least in part, in an answer made of `inputs`.

        These are the partial sub-goals that the inputs depend on, and the deliverables that failed or did not start.
        """
        used_ids: dict[int, None] = {}
        ids_to_visit = [ref.from_sub_goal for value in inputs.values() for ref in refs_of(value)]
        while ids_to_visit:
            source_id = ids_to_visit.pop()
            if source_id not in used_ids and source_id in self.sub_goals:
                used_ids[source_id] = None
                ids_to_visit += self.sub_goals[source_id].sub_goal.sources
        return [
            progress
            for progress in self.sub_goals.values()
            if (progress.status == "partial" and progress.sub_goal.id in used_ids)
            or (progress.status in ("failed", "pending") and progress.sub_goal.goal_type == "deliverable")
        ]

    def abandoned_ids(self) -> Iterator[str]:
        """Yield the node ids of failed or blocked sub-goals of the type `support`: the run no longer waits for them."""
        for progress in self.sub_goals.values():
            is_unfinished = progress.record.status in (NodeStatus.FAILED, NodeStatus.BLOCKED)
            if is_unfinished and progress.sub_goal.goal_type == "support":
                yield progress.node.id


def _action_of(parsed_answer: Mapping[str, Any] | None) -> Action | None:
    action = parsed_answer["action"] if parsed_answer is not None and parsed_answer["valid"] else None
    return action if action in ("continue", "done", "failed") else None


def _sub_goals_in(node: CompiledNode, parsed_answer: Mapping[str, Any] | None) -> Sequence[PlannedSubGoal]:
    if parsed_answer is None or _action_of(parsed_answer) != "continue":
        return ()
    try:
        return tuple(SUB_GOALS.decode(sub_goal) for sub_goal in parsed_answer["sub_goals"])
    except (ValueError, KeyError, TypeError) as error:
        raise GoalUnreachable(NodeError("invalid_result", f"{node.id!r}: {error}")) from None


def _parsed_answer_in(node: CompiledNode, record: Record) -> Mapping[str, Any] | None:
    if record.status is not NodeStatus.COMPLETED:
        return None
    parsed_answer = parsed_round_of(record.result)
    if not isinstance(parsed_answer, Mapping) or not isinstance(parsed_answer.get("valid"), bool):
        raise GoalUnreachable(NodeError("invalid_result", f"the result of {node.id!r} is not an answer of the planner"))
    return parsed_answer
