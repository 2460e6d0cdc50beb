"""Model prices: the table that ships with Dagwright, overridden by the user's table.

The cost of a model without a price is unknown, never zero.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.errors import DagwrightError

SHIPPED_PRICES_FILE = Path(__file__).with_name("prices.yaml")
_TOKENS_PER_PRICE = 1_000_000
_DATE_SUFFIX = re.compile(r"-\d{4}-\d{2}-\d{2}\Z")
"""Date at the end of the name of a model snapshot. A snapshot has the price of the model without the date."""
_FIELDS = ("prompt", "cached", "completion")


class PricesUnreadable(DagwrightError, ValueError):
    """A price table is invalid. The message names the problem and its location."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a million tokens: prompt tokens, prompt tokens from the server's cache, and completion tokens."""

    prompt: Decimal
    cached: Decimal
    completion: Decimal

    def cost_of(self, usage: Usage) -> Decimal:
        """Return the cost of a usage."""
        uncached_tokens = usage.prompt_tokens - usage.cached_tokens
        total = (
            self.prompt * uncached_tokens
            + self.cached * usage.cached_tokens
            + self.completion * usage.completion_tokens
        )
        return total / _TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name."""

    prices: Mapping[str, Price] = field(default_factory=dict)

    def price(self, *names: str) -> Price | None:
        """Return the price of a model, `None` if none of its names is in the table.

        Args:
            names: names of the model, most specific first; each may have the date suffix of a snapshot.
        """
        for name in names:
            for model_name in (name, _DATE_SUFFIX.sub("", name)):
                if model_name in self.prices:
                    return self.prices[model_name]
        return None

    def add_cost(self, usage: Usage, *names: str) -> Usage:
        """Return the usage of one call with its cost, or marked as unpriced."""
        if usage.uncounted_calls:
            return usage
        price = self.price(*names)
        if price is None:
            return usage.model_copy(update={"unpriced_calls": usage.calls})
        return usage.model_copy(update={"money": price.cost_of(usage)})

    def with_defaults(self, defaults: "PriceTable") -> "PriceTable":
        """Return the prices of both tables; a price of this table overrides a default."""
        return PriceTable({**defaults.prices, **self.prices})


@cache
def shipped_prices() -> PriceTable:
    """Return the table that ships with Dagwright."""
    return read_prices(SHIPPED_PRICES_FILE)


def read_prices(path: Path) -> PriceTable:
    """Read a price table from a YAML or JSON file: `models: {NAME: {prompt: 2.50, cached: 1.25, completion: 10}}`.

    Args:
        path: file with prices per million tokens; without `cached`, cached tokens have the price of prompt tokens.

    Raises:
        PricesUnreadable: the file cannot be read, or is not a price table.
    """
    try:
        # Load all values as text, because a price must not be converted to a binary float.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except OSError as error:
        raise PricesUnreadable(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PricesUnreadable(f"{path}: {error}") from error
    models = content.get("models") if isinstance(content, dict) else None
    if not isinstance(models, dict):
        raise PricesUnreadable(f"{path}: a price table has models, each with prompt, completion and perhaps cached")
    return PriceTable({name: _parse_price(price, f"{path}: models/{name}") for name, price in models.items()})


def _parse_price(value: Any, location: str) -> Price:
    if not isinstance(value, dict) or not {"prompt", "completion"} <= value.keys() <= set(_FIELDS):
        raise PricesUnreadable(f"{location}: a price has prompt, completion and perhaps cached, and nothing else")
    prompt, completion = _parse_money(value["prompt"], location), _parse_money(value["completion"], location)
    cached = _parse_money(value["cached"], location) if "cached" in value else prompt
    return Price(prompt, cached, completion)


def _parse_money(value: Any, location: str) -> Decimal:
    try:
        money = Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        money = Decimal("NaN")
    if not money.is_finite() or money < 0:
        raise PricesUnreadable(f"{location}: {value!r:.40} is not a price; write a number from 0, such as 2.50")
    return money
