"""Load the agents of `--agents FILE`: cards in YAML or JSON (`agents: {name: card}`), or `AgentCard`s in Python.

All problems of a file are reported together, each with a JSON pointer.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagwright.agents.class_agents import ClassAgent, load_class
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.errors import PlanInvalid, pointer
from dagwright.core.model.agents import MODEL_KEYS, AgentCard
from dagwright.core.name_hints import suggestion
from dagwright.dialects.reading import read_plan_file
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.tool_files import load_module
from dagwright.tools.tool_references import absolute_path


def load_agents(files: Sequence[str]) -> AgentRegistry:
    """Load the agents of files, in order; duplicate files are read once.

    The classes of class agents are imported. Their modules may be in the folder of the file.

    Raises:
        AgentsUnreadable: a file is invalid, a class does not exist, or two agents have the same name.
        ToolLoadError: a Python file cannot be imported.
    """
    classes: dict[str, type[ClassAgent]] = {}
    loaded_cards: dict[str, tuple[AgentCard, Path]] = {}
    paths = list(dict.fromkeys(map(absolute_path, files)))
    for path in paths:
        for card in _cards_in(path):
            first_card, first_path = loaded_cards.setdefault(card.name, (card, path))
            if first_card != card:
                raise AgentsUnreadable(f"Two agents are called {card.name!r}: in {first_path.name} and in {path.name}")
            if card.class_name is not None:
                classes[card.name] = _class_of(card, card.class_name, path)
    cards = [card for card, _ in loaded_cards.values()]
    return AgentRegistry.of(
        *cards, files={name: str(path) for name, (_, path) in loaded_cards.items()}, classes=classes
    )


def _class_of(card: AgentCard, class_name: str, path: Path) -> type[ClassAgent]:
    try:
        return load_class(class_name, folder=path.parent)
    except ToolLoadError as error:
        raise AgentsUnreadable(f"{path.name}: {pointer('agents', card.name, 'class_name')}: {error}") from None


def _cards_in(path: Path) -> list[AgentCard]:
    if path.suffix != ".py":
        return read_agents(path)
    values = list(vars(load_module(str(path))).values())
    cards = [card for value in values for card in _cards_of(value)]
    if not cards:
        raise AgentsUnreadable(f"{path.name} has no agent in it: create an AgentCard in the module")
    return cards


def _cards_of(value: object) -> list[AgentCard]:
    """Return the cards in a module attribute: a single card, a list, a dict or a registry."""
    if isinstance(value, AgentCard):
        return [value]
    if isinstance(value, AgentRegistry):
        return [*value]
    if isinstance(value, dict):
        value = list(value.values())
    return [card for card in value if isinstance(card, AgentCard)] if isinstance(value, list | tuple) else []


_ROOT_KEY = "agents"
_EXPECTED_VALUES = {
    "string_type": "a text",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list of names",
    "literal_error": "{expected}",
}
"""Type of a pydantic error -> expected value."""


def read_agents(file: Path) -> list[AgentCard]:
    """Read the agents of a YAML or JSON file, in order.

    Raises:
        AgentsUnreadable: the file is invalid; the message lists all problems, each with a JSON pointer.
    """
    try:
        document = read_plan_file(file)
    except PlanInvalid as invalid:
        raise AgentsUnreadable(f"the agents: {invalid.problems[0].text}") from None
    cards: list[AgentCard] = []
    problems: list[str] = []
    for name, card_document in _card_documents(document, file).items():
        try:
            cards.append(AgentCard.model_validate(_add_name(name, card_document)))
        except ValidationError as error:
            problems += [f"{pointer(_ROOT_KEY, name, *path)}: {message}" for path, message in _card_problems(error)]
        except ValueError as error:
            problems.append(f"{pointer(_ROOT_KEY, name)}: {error}")
    if problems:
        raise AgentsUnreadable(f"{file.name}: {'; '.join(problems)}")
    return cards


def _card_documents(document: Any, file: Path) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise AgentsUnreadable(f"{file.name} is not a file of agents: expected an object with the key {_ROOT_KEY!r}")
    for key in document:
        if key != _ROOT_KEY:
            hint = suggestion(key, [_ROOT_KEY]) or f"write the agents under {_ROOT_KEY!r}"
            raise AgentsUnreadable(f"{file.name}: {pointer(key)}: unknown key; {hint}")
    agents = document.get(_ROOT_KEY)
    if not isinstance(agents, dict) or not agents:
        raise AgentsUnreadable(f"{file.name}: /{_ROOT_KEY}: expected a non-empty object that maps names to agents")
    return agents


def _add_name(name: str, document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError("expected an object with description, objective_template and type")
    if document.get("name", name) != name:
        raise ValueError(f"its key is {name!r}, but its name is {document['name']!r:.80}; remove the name")
    return {**document, "name": name}


def _card_problems(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for item in error.errors(include_url=False):
        path = item["loc"]
        if item["type"] == "extra_forbidden":
            yield path, f"unknown key; {_unknown_key_hint(str(path[-1]))}"
        elif item["type"] == "missing":
            yield path[:-1], f"{path[-1]!r} is missing"
        elif item["type"] in _EXPECTED_VALUES:
            expected = _EXPECTED_VALUES[item["type"]].format(**item.get("ctx", {}))
            yield path, f"expected {expected}, not {item['input']!r:.60}"
        else:
            yield path, item["msg"].removeprefix("Value error, ")


def _unknown_key_hint(key: str) -> str:
    if key in MODEL_KEYS:
        return "an agent has no model: each request selects the model"
    field_names = [name for name in AgentCard.model_fields if name != "name"]
    return suggestion(key, field_names) or f"known keys are {', '.join(field_names)}"
