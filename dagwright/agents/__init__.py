"""Agents: cards from YAML or Python that plans can call as tools.

`--agents FILE` names a file of cards. A card (`dagwright.core.model.agents`) describes the task of an agent. The
model is not part of the card: each request chooses the model. The package imports `tools`, `database` and lower-level
packages.
"""

from dagwright.agents.agent_files import load_agents
from dagwright.agents.class_agents import AgentContext, ClassAgent
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.model.agents import AgentCard

__all__ = [
    "AgentCard",
    "AgentContext",
    "AgentRegistry",
    "AgentsUnreadable",
    "ClassAgent",
    "load_agents",
]
