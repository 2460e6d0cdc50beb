"""Immutable set of agents by name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dagwright.agents.class_agents import ClassAgent
from dagwright.core.model.agents import AgentCard
from dagwright.core.name_hints import suggestion
from dagwright.tools.errors import ToolLoadError


class AgentsUnreadable(ToolLoadError):
    """Agents cannot be loaded from a file or the database. The message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """Agents by name, in the order in which they were passed.

    Args:
        cards: name -> card.
        files: name -> file of the card, for cards that come from a file.
        classes: name of an agent of type `class` -> its class.
    """

    cards: Mapping[str, AgentCard] = field(default_factory=lambda: MappingProxyType({}))
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    classes: Mapping[str, type[ClassAgent]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls,
        *cards: AgentCard,
        files: Mapping[str, str] = MappingProxyType({}),
        classes: Mapping[str, type[ClassAgent]] = MappingProxyType({}),
    ) -> "AgentRegistry":
        """Create a registry of cards.

        Raises:
            ValueError: two different cards have the same name.
        """
        cards_by_name: dict[str, AgentCard] = {}
        for card in cards:
            if cards_by_name.setdefault(card.name, card) != card:
                raise ValueError(f"two agents are called {card.name!r}")
        return cls(MappingProxyType(cards_by_name), MappingProxyType(dict(files)), MappingProxyType(dict(classes)))

    def __iter__(self) -> Iterator[AgentCard]:
        """Iterate over the agents in the order in which they were passed."""
        return iter(self.cards.values())

    def __len__(self) -> int:
        return len(self.cards)

    def __contains__(self, name: object) -> bool:
        return name in self.cards

    def __getitem__(self, name: str) -> AgentCard:
        """Return the agent called `name`.

        Raises:
            KeyError: the agent does not exist; the message names the nearest match.
        """
        if name not in self.cards:
            hint = suggestion(name, list(self.cards)) or f"there are {', '.join(self.cards) or 'none'}"
            raise KeyError(f"there is no agent {name!r}; {hint}")
        return self.cards[name]

    def missing_tools(self, tools: Iterable[str]) -> dict[str, list[str]]:
        """Return the tools of agents that are not in `tools`: name of the agent -> names of the tools."""
        known_tools = frozenset(tools)
        missing_by_agent = {card.name: [name for name in card.tools if name not in known_tools] for card in self}
        return {name: missing_names for name, missing_names in missing_by_agent.items() if missing_names}
