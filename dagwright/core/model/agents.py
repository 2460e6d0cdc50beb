"""Agents as tools: what a plan knows of an agent is the declaration of a tool that takes an objective and its context.

So an agent is found, checked, told and run as any tool is. A tool that has an agent's name stands in for it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.tools import AGENT_PREFIX, Effects, ToolDeclaration

AGENT_TIMEOUT_S = 300.0
"""Of one attempt, where a card names none: an agent may ask a model several times."""

_INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "objective": {"type": "string", "description": "what the agent shall do"},
        "context": {"type": "object", "description": "id of a node -> its result, in order"},
    },
    "required": ["objective"],
    "additionalProperties": False,
}


def agent_declaration(card: AgentCard) -> ToolDeclaration:
    """Returns the tool that a plan knows an agent as."""
    return ToolDeclaration(
        name=AGENT_PREFIX + card.name,
        effects=Effects(card.effects or "write"),
        input_schema=_INPUT_SCHEMA,
        timeout_s=card.timeout_s or AGENT_TIMEOUT_S,
        version=card.version,
        is_pinned=True,
        description=card.description,
        agent=card,
    )


def tool_of_agent(name: str, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration | None:
    """Returns the tool that an agent is: its own, else the one that stands in for it; `None` if there is neither."""
    return tools.get(AGENT_PREFIX + name) or tools.get(name)


def agent_cards(tools: Mapping[str, ToolDeclaration]) -> Iterator[AgentCard]:
    """Yields the cards of all agents among the tools, in their order."""
    return (tool.agent for tool in tools.values() if tool.agent is not None)


def with_effects_of_tools(declared: ToolDeclaration, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration:
    """Returns a tool with the effects that it can have at most: of an `llm` agent those of what it may call.

    Args:
        tools: all that are known; one that is not counts as `write`.
    """
    if declared.agent is None or declared.agent.type != "llm":
        return declared
    called = [tools[name].effects if name in tools else Effects.WRITE for name in declared.agent.tools]
    return replace(declared, effects=strongest(called))


def strongest(effects: Iterable[Effects]) -> Effects:
    """Returns the effects of whoever calls tools with some: the strongest, at least `read`, for it asks a model."""
    order = [*Effects]
    return max((Effects.READ, *effects), key=order.index)
