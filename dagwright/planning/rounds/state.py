"""How far a run has come that answers a question in rounds: what its planner said, and what became of each sub-goal.

All of it follows from plan and records, in plan order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.worker_results import NOT_STARTED, error_words
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.validation.workers import Worker
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.responses import read_round_of
from dagwright.planning.rounds.rounds import ANSWER, PLAN, REPAIR, RoundsSpec
from dagwright.planning.rounds.sub_goals import (
    DONE,
    SUB_GOALS,
    Input,
    InputRef,
    KnownSubGoal,
    PlannedSubGoal,
    SubGoalStatus,
    refs_of,
    work_of,
)

Action = Literal["continue", "done", "failed"]
_STATUS: Mapping[NodeStatus, SubGoalStatus] = {
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
        number: of its node.
        round: in which it was made, from 1.
        found: what was read of its answer; `None` as long as, or if, there is none.
        sub_goals: what it wants begun.
    """

    number: int
    node: CompiledNode
    record: Record
    round: int
    found: Mapping[str, Any] | None
    sub_goals: Sequence[PlannedSubGoal] = ()

    @property
    def is_repair(self) -> bool:
        """Tells whether the planner was shown what is wrong with the answer before."""
        return _is_repair(self.node)

    @property
    def action(self) -> Action | None:
        """Returns what the planner wants done; `None` if that could not be read."""
        return _action_of(self.found)

    @property
    def reasoning(self) -> str:
        """Returns why, as the planner says it."""
        return str(self.found.get("reasoning", "")) if self.found is not None else ""

    @property
    def refused(self) -> str:
        """Returns what is wrong with an answer that could not be taken; empty of any other."""
        return str(self.found.get("words", "")) if self.found is not None and self.action is None else ""

    @property
    def synthesis_inputs(self) -> Mapping[str, Any]:
        """Returns the slots that the answer is made of, as the planner wrote them."""
        found = self.found.get("synthesis_inputs") if self.found is not None else None
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class SubGoalProgress:
    """What became of one sub-goal.

    Args:
        number: of the node that stands for it now.
        round: in which it was begun last.
    """

    sub_goal: PlannedSubGoal
    number: int
    node: CompiledNode
    record: Record
    round: int
    tries: int

    @property
    def status(self) -> SubGoalStatus:
        """Returns how far it has come."""
        if self.record.status is NodeStatus.COMPLETED:
            return "partial" if self.record.partial else "success"
        error = self.record.error
        if self.record.status is NodeStatus.SUPERSEDED and error is not None and error.code == NOT_STARTED:
            return "pending"
        return _STATUS.get(self.record.status, "pending")

    @property
    def is_done(self) -> bool:
        """Tells whether it has put something out."""
        return self.status in DONE

    @property
    def slots(self) -> tuple[str, ...]:
        """Returns the slots that it has put out and that are not null."""
        return tuple(slot for slot in self.sub_goal.outputs if self.value_of(slot) is not None) if self.is_done else ()

    def value_of(self, slot: str) -> Any:
        """Returns what stands in a slot, or where it lies in the store; `None` is nothing."""
        result = self.record.result
        if isinstance(result, StoredValue):
            part, _ = result.at((slot,))
            if isinstance(part, StoredValue):
                own = part.own_part
                return own.value if own is not None and own.state in ("small", "whole") else part
            return None if part.state == "missing" else part.value
        return result.get(slot) if isinstance(result, Mapping) else None

    @property
    def message(self) -> str | None:
        """Returns what its worker says beside its slots."""
        return self.record.message

    @property
    def error(self) -> str | None:
        """Returns why it put nothing out."""
        if self.status != "failed":
            return None
        return error_words(self.record)

    def known(self, worker: Worker | None) -> KnownSubGoal:
        """Returns what the next answer of the planner is read against.

        Args:
            worker: the one that it is for.
        """
        made, work = self.sub_goal, work_of(self.sub_goal, worker)
        return KnownSubGoal(made.id, made.worker, made.sources, work, self.status, self.slots, self.tries)


def _is_repair(node: CompiledNode) -> bool:
    labels = node.arguments.get("labels")
    return isinstance(labels, Mapping) and labels.get("purpose") == REPAIR


class RoundsState:
    """What a run has come to, as it is now."""

    def __init__(self, state: RunState, rounds: RoundsSpec) -> None:
        self.state = state
        self.rounds = rounds

    @cached_property
    def calls(self) -> Sequence[PlannerCall]:
        """Every call of the planner that stands, oldest first.

        Raises:
            GoalUnreachable: the result of one is no answer of a planner.
        """
        found: list[PlannerCall] = []
        number_of_round = 0
        for number, (node, record) in enumerate(self.state.shown()):
            if node.id.partition("#")[0] != PLAN or record.status is NodeStatus.SUPERSEDED:
                continue
            number_of_round += not _is_repair(node)
            read = _found_in(node, record)
            found.append(PlannerCall(number, node, record, number_of_round, read, _sub_goals_in(node, read)))
        return found

    @property
    def last(self) -> PlannerCall:
        """Returns the newest call of the planner."""
        return self.calls[-1]

    def calls_of(self, number: int) -> Sequence[PlannerCall]:
        """Returns the calls of one round: the planner's, and its repairs."""
        return [call for call in self.calls if call.round == number]

    @cached_property
    def sub_goals(self) -> Mapping[int, SubGoalProgress]:
        """Every sub-goal whose node is there, by its id, in the order in which they came up."""
        found: dict[int, SubGoalProgress] = {}
        for call in self.calls:
            for sub_goal in call.sub_goals:
                number = self.state.number_of(self.state.newest_id(sub_goal.node_id))
                if number is None or number <= call.number:
                    continue
                before = found.get(sub_goal.id)
                tries = before.tries + 1 if before is not None and before.sub_goal == sub_goal else 1
                node, record = self.state.plan.nodes[number], self.state.records[number]
                found[sub_goal.id] = SubGoalProgress(sub_goal, number, node, record, call.round, tries)
        return found

    @cached_property
    def tries(self) -> Sequence[tuple[int, CompiledNode, Record]]:
        """Every node of a sub-goal with the round that it belongs to, in plan order, those with it that were replaced.

        It is the round of the call that began it, or of the call that began what it waits for, if that was later.
        """
        rounds: dict[int, int] = {}
        shown = list(self.state.shown())
        names = {each.sub_goal.node_id for each in self.sub_goals.values()}
        numbers = [number for number, (node, _) in enumerate(shown) if node.id.partition("#")[0] in names]
        return [(self._round_of(number, rounds), *shown[number]) for number in numbers]

    def _round_of(self, number: int, rounds: dict[int, int]) -> int:
        if number in rounds:
            return rounds[number]
        node = self.state.plan.nodes[number]
        before = [call for call in self.calls if call.number < number] or self.calls[:1]
        began = next((call for call in reversed(before) if call.number in node.dependencies), before[-1])
        rounds[number] = began.round
        for source in node.dependencies:
            newest = self.state.number_of(self.state.newest_id(self.state.plan.nodes[source].id))
            if newest is not None and self.state.plan.nodes[newest].is_worker:
                rounds[number] = max(rounds[number], self._round_of(newest, rounds))
        return rounds[number]

    def has_begun(self, call: PlannerCall) -> bool:
        """Tells whether the nodes of what the planner wants are in the run.

        They wait for the call. A node that a person has begun again meanwhile waits for the call that began it first.
        """
        wanted = [sub_goal.node_id for sub_goal in call.sub_goals]
        is_begun = any(
            node.id.partition("#")[0] in wanted and call.number in node.dependencies
            for node in self.state.plan.nodes[call.number + 1 :]
        )
        return is_begun or not self.left_to_begin(call)

    def left_to_begin(self, call: PlannerCall) -> Sequence[PlannedSubGoal]:
        """Returns what of the planner's wishes is neither done nor going on.

        A person may have begun again what had failed when the planner was asked.
        """
        return tuple(
            sub_goal
            for sub_goal in call.sub_goals
            if (before := self.sub_goals.get(sub_goal.id)) is None
            or (before.record.status.is_final and not before.is_done)
        )

    @property
    def is_joined(self) -> bool:
        """Tells whether nothing of what was begun can go on by itself, what people have added with it."""
        return all(record.status.is_final for node, record in self.state.shown() if node.id.partition("#")[0] != ANSWER)

    def deliverables(self) -> dict[str, InputRef]:
        """Returns what was put out for the answer, under a name for each slot."""
        return {
            f"{each.sub_goal.node_id}_{slot}": InputRef(each.sub_goal.id, slot)
            for each in self.sub_goals.values()
            if each.sub_goal.goal_type == "deliverable"
            for slot in each.slots
        }

    def gaps(self, inputs: Mapping[str, Input]) -> Sequence[SubGoalProgress]:
        """Gaps of an answer made of `inputs`: partial sources, and deliverables that failed or never ran."""
        used: dict[int, None] = {}
        open_ids = [ref.from_sub_goal for given in inputs.values() for ref in refs_of(given)]
        while open_ids:
            source = open_ids.pop()
            if source not in used and source in self.sub_goals:
                used[source] = None
                open_ids += self.sub_goals[source].sub_goal.sources
        return [
            each
            for each in self.sub_goals.values()
            if (each.status == "partial" and each.sub_goal.id in used)
            or (each.status in ("failed", "pending") and each.sub_goal.goal_type == "deliverable")
        ]

    def left_behind(self) -> Iterator[str]:
        """Yields the ids of the nodes that only were to help, came to nothing, and are not waited for any more."""
        for each in self.sub_goals.values():
            is_left = each.record.status in (NodeStatus.FAILED, NodeStatus.BLOCKED)
            if is_left and each.sub_goal.goal_type == "support":
                yield each.node.id


def _action_of(found: Mapping[str, Any] | None) -> Action | None:
    action = found["action"] if found is not None and found["valid"] else None
    return action if action in ("continue", "done", "failed") else None


def _sub_goals_in(node: CompiledNode, found: Mapping[str, Any] | None) -> Sequence[PlannedSubGoal]:
    if found is None or _action_of(found) != "continue":
        return ()
    try:
        return tuple(SUB_GOALS.decode(each) for each in found["sub_goals"])
    except (ValueError, KeyError, TypeError) as error:
        raise GoalUnreachable(NodeError("invalid_result", f"{node.id!r}: {error}")) from None


def _found_in(node: CompiledNode, record: Record) -> Mapping[str, Any] | None:
    if record.status is not NodeStatus.COMPLETED:
        return None
    found = read_round_of(record.result)
    if not isinstance(found, Mapping) or not isinstance(found.get("valid"), bool):
        raise GoalUnreachable(NodeError("invalid_result", f"the result of {node.id!r} is no answer of a planner"))
    return found
