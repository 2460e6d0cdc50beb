"""Compile a checked plan, and reject features that are not available."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from dagwright.core.compiler.projections import with_projections
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.paths import replace_parts
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.agents import replace_agent_effects, tool_of_agent
from dagwright.core.model.compiled import (
    DEFAULT_TIMEOUT_S,
    Approval,
    Binding,
    CompiledNode,
    CompiledPlan,
    Join,
    RetryRule,
    default_retry,
)
from dagwright.core.model.lookups import with_inherited_lookups, with_lookups
from dagwright.core.model.plan import AtLeast, Cache, Human, Node, OnErrorValue, question_of
from dagwright.core.model.resolvers import resolver_of
from dagwright.core.model.tools import Effects, ToolDeclaration, with_compensating_tools
from dagwright.core.validation.checked_plan import CheckedPlan, NodeReferences
from dagwright.core.validation.node_checks import effects_of_node

_ON_ERROR: Mapping[str, Literal["skip", "ask", "replan"]] = {"skip": "skip", "ask": "ask", "replan": "replan"}


def compile_plan(checked_plan: CheckedPlan) -> CompiledPlan:
    """Compile a checked plan.

    Raises:
        PlanInvalid: the plan uses features that are not available (agents of a type that cannot run,
            `on_error: replan`); the error lists each use with its position.
    """
    return _compile_if_valid(checked_plan, [*unavailable_features(checked_plan)])


def compile_with_planner(checked_plan: CheckedPlan) -> CompiledPlan:
    """Compile a checked plan whose run has a planner, so that its nodes may use `on_error: replan`.

    Raises:
        PlanInvalid: as `compile_plan`, but `on_error: replan` is invalid only in sub-plans, whose runs have no planner.
    """
    sub_plan_problems = [
        problem for sub_plan in checked_plan.sub_plans.values() for problem in _planner_problems(sub_plan)
    ]
    return _compile_if_valid(checked_plan, [*_unsupported_features(checked_plan), *sub_plan_problems])


def _compile_if_valid(checked_plan: CheckedPlan, problems: Sequence[Problem]) -> CompiledPlan:
    """Compile a plan without problems; raise `PlanInvalid` otherwise."""
    if problems:
        raise PlanInvalid(problems)
    return compiled_form(checked_plan)


def compiled_form(checked_plan: CheckedPlan) -> CompiledPlan:
    """Compile a checked plan, even if it uses features that are not available."""
    return with_projections(with_lookups(_compile(checked_plan), checked_plan.lookups, resolver_of(checked_plan.tools)))


def unavailable_features(checked_plan: CheckedPlan) -> Iterator[Problem]:
    """Yield a problem for each unavailable feature that a valid plan uses, for a run without a planner."""
    yield from _unsupported_features(checked_plan)
    yield from _planner_problems(checked_plan)


def _unsupported_features(checked_plan: CheckedPlan) -> Iterator[Problem]:
    """Yield a problem for each feature that no run supports yet."""
    for index, node in enumerate(checked_plan.nodes):
        for name, feature in _unavailable_parts(node, checked_plan.tools):
            field_pointer = checked_plan.document.written_pointer(pointer(*checked_plan.base, "nodes", index, name))
            yield Problem("not_supported", f"{feature}: not supported yet", field_pointer, node.id)
        if index in checked_plan.sub_plans:
            yield from _unsupported_features(checked_plan.sub_plans[index])


def _planner_problems(checked_plan: CheckedPlan) -> Iterator[Problem]:
    """Yield a problem for each node that requires a planner (`on_error: replan`) in a run without one."""
    for index, node in enumerate(checked_plan.nodes):
        if node.on_error == "replan":
            field_pointer = checked_plan.document.written_pointer(
                pointer(*checked_plan.base, "nodes", index, "on_error")
            )
            message = "on_error: replan: only runs of `dagwright ask` have a planner, and sub-plans have no planner"
            yield Problem(
                "not_supported",
                message,
                field_pointer,
                node.id,
                "write block, skip, ask or a value, or use `dagwright ask`",
            )
        if index in checked_plan.sub_plans:
            yield from _planner_problems(checked_plan.sub_plans[index])


def _unavailable_parts(node: Node, tools: Mapping[str, ToolDeclaration]) -> Iterator[tuple[str, str]]:
    if node.agent_name is not None:
        agent = tool_of_agent(node.agent_name, tools)
        if agent is None:
            yield "agent", f"the agent {node.agent_name!r} (no agent and no tool has this name)"
        elif agent.agent is not None and agent.agent.type == "llm":
            for name in ("retry", "heartbeat"):
                if getattr(node, name) is not None:
                    yield name, f"{name} of an agent of type llm"
    for name in ("retry", "heartbeat") if node.plan is not None else ():
        if getattr(node, name) is not None:
            yield name, f"{name} of a sub-plan (set it on the nodes of the sub-plan)"


def _compile(checked_plan: CheckedPlan) -> CompiledPlan:
    nodes = tuple(_compile_node(checked_plan, index) for index in range(len(checked_plan.nodes)))
    called_tools = {node.tool for node in nodes if node.kind == "tool"}
    output, output_bindings = _split_bindings(checked_plan.plan.output, checked_plan.output_bindings)
    return CompiledPlan(
        nodes=nodes,
        tools={
            name: replace_agent_effects(checked_plan.tools[name], checked_plan.tools)
            for name in sorted(with_compensating_tools(called_tools, checked_plan.tools))
            if name in checked_plan.tools
        },
        title=checked_plan.plan.title,
        metadata=checked_plan.plan.metadata,
        inputs=checked_plan.inputs,
        on_failure=checked_plan.plan.on_failure,
        deadline_s=checked_plan.plan.deadline.total_seconds() if checked_plan.plan.deadline else None,
        output=output,
        output_bindings=output_bindings,
        dialect=checked_plan.dialect,
    )


def _compile_node(checked_plan: CheckedPlan, index: int) -> CompiledNode:
    node, references = checked_plan.nodes[index], checked_plan.references[index]
    tool = (
        tool_of_agent(node.agent_name, checked_plan.tools)
        if node.agent_name
        else checked_plan.tools.get(node.tool or "")
    )
    arguments, bindings = _arguments_of(checked_plan, index)
    items, item_bindings = _split_bindings(node.for_each, references.item_bindings)
    approval, approval_bindings = _approval_of(node, references)
    if node.human is not None:
        arguments, bindings = _split_bindings(question_of(node.human), references.human_bindings)
    compiled_node = CompiledNode(
        id=node.id,
        kind="plan" if node.plan is not None else "human" if node.human is not None else "tool",
        title=node.title,
        tool=tool.name if tool else node.tool or node.agent_name or "",
        arguments=arguments,
        bindings=bindings,
        dependencies=tuple(checked_plan.dependencies[index]),
        join=_join_of(node),
        when=node.when,
        for_each=references.for_each if isinstance(node.for_each, str) else items,
        item_bindings=item_bindings,
        key=references.key,
        max_parallel=node.max_parallel,
        on_error="value" if isinstance(node.on_error, OnErrorValue) else _ON_ERROR.get(node.on_error, "block"),
        value=node.on_error.value if isinstance(node.on_error, OnErrorValue) else None,
        retry=_retry_of(node, tool),
        timeout_s=_timeout_s(node, tool),
        heartbeat_s=node.heartbeat.total_seconds() if node.heartbeat else None,
        priority=node.priority,
        cache_s=node.cache.ttl.total_seconds()
        if isinstance(node.cache, Cache)
        else None
        if node.cache is None
        else 0.0,
        is_worker=index in checked_plan.worker_tool_nodes or (tool is not None and tool.worker is not None),
        approval=approval,
        approval_bindings=approval_bindings,
        sub_plan=_compile(checked_plan.sub_plans[index]) if index in checked_plan.sub_plans else None,
        effects=effects_of_node(tool, node, arguments, unknown_paths=[path for path, _ in bindings]),
    )
    return (
        _agent_as_tool(compiled_node, checked_plan, index)
        if node.agent_name is not None and tool is not None
        else compiled_node
    )


def _arguments_of(checked_plan: CheckedPlan, index: int) -> tuple[Any, tuple[Binding, ...]]:
    """Return the arguments of a node; the arguments of a sub-plan include its lookups."""
    arguments, bindings = _split_bindings(
        checked_plan.nodes[index].arguments, checked_plan.references[index].argument_bindings
    )
    sub_plan = checked_plan.sub_plans.get(index)
    return (arguments, bindings) if sub_plan is None else with_inherited_lookups(arguments, bindings, sub_plan.lookups)


def _approval_of(node: Node, references: NodeReferences) -> tuple[Approval, Sequence[Binding]]:
    if isinstance(node.approval, Human):
        return _split_bindings(question_of(node.approval), references.approval_bindings)
    # A human node needs no approval: it is a request to a person already.
    return ("policy" if node.human is not None else node.approval), ()


def _agent_as_tool(compiled_node: CompiledNode, checked_plan: CheckedPlan, index: int) -> CompiledNode:
    """Return an agent's node as a tool call whose arguments have the objective and the results of the dependencies."""
    references = checked_plan.references[index]
    arguments = {**compiled_node.arguments, "objective": None}
    bindings = [*compiled_node.bindings, (("objective",), references.objective or ("",))]
    schema = checked_plan.tools[compiled_node.tool].input_schema
    if schema is None or "context" in schema.get("properties", {}) or schema.get("additionalProperties", True):
        ids = [checked_plan.nodes[number].id for number in checked_plan.dependencies[index]]
        arguments["context"] = dict.fromkeys(ids)
        bindings += [(("context", node_id), (ResultOf(node_id, "result"),)) for node_id in ids]
    return replace(compiled_node, arguments=arguments, bindings=tuple(bindings))


def _timeout_s(node: Node, tool: ToolDeclaration | None) -> float:
    """Return the timeout of one attempt in seconds; 0 means no limit."""
    if node.timeout is not None:
        return node.timeout.total_seconds()
    if node.plan is not None:
        return 0.0
    return tool.timeout_s if tool else DEFAULT_TIMEOUT_S


def _join_of(node: Node) -> Join:
    if isinstance(node.join, AtLeast):
        return "at_least", node.join.at_least
    return node.join, 0


def _retry_of(node: Node, tool: ToolDeclaration | None) -> RetryRule:
    """Return the retry rule of a node: from the plan, else from the tool, else the default."""
    rule = default_retry(tool.effects, tool.max_attempts) if tool else default_retry(Effects.WRITE, None)
    if node.retry is None:
        return rule
    return RetryRule(
        max_attempts=node.retry.max_attempts or rule.max_attempts,
        first_delay_s=node.retry.first_delay.total_seconds() if node.retry.first_delay else rule.first_delay_s,
        factor=node.retry.factor or rule.factor,
        max_delay_s=node.retry.max_delay.total_seconds() if node.retry.max_delay else None,
    )


def _split_bindings(value: Any, bindings: Sequence[Binding]) -> tuple[Any, tuple[Binding, ...]]:
    """Return a value with null in place of each binding, and the bindings."""
    return replace_parts(value, [(path, None) for path, _ in bindings]), tuple(bindings)
