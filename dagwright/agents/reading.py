"""Reads a file of agents: `agents: {name: card}`, as YAML or JSON. Everything that is wrong is told, with its place."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagwright.agents.registry import AgentsUnreadable
from dagwright.core.expressions.references import suggestion
from dagwright.core.model.agent_cards import MODEL_WORDS, AgentCard
from dagwright.core.model.errors import PlanInvalid, pointer
from dagwright.dialects.reading import read_plan_file

_ROOT = "agents"
_EXPECTED = {
    "string_type": "a text",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list of names",
    "literal_error": "{expected}",
}
"""What pydantic calls a mistake -> what it expected."""


def read_agents(file: Path) -> list[AgentCard]:
    """Returns the agents of a file, in order.

    Raises:
        AgentsUnreadable: with everything that is wrong, each with its place in the file as a JSON pointer.
    """
    try:
        document = read_plan_file(file)
    except PlanInvalid as invalid:
        raise AgentsUnreadable(f"the agents: {invalid.problems[0].text}") from None
    cards: list[AgentCard] = []
    problems: list[str] = []
    for name, written in _written_in(document, file).items():
        try:
            cards.append(AgentCard.model_validate(_named(name, written)))
        except ValidationError as error:
            problems += [f"{pointer(_ROOT, name, *place)}: {said}" for place, said in _told(error)]
        except ValueError as error:
            problems.append(f"{pointer(_ROOT, name)}: {error}")
    if problems:
        raise AgentsUnreadable(f"{file.name}: {'; '.join(problems)}")
    return cards


def _written_in(document: Any, file: Path) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise AgentsUnreadable(f"{file.name} is no file of agents: expected an object with the key {_ROOT!r}")
    for key in document:
        if key != _ROOT:
            hint = suggestion(key, [_ROOT]) or f"the agents stand under {_ROOT!r}"
            raise AgentsUnreadable(f"{file.name}: {pointer(key)}: unknown key; {hint}")
    agents = document.get(_ROOT)
    if not isinstance(agents, dict) or not agents:
        raise AgentsUnreadable(f"{file.name}: /{_ROOT}: expected an object of agents by name, with at least one")
    return agents


def _named(name: str, written: Any) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise ValueError("expected an object with description, objective_template and type")
    if written.get("name", name) != name:
        raise ValueError(f"its name is {name!r} here and {written['name']!r:.80} inside; leave the one inside out")
    return {**written, "name": name}


def _told(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for item in error.errors(include_url=False):
        place = item["loc"]
        if item["type"] == "extra_forbidden":
            yield place, f"unknown key; {_instead_of(str(place[-1]))}"
        elif item["type"] == "missing":
            yield place[:-1], f"{place[-1]!r} is missing"
        elif item["type"] in _EXPECTED:
            expected = _EXPECTED[item["type"]].format(**item.get("ctx", {}))
            yield place, f"expected {expected}, not {item['input']!r:.60}"
        else:
            yield place, item["msg"].removeprefix("Value error, ")


def _instead_of(key: str) -> str:
    if key in MODEL_WORDS:
        return "an agent has no model: each request says which one is asked"
    known = [name for name in AgentCard.model_fields if name != "name"]
    return suggestion(key, known) or f"known are {', '.join(known)}"
