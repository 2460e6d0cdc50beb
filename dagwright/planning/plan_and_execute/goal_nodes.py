"""Nodes of plan-and-execute: the planning call, and the node that parses its result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan
from dagwright.core.model.policy import POLICY, intents_policy, model_policy
from dagwright.core.model.resolvers import resolver_of
from dagwright.planning.model_calls.model_requests import (
    CALL_MODEL,
    CallLabels,
    Message,
    ModelCall,
    ModelRequest,
    OutputSchema,
    PlanStreamOptions,
    model_node,
)
from dagwright.planning.model_calls.response_summary import ACCEPTED_NODES_PROJECTION
from dagwright.planning.plan_and_execute.goal_spec import (
    ANSWER,
    PLAN,
    READ,
    READ_MODEL_PLAN,
    Goal,
    decode_tools,
    goal_from_json,
    role_of,
)
from dagwright.planning.plan_and_execute.replan_context import ReplanContext, encoded_replan_context

_MAX_PROBLEMS = 5


def goal_plan(goal: Goal, messages: Sequence[Message], *, title: str) -> CompiledPlan:
    """Build the initial plan of a run for a request: the first planning call, and the node that parses its result.

    Args:
        messages: messages to the planner.
        title: title of the run.
    """
    call = model_node(PLAN, plan_request(goal, messages, purpose=PLAN), title="planning")
    planning_call = with_accepted_projection(call, goal)
    output = output_of_plan(goal, READ) or (None, ())
    return CompiledPlan(
        nodes=(planning_call, parser_node(READ, PLAN, goal, call_number=0)),
        tools={CALL_MODEL.name: CALL_MODEL, READ_MODEL_PLAN.name: READ_MODEL_PLAN},
        title=title,
        output=output[0],
        output_bindings=output[1],
        extender=goal.to_json() | _policy_of(goal),
    )


def _policy_of(goal: Goal) -> dict[str, Any]:
    """Return the default policy for the plan of a goal, under the key `POLICY`."""
    policy = (
        intents_policy(goal.request, resolver_of(decode_tools(goal.tools)).undo)
        if goal.profile == "intents"
        else model_policy(goal.request)
    )
    return {POLICY: policy.to_json()}


def plan_request(
    goal: Goal, messages: Sequence[Message], *, purpose: str, replan_context: ReplanContext | None = None
) -> ModelRequest:
    """Build a call that requests a plan from a model.

    Args:
        replan_context: state of the run at a replan. The plan of a replan may be empty.
    """
    call = ModelCall(
        tuple(messages),
        config=goal.config,
        # The parser also accepts plans that do not match the schema, because models deviate from it.
        output=OutputSchema(
            goal.profile, goal.schema if replan_context is None else _without_min_items(goal.schema), is_enforced=False
        ),
        labels=CallLabels(purpose=purpose),
    )
    planning = PlanStreamOptions(goal.tools, replan_context=replan_context) if goal.streams else None
    return ModelRequest(call, stores_conversation=True, planning=planning)


def _without_min_items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the response format for a plan that may have no nodes."""
    properties = schema.get("properties")
    nodes = properties.get("nodes") if isinstance(properties, Mapping) else None
    if not isinstance(nodes, Mapping) or not isinstance(properties, Mapping):
        return schema
    nodes_schema = {keyword: part for keyword, part in nodes.items() if keyword != "minItems"}
    return {**schema, "properties": {**properties, "nodes": nodes_schema}}


def with_accepted_projection(call: CompiledNode, goal: Goal) -> CompiledNode:
    """Add the projection of the accepted nodes to a planning call.

    The run reads this projection if the response is large.
    """
    return replace(call, projections=(*call.projections, ACCEPTED_NODES_PROJECTION)) if goal.streams else call


def parser_node(
    node_id: str, call_id: str, goal: Goal, *, call_number: int, replan_context: ReplanContext | None = None
) -> CompiledNode:
    """Build the node that parses a plan written by a model.

    Args:
        call_id: ID of the planning call.
        call_number: number of the planning call.
        replan_context: state of the run at a replan.
    """
    bindings: list[Binding] = [
        (("plan",), (ResultOf(call_id, "result", ("output",)),)),
        (("text",), (ResultOf(call_id, "result", ("message", "content")),)),
    ]
    arguments: dict[str, Any] = {"plan": None, "text": None, "tools": list(goal.tools), **parser_options(goal)}
    arguments |= encoded_replan_context(replan_context)
    if goal.streams:
        arguments["accepted_nodes"] = None
        bindings.append((("accepted_nodes",), (ResultOf(call_id, "result", ("accepted_nodes",)),)))
    return CompiledNode(
        node_id,
        title="reading the plan",
        tool=READ_MODEL_PLAN.name,
        arguments=arguments,
        bindings=tuple(bindings),
        dependencies=(call_number,),
        approval="never",
        cache_s=0.0,
    )


def parser_options(goal: Goal) -> Mapping[str, Any]:
    """Return the parser options: the profile with its context, or whether the plan may define agents."""
    if goal.profile == "intents":
        return {"profile": goal.profile, "context": {name: dict(entity) for name, entity in goal.context.items()}}
    return {"inline_agents": True} if goal.inline_agents else {}


def output_of_plan(goal: Goal, read_id: str) -> tuple[Any, Sequence[Binding]] | None:
    """Return the output of a run that ends with the plan; `None` for other runs."""
    if not goal.plan_only:
        return None
    return None, (((), (ResultOf(read_id, "result", ("plan",)),)),)


def without_later_plans(plan: CompiledPlan, rerun_ids: Collection[str]) -> CompiledPlan:
    """Return the plan of a run up to the first node with a reserved ID that a fork runs again.

    Args:
        plan: plan of a run with all extensions so far. A plan with another extender is returned unchanged.
        rerun_ids: IDs of the nodes that the fork runs again.
    """
    if not plan.has_planner:
        return plan
    roles = [role_of(node.id) for node in plan.nodes]
    rerun_numbers = [
        number for number, node in enumerate(plan.nodes) if node.id in rerun_ids and roles[number] is not None
    ]
    if not rerun_numbers:
        return plan
    # A planning call needs the node that parses its result.
    parse_numbers = [number for number, role in enumerate(roles) if role == READ]
    count = max(rerun_numbers[0], *(number for number in parse_numbers if number <= rerun_numbers[0] + 1)) + 1
    if ANSWER in roles[:count]:
        return replace(plan, nodes=plan.nodes[:count])
    last_parse_id = plan.nodes[max(number for number in parse_numbers if number < count)].id
    output, bindings = output_of_plan(goal_from_json(plan.extender), last_parse_id) or (None, ())
    return replace(plan, nodes=plan.nodes[:count], output=output, output_bindings=bindings)


def conflict_message(parsed_plan: Mapping[str, Any]) -> str:
    """Return the message to the model about a plan whose node IDs are already used in the run."""
    return (
        f"This plan cannot be run: {problems_text(parsed_plan)}.\n"
        "Give these nodes other ids.\n"
        "Write the whole plan again as one JSON object."
    )


def problems_text(parsed_plan: Mapping[str, Any]) -> str:
    """Format the first problems of a parsed plan, separated by semicolons."""
    problems = [problem for problem in parsed_plan.get("problems", ()) if isinstance(problem, Mapping)]
    entries = [
        f"{problem.get('code')}{f' at {path}' if (path := problem.get('pointer')) else ''}: {problem.get('message')}"
        for problem in problems[:_MAX_PROBLEMS]
    ]
    count = parsed_plan.get("problem_count", len(problems))
    omitted_count = count - len(entries) if type(count) is int else 0
    return "; ".join([*entries, *([f"and {omitted_count} more"] if omitted_count > 0 else [])])
