"""Agents as tools: `agent.NAME`, called with an objective and the results of the dependencies."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagwright.agents.class_agents import AgentContext, ClassAgent, load_class
from dagwright.agents.registry import AgentRegistry
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.tools.context import context as current_call
from dagwright.tools.docstrings import Documentation
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import ToolChanged, ToolLoadError
from dagwright.tools.parameters import parameters_of
from dagwright.tools.registry import ToolRegistry
from dagwright.tools.spec import ToolSpec
from dagwright.tools.tool_references import agents_reference

PASSED_CARDS_SOURCE = "agents"
"""Value of `ToolRegistry.sources` for agents passed to `Worker(agents=[...])` as cards rather than read from a file."""
_WRITE_SERVICE_MAX_ATTEMPTS = 3
"""Maximum attempts of a service call with effects `write`. Only a call that did not start is retried."""


CardFinder = Callable[[str, str], Awaitable[AgentCard | None]]
"""Name and version of an agent -> its card, `None` if unknown."""


async def _no_card(name: str, version: str) -> AgentCard | None:  # noqa: ARG001 - the signature of CardFinder
    return None


def agent_tools(
    agents: AgentRegistry, environment: ToolEnvironment, *, find_card: CardFinder = _no_card
) -> ToolRegistry:
    """Create a tool for each agent, in order. An agent of type `llm` runs as a sub-plan, so its tool has no function.

    Args:
        find_card: looks up cards of other versions, because a plan may have been checked with an older card.
    """
    card_source = _CardSource(agents, environment, find_card)
    file_references = {name: agents_reference(file) for name, file in agents.files.items()}
    sources = {f"{AGENT_PREFIX}{card.name}": file_references.get(card.name, PASSED_CARDS_SOURCE) for card in agents}
    return ToolRegistry.of(*(_tool_of(card, card_source) for card in agents), sources=sources)


def declare_agents(cards: Iterable[AgentCard]) -> ToolRegistry:
    """Return a tool for each agent, in order. The tools have no functions, because only workers call agents."""
    return ToolRegistry.of(*(ToolSpec(_declaration_of(card)) for card in cards))


@dataclass(frozen=True, slots=True)
class _CardSource:
    """Finds the card and the class for a call."""

    agents: AgentRegistry
    environment: ToolEnvironment
    find_card: CardFinder

    async def find_checked_card(self, card: AgentCard, checked_version: str | None) -> AgentCard:
        """Return the card that the plan of the call was checked with.

        Raises:
            ToolChanged: the card has changed, and the old version is unknown.
        """
        if checked_version in (None, card.version):
            return card
        stored_card = await self.find_card(card.name, checked_version)
        if stored_card is None or stored_card.type == "llm":
            raise ToolChanged(
                f"the card of the agent {card.name!r} has changed since the plan was checked; start the plan again"
            )
        return stored_card

    def class_of(self, card: AgentCard) -> type[ClassAgent]:
        """Return the class of a card. A newer card of the same name may have a different class."""
        assert card.class_name is not None
        if card.name in self.agents and self.agents[card.name].class_name == card.class_name:
            return self.agents.classes[card.name]
        try:
            return load_class(card.class_name, folder=Path.cwd())
        except ToolLoadError as error:
            message = (
                f"the plan was checked with an older card of the agent {card.name!r}, whose class cannot be loaded"
            )
            raise ToolChanged(f"{message}: {error}") from None


def _tool_of(card: AgentCard, card_source: _CardSource) -> ToolSpec:
    if card.type == "llm":
        return ToolSpec(_declaration_of(card))

    # The closure captures cards, which have no code fingerprint. This is safe: results of agents are never reused.
    async def call_agent(objective: str, context: dict[str, Any] | None = None) -> Any:
        # The HTTP library takes long to import, and clients that only read runs do not need it.
        from dagwright.agents.service_agents import ServiceCall  # noqa: PLC0415

        call = current_call()
        checked_card = await card_source.find_checked_card(card, call.checked_version)
        if checked_card.type == "class":
            return await card_source.class_of(checked_card)().run(
                objective, context or {}, AgentContext(checked_card, call)
            )
        return await ServiceCall(checked_card, call, card_source.environment).send(objective, context or {})

    return ToolSpec(_declaration_of(card), call_agent, parameters_of(call_agent, Documentation()))


def _declaration_of(card: AgentCard) -> ToolDeclaration:
    declaration = agent_declaration(card)
    if card.type == "service" and card.effects in (None, "write"):
        return replace(declaration, max_attempts=_WRITE_SERVICE_MAX_ATTEMPTS)
    return declaration
