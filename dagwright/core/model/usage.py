"""Model usage: a record that can be added up, and the book of a run with the usage of each node and agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Tokens, calls and money; the sum of no usages is `Usage()`.

    Unknown costs never count as zero: `unpriced_calls` and `uncounted_calls` are the numbers of calls without a known
    cost, and `cost` is `None` if one of them is not 0.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    calls: int = Field(default=0, ge=0)
    """Calls that a model has answered, including unusable answers."""
    prompt_tokens: int = Field(default=0, ge=0)
    """Input tokens, including cached tokens."""
    completion_tokens: int = Field(default=0, ge=0)
    """Output tokens, including reasoning tokens."""
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    money: Decimal = Field(default=Decimal(0), ge=0)
    """Cost of the calls with a known price, in the currency of the price table."""
    unpriced_calls: int = Field(default=0, ge=0)
    """Calls of models that are not in the price table."""
    uncounted_calls: int = Field(default=0, ge=0)
    """Calls whose response had no token counts."""

    @property
    def tokens(self) -> int:
        """All tokens, input and output."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> Decimal | None:
        """The cost if all of it is known, else `None`."""
        return None if self.unpriced_calls or self.uncounted_calls else self.money

    @property
    def is_something(self) -> bool:
        """Return whether anything was used."""
        return any(getattr(self, name) for name in Usage.model_fields)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    def less(self, other: "Usage") -> "Usage":
        """Return the difference to another usage; each field is at least 0."""
        return Usage(**{name: max(getattr(self, name) - getattr(other, name), 0) for name in Usage.model_fields})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; money is a text, so that no reader rounds it."""
        return self.model_dump(mode="json")

    def to_document(self) -> dict[str, Any]:
        """Return the record as documents show it, with the sums; `cost` is null if a part of it is unknown."""
        return {**self.to_json(), "tokens": self.tokens, "cost": None if self.cost is None else str(self.cost)}


NO_USAGE = Usage()
"""Nothing used."""


def usage_from_json(encoded: Any) -> Usage:
    """Parse the JSON form of a usage.

    Raises:
        ValueError: the form is invalid.
    """
    return Usage.model_validate(encoded)


def usages_to_json(usages: Mapping[str, Usage]) -> dict[str, Any]:
    """Return usages by name as JSON."""
    return {name: usage.to_json() for name, usage in usages.items()}


def usages_from_json(encoded: Any) -> dict[str, Usage]:
    """Parse the result of `usages_to_json`.

    Raises:
        ValueError: the form is invalid.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError("usages by name must be an object")
    return {str(name): usage_from_json(usage) for name, usage in encoded.items()}


@dataclass(slots=True)
class UsageBook:
    """Usage of a run and its child runs; nodes without usage have no entry.

    Args:
        total: usage of the whole run.
        tasks: id of a node or item -> usage of all its attempts; for a node with items, the usage of the items.
        agents: name of an agent -> usage of its nodes.
    """

    total: Usage = NO_USAGE
    tasks: dict[str, Usage] = field(default_factory=dict)
    agents: dict[str, Usage] = field(default_factory=dict)

    def add(self, usage: Usage, *, tasks: Sequence[str], agents: Mapping[str, Usage]) -> None:
        """Add a usage.

        Args:
            tasks: the node or item; for an item also its node.
            agents: the part of it that each agent has used.
        """
        self.total += usage
        for task_id in tasks:
            self.tasks[task_id] = self.tasks.get(task_id, NO_USAGE) + usage
        for name, part in agents.items():
            self.agents[name] = self.agents.get(name, NO_USAGE) + part

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for the state of the run; empty if nothing was used."""
        if not self.total.is_something:
            return {}
        parts = {"tasks": usages_to_json(self.tasks), "agents": usages_to_json(self.agents)}
        return {"total": self.total.to_json(), **parts}

    def to_document(self) -> dict[str, Any]:
        """Return the total and the usage of each agent as documents show them; empty if nothing was used."""
        if not self.total.is_something:
            return {}
        agents = {"agents": {name: usage.to_document() for name, usage in self.agents.items()}} if self.agents else {}
        return {**self.total.to_document(), **agents}


def usage_book_from_json(encoded: Any) -> UsageBook:
    """Parse the result of `UsageBook.to_json`.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: the form is invalid.
    """
    if not encoded:
        return UsageBook()
    total = usage_from_json(encoded["total"])
    return UsageBook(total, usages_from_json(encoded["tasks"]), usages_from_json(encoded["agents"]))
