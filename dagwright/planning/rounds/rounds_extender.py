"""Extender that answers a question in rounds: a planner writes sub-goals, and worker tools run them.

The named outputs of a sub-goal are its slots, and the answer is made of slots. The extender waits for the end of each
round: the run calls the extender whenever a node ends, and the extender calls the planner once no node of the round can
continue. The next step depends only on the plan and the records. Node ids:

    intention       clarifies the question
    plan, plan#2    calls of the planner, including repairs
    sg1, sg2        sub-goals as the planner numbers them; a retry of `sg1` is `sg1#2`, which supersedes `sg1`
    answer          last node, if a model writes the answer

Replay: ids, order and content of the nodes are part of a run's history.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.core.scheduler.extension import Extension
from dagwright.core.text import cut_bytes
from dagwright.core.validation.worker_tools import worker_tools_among
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.model_requests import CALL_MODEL
from dagwright.planning.plan_and_execute.goal_spec import decode_tools
from dagwright.planning.rounds.rounds_nodes import (
    Output,
    answer_node,
    assembled_output,
    has_started_answer,
    output_of_answer,
    output_without_answer,
    planner_node,
    repair_node,
    worker_node,
)
from dagwright.planning.rounds.rounds_spec import (
    ANSWER,
    BUDGET_SPENT,
    INTENTION,
    MAX_REPAIRS,
    MAX_ROUNDS_REACHED,
    PLAN,
    PLANNER_FAILED,
    PLANNER_INVALID,
    PLANNER_REPEATS,
    PLANNER_STOPPED,
    RoundsSpec,
    is_reserved,
)
from dagwright.planning.rounds.rounds_state import PlannerCall, RoundsState
from dagwright.planning.rounds.state_text import format_caveats, lines_of_missing_results, state_message
from dagwright.planning.rounds.sub_goals import INPUTS, Input, KnownSubGoal, refs_of

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState


class Rounds:
    """Extender for a question: adds the sub-goals of a round, the next call of the planner, and the answer."""

    def __init__(self, spec: RoundsSpec) -> None:
        self.spec = spec
        self._worker_tools = worker_tools_among(decode_tools(list(spec.workers)))

    def next_extension(self, state: "RunState") -> Extension | None:
        """Return the next nodes or the output for the question.

        Raises:
            GoalUnreachable: the planner states that the question cannot be answered, or the planner has to stop and no
                sub-goal of the type `deliverable` has filled a slot.
        """
        rounds_state = RoundsState(state, self.spec)
        if state.number_of(ANSWER) is not None:
            return self._update_output(rounds_state)
        require_intention(state)
        last_call = rounds_state.last_call
        if not last_call.record.status.is_final:
            return None
        if (stop_error := stop_reason(rounds_state)) is not None:
            return self._answer_after_stop(rounds_state, stop_error)
        if last_call.action is None:
            return self._repair(rounds_state, last_call)
        if last_call.action == "failed":
            message = cut_bytes(last_call.reasoning, max_bytes=MAX_FAILURE_MESSAGE_BYTES)
            raise GoalUnreachable(NodeError(PLANNER_FAILED, message))
        if last_call.action == "done":
            return self._answer(rounds_state, _synthesis_inputs(last_call), None)
        if not rounds_state.has_added_sub_goals_of(last_call):
            return self._start_sub_goals(rounds_state, last_call)
        return self._plan_next(rounds_state) if rounds_state.have_all_nodes_ended else None

    def goal_error(self, state: "RunState") -> NodeError | None:
        """Return why the planner did not finish; `None` if it finished, or if the run has no answer yet."""
        if not has_started_answer(state):
            return None
        try:
            return stop_reason(RoundsState(state, self.spec))
        except GoalUnreachable as unreachable:
            return unreachable.error

    def is_reserved(self, node_id: str) -> bool:
        """Return whether the run itself assigns this id."""
        return is_reserved(node_id)

    def rejection_of_result(self, node_id: str, result: Any) -> str | None:  # noqa: ARG002 - interface of extenders
        """Return why a person may not set the result of a node; `None` if a person may.

        Only a model may write the results of the intention node, the planner calls and the answer node.
        """
        if not is_reserved(node_id) or node_id.startswith(SUB_GOAL_PREFIX):
            return None
        return f"only the run itself may set the result of {node_id!r}; retry the node instead"

    # Extensions.

    def _start_sub_goals(self, rounds_state: RoundsState, call: PlannerCall) -> Extension:
        """Create the nodes for the sub-goals of a planner call. Each node starts when its input slots are available."""
        state = rounds_state.state
        base, sub_goals = state.plan.visible_count, rounds_state.sub_goals_to_start(call)
        new_numbers = {sub_goal.id: base + index for index, sub_goal in enumerate(sub_goals)}
        nodes: list[CompiledNode] = []
        for sub_goal in sub_goals:
            numbers = (self._number_of(rounds_state, source, new_numbers) for source in sub_goal.sources)
            previous_attempt = rounds_state.sub_goals.get(sub_goal.id)
            worker = self._worker_tools.get(sub_goal.worker)
            if worker is None:
                raise GoalUnreachable(
                    NodeError("invalid_result", f"{call.node.id!r} requests an unknown worker tool {sub_goal.worker!r}")
                )
            node = worker_node(
                sub_goal,
                worker.tool,
                node_id=sub_goal.node_id if previous_attempt is None else free_id(state, previous_attempt.number),
                dependencies=tuple(dict.fromkeys((*numbers, call.number))),
                timeout_s=self.spec.worker_timeout_s,
                supersedes=None if previous_attempt is None else previous_attempt.node.id,
            )
            nodes.append(node)
        return Extension(base, tuple(nodes), self._tools(nodes))

    @staticmethod
    def _number_of(rounds_state: RoundsState, source: int, new_numbers: Mapping[int, int]) -> int:
        if source in new_numbers:
            return new_numbers[source]
        if source not in rounds_state.sub_goals:
            raise GoalUnreachable(
                NodeError("invalid_result", f"there is no sub-goal {source}, which another sub-goal needs")
            )
        return rounds_state.sub_goals[source].number

    def _plan_next(self, rounds_state: RoundsState) -> Extension:
        """Create the call in which the planner receives the results of the round."""
        round_number = rounds_state.last_call.round + 1
        # If a node is superseded, its edges move to the retry, which depends on a later planner call. Completed nodes
        # are never superseded, so these edges cannot form a cycle.
        done_numbers = [
            sub_goal.number
            for sub_goal in rounds_state.sub_goals.values()
            if sub_goal.round == rounds_state.last_call.round and sub_goal.is_done
        ]
        node = planner_node(
            self.spec,
            self._free_id(rounds_state, PLAN),
            state_message(rounds_state, round_number=round_number),
            round_number=round_number,
            known_sub_goals=self._known_sub_goals(rounds_state),
            dependencies=(rounds_state.last_call.number, *done_numbers),
        )
        return self._extension(rounds_state, node)

    def _known_sub_goals(self, rounds_state: RoundsState) -> Sequence[KnownSubGoal]:
        return [
            sub_goal.summary(self._worker_tools.get(sub_goal.sub_goal.worker))
            for sub_goal in rounds_state.sub_goals.values()
        ]

    def _repair(self, rounds_state: RoundsState, last_call: PlannerCall) -> Extension:
        node = repair_node(
            self.spec,
            self._free_id(rounds_state, PLAN),
            last_call,
            text=str((last_call.parsed_answer or {}).get("repair", "")),
            known_sub_goals=self._known_sub_goals(rounds_state),
        )
        return self._extension(rounds_state, node)

    def _answer(
        self, rounds_state: RoundsState, inputs: Mapping[str, Input], stop_error: NodeError | None
    ) -> Extension | None:
        """Create the answer node, or the assembled output.

        Once the planner has finished, the run abandons the sub-goals of the type `support` that failed or are blocked.
        """
        sources = dict.fromkeys(ref.from_sub_goal for value in inputs.values() for ref in refs_of(value))
        if missing_ids := [source for source in sources if source not in rounds_state.sub_goals]:
            raise GoalUnreachable(
                NodeError("invalid_result", f"the answer uses the sub-goal {missing_ids[0]}, which does not exist")
            )
        abandoned_ids = () if stop_error is not None else tuple(rounds_state.abandoned_ids())
        if self.spec.synthesis == "assemble":
            return self._assemble_output(rounds_state, inputs, stop_error, abandoned_ids=abandoned_ids)
        numbers = [rounds_state.sub_goals[source].number for source in sources]
        node = answer_node(
            self.spec,
            inputs,
            format_caveats(rounds_state, stop_error),
            dependencies=tuple(dict.fromkeys((*numbers, rounds_state.last_call.number))),
        )
        return self._extension(rounds_state, node, output=output_of_answer(), abandoned_ids=abandoned_ids)

    def _assemble_output(
        self,
        rounds_state: RoundsState,
        inputs: Mapping[str, Input],
        stop_error: NodeError | None,
        *,
        abandoned_ids: Sequence[str],
    ) -> Extension | None:
        """Return the output that is assembled without a model; `None` if the run already has this output."""
        missing_lines = lines_of_missing_results(rounds_state.incomplete_sub_goals(inputs), stop_error)
        output = assembled_output(inputs, rounds_state, missing_lines)
        if tuple(rounds_state.state.plan.output_bindings) == tuple(output[1]):
            return None
        return self._extension(rounds_state, output=output, abandoned_ids=abandoned_ids)

    def _answer_after_stop(self, rounds_state: RoundsState, stop_error: NodeError) -> Extension | None:
        """Create the answer from the filled slots of sub-goals of the type `deliverable`.

        Raises:
            GoalUnreachable: there is no such slot.
        """
        deliverables = rounds_state.deliverables()
        if not deliverables:
            raise GoalUnreachable(stop_error)
        return self._answer(rounds_state, deliverables, stop_error)

    def _update_output(self, rounds_state: RoundsState) -> Extension | None:
        """Return the output that fits the state of the answer node; `None` if the run has this output already."""
        number = rounds_state.state.number_of(rounds_state.state.newest_id(ANSWER))
        assert number is not None
        status = rounds_state.state.records[number].status
        output = output_of_answer()
        if status.is_final and status is not NodeStatus.COMPLETED:
            stop_error = stop_reason(rounds_state)
            output = output_without_answer(
                _synthesis_inputs(rounds_state.last_call) if stop_error is None else rounds_state.deliverables()
            )
        if tuple(rounds_state.state.plan.output_bindings) == tuple(output[1]):
            return None
        return self._extension(rounds_state, output=output)

    def _extension(
        self,
        rounds_state: RoundsState,
        *nodes: CompiledNode,
        output: Output | None = None,
        abandoned_ids: Sequence[str] = (),
    ) -> Extension:
        return Extension(
            rounds_state.state.plan.visible_count,
            nodes,
            self._tools(nodes),
            output=output,
            abandoned=tuple(abandoned_ids),
        )

    def _tools(self, nodes: Sequence[CompiledNode]) -> dict[str, ToolDeclaration]:
        known_tools = {name: worker.tool for name, worker in self._worker_tools.items()} | {CALL_MODEL.name: CALL_MODEL}
        return {node.tool: known_tools[node.tool] for node in nodes}

    @staticmethod
    def _free_id(rounds_state: RoundsState, name: str) -> str:
        number = rounds_state.state.number_of(name)
        assert number is not None
        return free_id(rounds_state.state, number)


def require_intention(state: "RunState") -> None:
    """Check that the intention node has not failed. Without an intention, nothing is planned.

    Raises:
        GoalUnreachable: the intention node failed, was skipped or was cancelled.
    """
    number = state.number_of(state.newest_id(INTENTION))
    assert number is not None
    record = state.records[number]
    if record.status.is_final and record.status is not NodeStatus.COMPLETED:
        reason = f": {record.reason}" if record.reason else ""
        message = f"the question could not be clarified: {INTENTION!r} was {record.status.value}{reason}"
        raise GoalUnreachable(record.error or NodeError(PLANNER_STOPPED, message))


def _synthesis_inputs(last_call: PlannerCall) -> Mapping[str, Input]:
    try:
        return INPUTS.decode(last_call.synthesis_inputs)
    except ValueError as error:
        raise GoalUnreachable(NodeError("invalid_result", f"{last_call.node.id!r}: {error}")) from None


def stop_reason(rounds_state: RoundsState) -> NodeError | None:
    """Return the error that stops the planner early; `None` if the planner has finished or may continue."""
    last_call = rounds_state.last_call
    status, record = last_call.record.status, last_call.record
    if not status.is_final:
        return None
    if status is NodeStatus.SKIPPED:
        return NodeError(
            BUDGET_SPENT, f"the budget was used up before round {last_call.round} was planned: {record.reason}"
        )
    if status is not NodeStatus.COMPLETED:
        text = f"the planner did not respond in round {last_call.round}: {last_call.node.id!r} was {status.value}"
        return record.error or NodeError(PLANNER_STOPPED, f"{text}{f': {record.reason}' if record.reason else ''}")
    if last_call.action is None:
        return _repair_stop_reason(rounds_state, last_call)
    is_last_round = last_call.action == "continue" and last_call.round >= rounds_state.spec.max_rounds
    if is_last_round and rounds_state.has_added_sub_goals_of(last_call) and rounds_state.have_all_nodes_ended:
        max_rounds = rounds_state.spec.max_rounds
        used_rounds = f"all {max_rounds} rounds are used" if max_rounds > 1 else "the only round is used"
        message = f"{used_rounds}, but the planner needs at least one more round to finish"
        return NodeError(MAX_ROUNDS_REACHED, message)
    return None


def _repair_stop_reason(rounds_state: RoundsState, last_call: PlannerCall) -> NodeError | None:
    """Return why an invalid answer of the planner is not repaired again; `None` if it is repaired."""
    parsed_answer = last_call.parsed_answer or {}
    text = str(parsed_answer.get("message", ""))
    repeating_calls = [
        call for call in rounds_state.calls_of(last_call.round) if (call.parsed_answer or {}).get("repeats") is True
    ]
    if parsed_answer.get("repeats") is True and len(repeating_calls) > 1:
        message = f"the planner repeats finished sub-goals after a correction: {text}"
        return NodeError(PLANNER_REPEATS, cut_bytes(message, max_bytes=MAX_FAILURE_MESSAGE_BYTES))
    if sum(call.is_repair for call in rounds_state.calls_of(last_call.round)) < MAX_REPAIRS:
        return None
    message = f"in round {last_call.round} the planner gave {MAX_REPAIRS + 1} invalid answers; {text}"
    return NodeError(PLANNER_INVALID, cut_bytes(message, max_bytes=MAX_FAILURE_MESSAGE_BYTES))
