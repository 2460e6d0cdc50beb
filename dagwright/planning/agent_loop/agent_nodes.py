"""Convert the nodes of LLM agents into sub-plans that an extender extends. Each sub-plan runs in its own workflow.

The compiler treats every agent as a tool (`dagwright.core.model.agents`). Agents implemented by a class or a
service also run as tools. Agents of type `llm` are converted here, because the conversion uses model requests, which
`core` must not import.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dagwright.core.compiler.projections import with_projections
from dagwright.core.model.agents import AgentCard, agent_cards
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan
from dagwright.core.model.tools import ToolDeclaration, with_compensating_tools
from dagwright.planning.agent_loop.spec import DEFAULT_MAX_TURNS, OBJECTIVE, AgentSpec, agent_plan, result_input
from dagwright.planning.model_calls.model_requests import OutputSchema

_CONTEXT = "context"


def with_agent_sub_plans(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:
    """Replace the nodes of `llm` agents in a compiled plan with sub-plans, recursively.

    Args:
        plan: a compiled plan without regions.
        tools: all known tools, including the agents.
    """
    if not any(card.type == "llm" for card in agent_cards(tools)):
        # Return early: most plans have no agents, and some have a hundred thousand nodes.
        return plan
    nodes = nodes_with_agent_sub_plans(plan.nodes, plan.nodes, tools=tools)
    if all(new_node is node for new_node, node in zip(nodes, plan.nodes, strict=True)):
        return plan
    used_tools = with_compensating_tools([node.tool for node in nodes if node.kind in ("tool", "lookup")], plan.tools)
    return with_projections(
        replace(plan, nodes=nodes, tools={name: tool for name, tool in plan.tools.items() if name in used_tools})
    )


def nodes_with_agent_sub_plans(
    nodes: Sequence[CompiledNode],
    titled_nodes: Sequence[CompiledNode],
    *,
    tools: Mapping[str, ToolDeclaration],
) -> tuple[CompiledNode, ...]:
    """Replace the nodes of `llm` agents with sub-plans; other nodes are returned unchanged.

    Args:
        titled_nodes: nodes whose titles label the results in the context of an agent.
    """
    titles = {node.id: node.title for node in titled_nodes}
    return tuple(_with_agent_sub_plan(node, titles, tools=tools) for node in nodes)


def _with_agent_sub_plan(
    node: CompiledNode, titles: Mapping[str, str | None], *, tools: Mapping[str, ToolDeclaration]
) -> CompiledNode:
    if node.sub_plan is not None:
        sub_plan = with_agent_sub_plans(node.sub_plan, tools)
        return node if sub_plan is node.sub_plan else replace(node, sub_plan=sub_plan)
    card = tools[node.tool].agent if node.kind == "tool" and node.tool in tools else None
    if card is None or card.type != "llm":
        return node
    result_titles = {node_id: titles.get(node_id) for node_id in node.arguments.get(_CONTEXT, {})}
    spec = spec_of_card(card, tools)
    return replace(
        node,
        kind="plan",
        arguments={OBJECTIVE: None, **dict.fromkeys(map(result_input, result_titles))},
        bindings=tuple(map(_binding_of_input, node.bindings)),
        sub_plan=agent_plan(
            spec,
            prompt=card.prompt or "",
            result_titles=result_titles,
            title=node.title or card.name,
            objective=_objective_of(node),
        ),
        # The sub-plan has no timeout, because each model call has a timeout.
        timeout_s=0.0,
        retry=CompiledNode("").retry,
        heartbeat_s=None,
        cache_s=None,
    )


def _objective_of(node: CompiledNode) -> str:
    """Return the text of the objective in the plan, without the values of its references."""
    objective = node.arguments.get(OBJECTIVE)
    texts = [objective] if isinstance(objective, str) else []
    for path, template in node.bindings:
        if path[:1] == (OBJECTIVE,):
            texts += [part for part in template if isinstance(part, str)]
    return "\n".join(texts)


def _binding_of_input(binding: Binding) -> Binding:
    path, template = binding
    return ((result_input(str(path[1])),), template) if path[0] == _CONTEXT else binding


def spec_of_card(card: AgentCard, tools: Mapping[str, ToolDeclaration]) -> AgentSpec:
    """Build the spec of an agent from its card."""
    compensating_names = with_compensating_tools(card.tools, tools)[len(dict.fromkeys(card.tools)) :]
    return AgentSpec(
        card.name,
        tools={name: tools[name] for name in card.tools if name in tools},
        compensating_tools={name: tools[name] for name in compensating_names if name in tools},
        output=None if card.output_schema is None else OutputSchema("answer", card.output_schema),
        max_turns=card.max_turns or DEFAULT_MAX_TURNS,
        max_tokens=card.token_limit,
        feedback_policy=card.feedback_policy,
    )
