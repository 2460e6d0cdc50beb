"""Loads the agents of `--agents FILE`: a YAML or JSON file of cards, or a Python file that makes `AgentCard`s."""

from collections.abc import Sequence
from pathlib import Path

from dagwright.agents.classes import ClassAgent, load_class
from dagwright.agents.reading import read_agents
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.errors import pointer
from dagwright.tools.errors import ToolsUnreadable
from dagwright.tools.loading import load_module
from dagwright.tools.references import absolute_path


def load_agents(files: Sequence[str]) -> AgentRegistry:
    """Returns the agents of files, in order; a file that is named twice is read once.

    The classes of agents are imported: a module may lie beside the file.

    Raises:
        AgentsUnreadable: a file is wrong, there is no class of a name, or two agents have one name.
        ToolsUnreadable: a Python file cannot be imported.
    """
    classes: dict[str, type[ClassAgent]] = {}
    owners: dict[str, tuple[AgentCard, Path]] = {}
    paths = list(dict.fromkeys(map(absolute_path, files)))
    for path in paths:
        for card in _cards_in(path):
            first, owner = owners.setdefault(card.name, (card, path))
            if first != card:
                raise AgentsUnreadable(f"Two agents are called {card.name!r}: in {owner.name} and in {path.name}")
            if card.class_name is not None:
                classes[card.name] = _class_of(card, card.class_name, path)
    cards = [card for card, _ in owners.values()]
    return AgentRegistry.of(*cards, files={name: str(path) for name, (_, path) in owners.items()}, classes=classes)


def _class_of(card: AgentCard, class_name: str, path: Path) -> type[ClassAgent]:
    try:
        return load_class(class_name, folder=path.parent)
    except ToolsUnreadable as error:
        raise AgentsUnreadable(f"{path.name}: {pointer('agents', card.name, 'class_name')}: {error}") from None


def _cards_in(path: Path) -> list[AgentCard]:
    if path.suffix != ".py":
        return read_agents(path)
    found = list(vars(load_module(str(path))).values())
    cards = [card for value in found for card in _cards_of(value)]
    if not cards:
        raise AgentsUnreadable(f"{path.name} has no agent in it: make an AgentCard there")
    return cards


def _cards_of(value: object) -> list[AgentCard]:
    """Returns the cards that a name of a module stands for: one, or those of a list, an object or a registry."""
    if isinstance(value, AgentCard):
        return [value]
    if isinstance(value, AgentRegistry):
        return [*value]
    if isinstance(value, dict):
        value = list(value.values())
    return [card for card in value if isinstance(card, AgentCard)] if isinstance(value, list | tuple) else []
