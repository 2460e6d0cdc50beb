"""What models cost: a table that ships with Dagwright, and the user's own before it.

A model that no table has costs an unknown amount, never nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dagwright.core.boundary.usage import Usage
from dagwright.core.errors import DagwrightError

SHIPPED = Path(__file__).with_name("prices.yaml")
_PER = 1_000_000
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}\Z")
"""Ends the name of a snapshot, which costs what its model does."""
_FIELDS = ("prompt", "cached", "completion")


class PricesUnreadable(DagwrightError, ValueError):
    """A price table cannot be used; the text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost: read, read from the service's cache, and written."""

    prompt: Decimal
    cached: Decimal
    completion: Decimal

    def of(self, usage: Usage) -> Decimal:
        """Returns what the tokens of a usage cost."""
        fresh = usage.prompt_tokens - usage.cached_tokens
        sums = self.prompt * fresh + self.cached * usage.cached_tokens + self.completion * usage.completion_tokens
        return sums / _PER


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by the name of the model."""

    prices: Mapping[str, Price] = field(default_factory=dict)

    def price(self, *names: str) -> Price | None:
        """Returns the price of a model, `None` if no name of it is known.

        Args:
            names: what it is called, the most exact first; the day of a snapshot may stand behind each.
        """
        for name in names:
            for known in (name, _DATED.sub("", name)):
                if known in self.prices:
                    return self.prices[known]
        return None

    def priced(self, usage: Usage, *names: str) -> Usage:
        """Returns the usage of one call with what it cost, or with the note that nobody knows."""
        if usage.uncounted_calls:
            return usage
        price = self.price(*names)
        if price is None:
            return usage.model_copy(update={"unpriced_calls": usage.calls})
        return usage.model_copy(update={"money": price.of(usage)})

    def over(self, other: "PriceTable") -> "PriceTable":
        """Returns `other` with the prices of this table in place of its own."""
        return PriceTable({**other.prices, **self.prices})


@cache
def shipped_prices() -> PriceTable:
    """Returns the table that ships with Dagwright."""
    return read_prices(SHIPPED)


def read_prices(path: Path) -> PriceTable:
    """Returns the table of a YAML or JSON file: `models: {NAME: {prompt: 2.50, cached: 1.25, completion: 10}}`.

    Args:
        path: prices are for a million tokens; without `cached`, cached tokens cost as much as others.

    Raises:
        PricesUnreadable: the file cannot be read, or is no such table.
    """
    try:
        # Everything as text: a price must not become a binary fraction on its way.
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except OSError as error:
        raise PricesUnreadable(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PricesUnreadable(f"{path}: {error}") from error
    models = found.get("models") if isinstance(found, dict) else None
    if not isinstance(models, dict):
        raise PricesUnreadable(f"{path}: a price table has models, each with prompt, completion and perhaps cached")
    return PriceTable({name: _price(given, f"{path}: models/{name}") for name, given in models.items()})


def _price(given: Any, place: str) -> Price:
    if not isinstance(given, dict) or not {"prompt", "completion"} <= given.keys() <= set(_FIELDS):
        raise PricesUnreadable(f"{place}: a price has prompt, completion and perhaps cached, and nothing else")
    prompt, completion = _money(given["prompt"], place), _money(given["completion"], place)
    cached = _money(given["cached"], place) if "cached" in given else prompt
    return Price(prompt, cached, completion)


def _money(given: Any, place: str) -> Decimal:
    try:
        money = Decimal(given)
    except (InvalidOperation, TypeError, ValueError):
        money = Decimal("NaN")
    if not money.is_finite() or money < 0:
        raise PricesUnreadable(f"{place}: {given!r:.40} is no price; write a number from 0, such as 2.50")
    return money
