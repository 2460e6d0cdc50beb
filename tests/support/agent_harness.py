"""Calls of class agents and service agents, as a worker makes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagwright.agents import AgentCard, AgentRegistry, ClassAgent
from dagwright.agents.agent_calls import agent_tools
from dagwright.llm.client import ModelClients, ModelSetup
from dagwright.testing import ModelServer
from dagwright.tools.environment import ToolEnvironment
from tests.support.tool_harness import ToolHarness, clients_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def card_of(kind: str, **fields: Any) -> AgentCard:
    """Return the card of an agent named `helper`."""
    defaults = {"name": "helper", "description": "Helps", "objective_template": "Help with {what}", "type": kind}
    return AgentCard.model_validate(defaults | fields)


def class_registry(agent_class: type[ClassAgent], **fields: Any) -> AgentRegistry:
    """Return a registry with the class agent `helper`."""
    card = card_of("class", class_name="tests:Agent", **fields)
    return AgentRegistry.of(card, classes={card.name: agent_class})


def service_registry(url: str, **fields: Any) -> AgentRegistry:
    """Return a registry with the service agent `helper`."""
    return AgentRegistry.of(card_of("service", service_url=url, **fields))


class AgentHarness(ToolHarness):
    """Call the single agent of a registry, with a scripted model."""

    def __init__(
        self,
        agents: AgentRegistry,
        server: ModelServer | None = None,
        *,
        allow_private: bool = True,
        stored_cards: Sequence[AgentCard] = (),
    ) -> None:
        environment = ToolEnvironment(Path(), allow_private_addresses=allow_private, find_secret={"DESK": SECRET}.get)

        async def find(name: str, version: str) -> AgentCard | None:
            return next((card for card in stored_cards if (card.name, card.version) == (name, version)), None)

        models = clients_of(server) if server is not None else ModelClients(ModelSetup())
        super().__init__(agent_tools(agents, environment, find_card=find), environment, models)
