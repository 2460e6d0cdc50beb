"""Planning calls after the first: they repair a plan that cannot run, or replan.

Replay: IDs, order and content of the nodes are part of a run's history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.compiled import Binding
from dagwright.core.model.states import NodeError, NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.core.text import cut_bytes
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.model_requests import ModelRequest, model_node, user
from dagwright.planning.plan_and_execute.goal_nodes import (
    conflict_message,
    output_of_plan,
    parser_node,
    plan_request,
    problems_text,
    with_accepted_projection,
)
from dagwright.planning.plan_and_execute.goal_spec import PLAN, PLAN_INVALID, READ, REPAIR, REPLAN
from dagwright.planning.plan_and_execute.replan_context import ReplanContext
from dagwright.planning.plan_and_execute.replans import ReplanReason, replan_context_of, replan_messages, replan_title

if TYPE_CHECKING:
    from dagwright.planning.plan_and_execute.goal_state import GoalState


def repair_plan(run: "GoalState", parser_number: int, parsed_plan: Mapping[str, Any]) -> Extension | None:
    """Build the call that shows the model the problems of its plan, and the node that parses the next plan.

    Returns:
        The two nodes, or `None` if this is a replan and the model has written the maximum number of plans.

    Raises:
        GoalUnreachable: the model has written the maximum number of plans, and the run has no other plan.
    """
    last_call = run.newest_number(PLAN)
    assert last_call is not None
    round_start, replan_context = run.round_start, run.replan_context
    plan_count = sum(number > round_start for number in run.numbers_with_role(READ))
    if plan_count >= run.goal.max_plans and replan_context is not None:
        return None
    if plan_count >= run.goal.max_plans:
        message = f"the model wrote {plan_count} plan{'s' if plan_count > 1 else ''}, and none can be run"
        raise GoalUnreachable(
            NodeError(
                PLAN_INVALID, cut_bytes(f"{message}; {problems_text(parsed_plan)}", max_bytes=MAX_FAILURE_MESSAGE_BYTES)
            )
        )
    # Bindings fill in the empty texts: the message of the parser, and the earlier conversation, which is in the store.
    messages = [user("" if "repair" in parsed_plan else conflict_message(parsed_plan))]
    request = replace(
        plan_request(run.goal, messages, purpose=REPAIR, replan_context=replan_context), previous_conversation=""
    )
    conversation = ResultOf(run.state.plan.nodes[last_call].id, "result", ("conversation",))
    bindings: list[Binding] = [(("previous_conversation",), (conversation,))]
    if "repair" in parsed_plan:
        repair_message = ResultOf(run.state.plan.nodes[parser_number].id, "result", ("repair",))
        bindings.append((("messages", 0, "content"), (repair_message,)))
    # Without `repair`, the plan has IDs that conflict with IDs of the run, so none of its nodes were accepted.
    if run.goal.streams and "repair" in parsed_plan:
        accepted_nodes = ResultOf(run.state.plan.nodes[last_call].id, "result", ("accepted_nodes",))
        bindings.append((("planning", "accepted_nodes"), (accepted_nodes,)))
    return _planning_extension(
        run,
        request,
        title="repairing the plan",
        dependencies=[parser_number],
        bindings=bindings,
        replan_context=replan_context,
    )


def replan(run: "GoalState", reasons: Sequence[ReplanReason]) -> Extension:
    """Build a replan: the planning call, with the state of the run, and the node that parses its result."""
    steps = list(run.plan_steps())
    replan_context = replan_context_of(run.state, steps, reasons)
    prompt = replan_messages(run.goal, steps, reasons)
    last_parser = max(
        parser_number
        for parser_number in run.numbers_with_role(READ)
        if run.state.records[parser_number].status is NodeStatus.COMPLETED
    )
    # A binding fills in the reference to the earlier conversation, which is in the store.
    request = replace(
        plan_request(run.goal, prompt.messages, purpose=REPLAN, replan_context=replan_context),
        previous_conversation="",
        cuts=dict(prompt.cuts),
    )
    previous_id = run.state.plan.nodes[run.state.plan.nodes[last_parser].dependencies[0]].id
    conversation = ResultOf(previous_id, "result", ("conversation",))
    bindings: list[Binding] = [(("previous_conversation",), (conversation,)), *prompt.bindings]
    title = replan_title(reasons, count=run.replan_count() + 1, max_replans=run.goal.max_replans)
    # Completed nodes are never replaced, so these edges never form a cycle.
    last_numbers = run.numbers_of_steps_without_dependents(
        [step for step in steps if step[1].status is NodeStatus.COMPLETED]
    )
    return _planning_extension(
        run,
        request,
        title=title,
        dependencies=[last_parser, *last_numbers],
        bindings=bindings,
        replan_context=replan_context,
    )


def _planning_extension(
    run: "GoalState",
    request: ModelRequest,
    *,
    title: str,
    dependencies: Sequence[int],
    bindings: Sequence[Binding],
    replan_context: ReplanContext | None,
) -> Extension:
    call_id, parser_id = run.free_id(PLAN), run.free_id(READ)
    call = model_node(call_id, request, title=title, dependencies=dependencies, bindings=bindings)
    # The call is the next node.
    call_number = run.state.plan.visible_count
    return run.extension(
        with_accepted_projection(call, run.goal),
        parser_node(parser_id, call_id, run.goal, call_number=call_number, replan_context=replan_context),
        output=output_of_plan(run.goal, parser_id),
    )
