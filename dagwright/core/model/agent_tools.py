"""Agents as tools: a plan sees an agent as the declaration of a tool with an objective and its context.

Agents are therefore found, checked, described and run like any tool. A tool with an agent's name can replace the agent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dagwright.core.model.tools import AGENT_PREFIX, AgentCard, Effects, ToolDeclaration

AGENT_TIMEOUT_S = 300.0
"""Timeout of one attempt if the card has none: an agent may call a model several times."""

_INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "objective": {"type": "string", "description": "task of the agent"},
        "context": {"type": "object", "description": "id of a node -> its result, in order"},
    },
    "required": ["objective"],
    "additionalProperties": False,
}


def agent_declaration(card: AgentCard) -> ToolDeclaration:
    """Return the declaration of an agent as a tool."""
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
    """Return the tool of an agent: its own, else a tool that replaces it; `None` if both are missing."""
    return tools.get(AGENT_PREFIX + name) or tools.get(name)


def agent_cards(tools: Mapping[str, ToolDeclaration]) -> Iterator[AgentCard]:
    """Return the cards of all agents among the tools, in order."""
    return (tool.agent for tool in tools.values() if tool.agent is not None)


def with_effects_of_tools(declared: ToolDeclaration, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration:
    """Return a declaration with the strongest effects of its calls: for an `llm` agent, those of its tools.

    Args:
        tools: all known tools; an unknown tool counts as `write`.
    """
    if declared.agent is None or declared.agent.type != "llm":
        return declared
    called = [tools[name].effects if name in tools else Effects.WRITE for name in declared.agent.tools]
    return replace(declared, effects=strongest(called))


def strongest(effects: Iterable[Effects]) -> Effects:
    """Return the effects of an agent that calls tools with these effects: the strongest, at least `read`."""
    order = [*Effects]
    return max((Effects.READ, *effects), key=order.index)
