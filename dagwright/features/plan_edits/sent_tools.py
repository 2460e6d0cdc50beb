"""Tool declarations that are sent to a run together with nodes, or stored in a plan to which answers may add nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.model.agents import AgentCard, agent_declaration, card_from_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.resolvers import resolver_of
from dagwright.core.model.tools import (
    AGENT_PREFIX,
    ENCODED_FIELDS,
    Effects,
    ToolDeclaration,
    WorkerCard,
    problem_of_effects_rule,
    with_compensating_tools,
    worker_card_from_json,
)

MAX_TIMEOUT_S = 365 * 86_400.0
_MODEL_FIELDS: Mapping[str, type] = {"description": str, "input_schema": dict}
"""Additional fields for a model that may call the tool."""
_FIELD_TYPES = {**ENCODED_FIELDS, **_MODEL_FIELDS}


def tools_to_json(names: Iterable[str], tools: Mapping[str, ToolDeclaration]) -> dict[str, Any]:
    """Encode tools for a run, including their compensation tools and the tools that agents may call.

    Args:
        names: tool names; unknown names are ignored.
    """
    resolver = resolver_of(tools)
    # Sub-plans may contain lookups, which need the tools of the resolver.
    all_names = [*names, resolver.find, resolver.bind]
    encoded_tools = {
        name: tool_to_json(tools[name]) for name in with_compensating_tools(all_names, tools) if name in tools
    }
    for name in [*encoded_tools]:
        card = tools[name].agent
        if card is not None and card.type == "llm":
            encoded_tools[name]["agent"] = card.to_json()
            for tool_name in with_compensating_tools(card.tools, tools):
                if tool_name in tools:
                    encoded_tools[tool_name] = tool_to_json(tools[tool_name]) | _model_fields(tools[tool_name])
    return encoded_tools


def tool_to_json(tool: ToolDeclaration) -> dict[str, Any]:
    """Encode a tool without the fields that only the check before a run needs."""
    encoded: dict[str, Any] = {"effects": tool.effects.value, "timeout_s": tool.timeout_s}
    for name in ENCODED_FIELDS:
        if getattr(tool, name) is not None:
            encoded[name] = getattr(tool, name)
    if tool.worker is not None:
        encoded["worker"] = tool.worker.to_json()
    return encoded


def _model_fields(tool: ToolDeclaration) -> dict[str, Any]:
    return {name: getattr(tool, name) for name in _MODEL_FIELDS if getattr(tool, name)}


def with_tools_for_answers(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:
    """Return a plan with the declarations of all tools that an answer to a GUIDANCE request may use.

    An answer sent by a signal, for example in the Temporal UI, contains no declarations, and a run has no registry.
    Therefore plans with such requests contain the declarations. Agents are omitted, because their cards are large.

    Args:
        tools: all tools of the workers of the run.

    Complexity: linear in the nodes and the tools.
    """
    if any(node.sub_plan is not None for node in plan.nodes):
        plan = replace(plan, nodes=tuple(_with_tools_in_sub_plan(node, tools) for node in plan.nodes))
    if not any(map(_accepts_nodes, plan.nodes)):
        return plan
    additional_tools = {name: tool for name, tool in tools.items() if tool.agent is None and name not in plan.tools}
    return replace(plan, tools={**plan.tools, **{name: additional_tools[name] for name in sorted(additional_tools)}})


def _with_tools_in_sub_plan(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> CompiledNode:
    sub_plan = node.sub_plan
    return node if sub_plan is None else replace(node, sub_plan=with_tools_for_answers(sub_plan, tools))


def _accepts_nodes(node: CompiledNode) -> bool:
    return node.kind == "human" and node.arguments.get("type") == "GUIDANCE"


def tools_from_json(encoded: Any) -> dict[str, ToolDeclaration]:
    """Decode `{name: …}` with values of `tool_to_json`; null means no tools.

    Raises:
        ValueError: a declaration is invalid.
    """
    if encoded is not None and not isinstance(encoded, Mapping):
        raise ValueError("'tools' must be an object of declarations by name")
    return {str(name): _tool_from_json(str(name), declaration) for name, declaration in (encoded or {}).items()}


def _tool_from_json(name: str, encoded: Any) -> ToolDeclaration:
    if not isinstance(encoded, Mapping):
        raise ValueError(f"the tool {name!r} must be an object")
    if encoded.get("agent") is not None:
        return agent_declaration(_card_from_json(name, encoded["agent"]))
    timeout_s = encoded.get("timeout_s", 60.0)
    values = {field: encoded[field] for field in _FIELD_TYPES if encoded.get(field) is not None}
    invalid_fields = [field for field, value in values.items() if type(value) is not _FIELD_TYPES[field]]
    if invalid_fields or type(timeout_s) not in (int, float) or not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"the tool {name!r} has an invalid {invalid_fields[0] if invalid_fields else 'timeout_s'!r}")
    if any(values.get(field, 1) < 1 for field in ("max_parallel", "max_attempts")):
        raise ValueError(f"the limits of the tool {name!r} must be at least 1")
    if "effects_by" in values and (problem := problem_of_effects_rule(values["effects_by"])) is not None:
        raise ValueError(f"the tool {name!r}: effects_by: {problem}")
    try:
        effects = Effects(encoded.get("effects", "write"))
    except ValueError:
        raise ValueError(f"the effects of the tool {name!r} must be pure, read, idempotent or write") from None
    worker = None if encoded.get("worker") is None else _worker_from_json(name, encoded["worker"])
    return ToolDeclaration(name, effects, timeout_s=timeout_s, worker=worker, **values)


def _worker_from_json(name: str, encoded: Any) -> WorkerCard:
    try:
        return worker_card_from_json(encoded)
    except ValueError as error:
        raise ValueError(f"invalid card of the worker tool {name!r}: {error}") from None


def _card_from_json(name: str, encoded: Any) -> AgentCard:
    try:
        card = card_from_json(encoded)
    except ValueError as error:
        raise ValueError(f"invalid card of the agent {name!r}: {error}") from None
    if name != AGENT_PREFIX + card.name or card.type != "llm":
        raise ValueError(f"{name!r} has the card of another agent, {card.name!r} of type {card.type}")
    return card


def find_tool_names(nodes: Sequence[Any]) -> Sequence[str]:
    """Return the names of the tools in nodes that are not compiled yet."""
    names_found: list[str] = []
    for node in nodes:
        document = node if isinstance(node, Mapping) else {}
        agent, sub_plan = document.get("agent"), document.get("plan")
        names = [document.get("tool"), *([AGENT_PREFIX + agent, agent] if isinstance(agent, str) else [])]
        names_found += [name for name in names if isinstance(name, str)]
        inner_nodes = sub_plan.get("nodes") if isinstance(sub_plan, Mapping) else None
        names_found += find_tool_names(inner_nodes if isinstance(inner_nodes, list) else [])
    return names_found
