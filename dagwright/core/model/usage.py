"""What model calls have used: a record that adds up, and the book that a run keeps of it, by node and by agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Tokens, calls and money; the sum of no usages is `Usage()`.

    Money that is not known is never taken for none: `unpriced_calls` and `uncounted_calls` say how many calls are not
    in it, and `cost` is `None` as soon as there is one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    calls: int = Field(default=0, ge=0)
    """Calls that a model has answered, those whose answer was of no use with them."""
    prompt_tokens: int = Field(default=0, ge=0)
    """Tokens that were read, the cached ones among them."""
    completion_tokens: int = Field(default=0, ge=0)
    """Tokens that were written, those of reasoning among them."""
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    money: Decimal = Field(default=Decimal(0), ge=0)
    """What the calls with a known price have cost, in the currency of the price table."""
    unpriced_calls: int = Field(default=0, ge=0)
    """Calls of models that the price table does not have."""
    uncounted_calls: int = Field(default=0, ge=0)
    """Calls whose answer did not tell its tokens."""

    @property
    def tokens(self) -> int:
        """Returns all tokens, read and written."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> Decimal | None:
        """Returns the money if all of it is known."""
        return None if self.unpriced_calls or self.uncounted_calls else self.money

    @property
    def is_something(self) -> bool:
        """Tells whether anything was used."""
        return any(getattr(self, name) for name in Usage.model_fields)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    def less(self, other: "Usage") -> "Usage":
        """Returns what is left without another usage, nothing where that has more."""
        return Usage(**{name: max(getattr(self, name) - getattr(other, name), 0) for name in Usage.model_fields})

    def to_json(self) -> dict[str, Any]:
        """Returns the record as it travels; money is a text, so that no reader rounds it."""
        return self.model_dump(mode="json")

    def told(self) -> dict[str, Any]:
        """Returns the record as documents have it, with the sums; `cost` is null where not all of it is known."""
        return {**self.to_json(), "tokens": self.tokens, "cost": None if self.cost is None else str(self.cost)}


NONE = Usage()
"""Nothing used."""


def usage_from_json(encoded: Any) -> Usage:
    """Returns the record of its JSON form.

    Raises:
        ValueError: it is none.
    """
    return Usage.model_validate(encoded)


def usages_to_json(usages: Mapping[str, Usage]) -> dict[str, Any]:
    """Returns usages by name as JSON."""
    return {name: usage.to_json() for name, usage in usages.items()}


def usages_from_json(encoded: Any) -> dict[str, Usage]:
    """Returns the usages by name that `usages_to_json` told.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError("usages by name must be an object")
    return {str(name): usage_from_json(usage) for name, usage in encoded.items()}


@dataclass(slots=True)
class UsageBook:
    """What a run has used, the runs below it with it: most nodes use nothing and stand nowhere in it.

    Args:
        total: of all.
        tasks: id of a node or item -> what all its tries have used; of a node with items, what they have.
        agents: name of an agent -> what its nodes have used.
    """

    total: Usage = NONE
    tasks: dict[str, Usage] = field(default_factory=dict)
    agents: dict[str, Usage] = field(default_factory=dict)

    def add(self, usage: Usage, *, tasks: Sequence[str], agents: Mapping[str, Usage]) -> None:
        """Takes what something used.

        Args:
            tasks: the node or item, and of an item its node.
            agents: what of it each agent has used.
        """
        self.total += usage
        for task_id in tasks:
            self.tasks[task_id] = self.tasks.get(task_id, NONE) + usage
        for name, part in agents.items():
            self.agents[name] = self.agents.get(name, NONE) + part

    def to_json(self) -> dict[str, Any]:
        """Returns the book as it is carried on; nothing if nothing was used."""
        if not self.total.is_something:
            return {}
        told = {"tasks": usages_to_json(self.tasks), "agents": usages_to_json(self.agents)}
        return {"total": self.total.to_json(), **told}

    def told(self) -> dict[str, Any]:
        """Returns what was used in all and by each agent, as documents have it; nothing if nothing was used."""
        if not self.total.is_something:
            return {}
        agents = {"agents": {name: usage.told() for name, usage in self.agents.items()}} if self.agents else {}
        return {**self.total.told(), **agents}


def usage_book_from_json(encoded: Any) -> UsageBook:
    """Returns the book that `UsageBook.to_json` told.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: it is none.
    """
    if not encoded:
        return UsageBook()
    total = usage_from_json(encoded["total"])
    return UsageBook(total, usages_from_json(encoded["tasks"]), usages_from_json(encoded["agents"]))
