"""Plan-and-execute: a model plans, the plan is parsed and checked, its nodes run, and a model answers from the results.

The next step depends on the plan and the records alone. IDs: the model call that writes the plan is `plan`, and the
node that parses it is `read`. The pair after an invalid plan, or for a replan, is `plan#2` and
`read#2`, and so on. `approve` requests approval of the plan, and `answer` is the last node.

Replay: IDs, order and content of the nodes are part of a run's history.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeError, NodeStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.planning.model_calls.response_summary import missing_information
from dagwright.planning.plan_and_execute.goal_answer import changed_output, request_answer
from dagwright.planning.plan_and_execute.goal_spec import (
    ANSWER,
    APPROVE,
    PLAN,
    READ,
    Goal,
    decode_tools,
    is_reserved,
    may_start_early,
)
from dagwright.planning.plan_and_execute.goal_state import GoalState, Stage
from dagwright.planning.plan_and_execute.plan_approval import needs_approval, request_approval
from dagwright.planning.plan_and_execute.plan_nodes import add_nodes, has_all_nodes, id_conflicts, skip_unreachable
from dagwright.planning.plan_and_execute.planning_calls import repair_plan, replan
from dagwright.planning.plan_and_execute.replans import ReplanReason, reason_of_missing_information, reasons_of
from dagwright.planning.plan_and_execute.step_messages import Step

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState


class PlanAndExecute:
    """Extends a run for a goal: adds the next planning call, the nodes of a valid plan, and the answer."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._tools: Mapping[str, ToolDeclaration] | None = None
        """Tools of the goal, decoded only once, because thousands of messages with early nodes may need them."""

    def next_extension(self, state: "RunState") -> Extension | None:
        """Return the next extension for the goal.

        Raises:
            GoalUnreachable: the model has written the maximum number of plans, and none of them can run.
        """
        run = GoalState(state, self._goal)
        extension_or_stage = self._next_extension_or_stage(run)
        if extension_or_stage is Stage.FINISHED:
            return _replan_or_answer(run)
        return extension_or_stage if isinstance(extension_or_stage, Extension) else None

    def _next_extension_or_stage(self, run: GoalState) -> Extension | Stage:
        """Return the next extension for the newest plan, or the stage of the plan if there is nothing to add."""
        parser_number = run.newest_number(READ)
        if parser_number is None:
            return Stage.OPEN
        if (parsed_plan := run.parsed_plan_of(parser_number)) is None:
            return run.stage_without_plan(parser_number)
        if parsed_plan["valid"] and self._goal.plan_only:
            return Stage.OPEN
        if (stage := run.stage_after_changed_reasons()) is not None:
            return stage
        if not parsed_plan["valid"]:
            return repair_plan(run, parser_number, parsed_plan) or Stage.FINISHED
        if (approval_number := run.newest_number(APPROVE)) is not None and approval_number > parser_number:
            return self._extension_or_stage_after_approval(run, parser_number, approval_number, parsed_plan)
        if has_all_nodes(run, parsed_plan):
            return skip_unreachable(run, parsed_plan) or Stage.FINISHED
        if needs_approval(run, parsed_plan):
            return request_approval(run, parser_number, parsed_plan)
        conflicts = id_conflicts(run, parsed_plan)
        if conflicts:
            return repair_plan(run, parser_number, conflicts) or Stage.FINISHED
        return add_nodes(run, parser_number, parsed_plan)

    def _extension_or_stage_after_approval(
        self, run: GoalState, parser_number: int, approval_number: int, parsed_plan: Mapping[str, Any]
    ) -> Extension | Stage:
        """Return the next extension for a plan with a request for approval, or the stage of the plan."""
        if (approved_plan := run.parsed_plan_of(approval_number)) is None:
            return run.stage_without_approval(approval_number)
        if not approved_plan["valid"]:
            return request_approval(run, parser_number, parsed_plan, problems=approved_plan)
        if has_all_nodes(run, approved_plan):
            return Stage.FINISHED
        conflicts = id_conflicts(run, approved_plan)
        if conflicts:
            return request_approval(run, parser_number, parsed_plan, problems=conflicts)
        return add_nodes(run, approval_number, approved_plan)

    def goal_error(self, state: "RunState") -> NodeError | None:  # noqa: ARG002 - interface of extenders
        """Return `None`: the errors of the run are the errors of its nodes."""
        return None

    def is_reserved(self, node_id: str) -> bool:
        """Check whether a node ID belongs to a node that the run itself adds."""
        return is_reserved(node_id)

    def rejection_of_result(self, node_id: str, result: Any) -> str | None:  # noqa: ARG002 - interface of extenders
        """Return why the result of a node cannot be overridden: plans are parsed and approved, not set."""
        if not is_reserved(node_id):
            return None
        return f"only the run itself may set the result of {node_id!r}; retry the node instead"

    def early_tools(self) -> Mapping[str, ToolDeclaration] | None:
        """Return the tools that nodes may use while the model is writing the plan; `None` if streaming is off."""
        if self._tools is None and self._goal.streams:
            self._tools = decode_tools(list(self._goal.tools))
        return self._tools

    def early_start_rejection(
        self, state: "RunState", extension: Extension, *, tools: Mapping[str, ToolDeclaration]
    ) -> str | None:
        """Return why nodes may not run before their plan is complete.

        Args:
            tools: the result of `early_tools`.
        """
        ids = [node.id for node in (*state.plan.nodes[: extension.base], *extension.nodes)]
        for node in extension.nodes:
            if not may_start_early(node, tools):
                return f"{node.id!r} must wait until the plan is complete"
            dependency_ids = [ids[number] for number in node.dependencies]
            if (reserved_id := next(filter(is_reserved, dependency_ids), None)) is not None:
                return f"{node.id!r} waits for {reserved_id!r}, which is not a node of the plan"
        return None


def _replan_or_answer(run: GoalState) -> Extension | None:
    """Return the next extension when there is nothing left to add for the newest plan: a replan or the answer."""
    steps = list(run.plan_steps())
    if run.goal.profile == "intents":
        # The output of the run is the result of the intents; without intents, the output is empty.
        return None if steps or run.state.plan.output is not None else run.extension(output=({}, ()))
    answer_number = run.newest_number(ANSWER)
    if not all(record.status.is_final for _, record in steps):
        return None
    if answer_number is not None and not run.state.records[answer_number].status.is_final:
        return None
    if answer_number is not None and answer_number < max((run.number_of(node) for node, _ in steps), default=0):
        # The answer does not include the newest results.
        answer_number = None
    if answer_number is not None and (output := changed_output(run, answer_number)) is not None:
        return run.extension(output=output)
    reasons = _replan_reasons(run, steps, answer_number)
    if reasons and run.can_replan():
        return replan(run, reasons)
    return request_answer(run) if answer_number is None else None


def _replan_reasons(run: GoalState, steps: Sequence[Step], answer_number: int | None) -> list[ReplanReason]:
    """Return the reasons for a replan that have not caused a replan yet.

    Args:
        answer_number: number of the node with the current answer; `None` without an answer.
    """
    handled_ids = {
        node_id
        for plan in run.numbers_with_role(PLAN)
        if run.is_replan_call(plan) and (replan_context := run.replan_context_at(plan)) is not None
        for node_id in replan_context.cause_ids
    }
    reasons = reasons_of(steps, handled_ids=handled_ids)
    if answer_number is None or run.state.plan.nodes[answer_number].id in handled_ids:
        return reasons
    node, record = run.state.plan.nodes[answer_number], run.state.records[answer_number]
    can_report_missing_information = record.status is NodeStatus.COMPLETED and not run.goal.output_schema
    missing_texts = missing_information(record.result) if can_report_missing_information else ()
    return [*reasons, reason_of_missing_information(node, missing_texts)] if missing_texts else reasons
