"""Agents: their cards, read from YAML and Python, as tools of a plan.

`--agents FILE` names a file of cards. What an agent is for is in its card (`dagwright.core.model.agent_cards`); which
model it asks is said by each request.
"""

from dagwright.agents.classes import AgentContext, ClassAgent
from dagwright.agents.loading import load_agents
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.model.agent_cards import AgentCard

__all__ = [
    "AgentCard",
    "AgentContext",
    "AgentRegistry",
    "AgentsUnreadable",
    "ClassAgent",
    "load_agents",
]
