"""Model usage of one UTC day, compared with a daily budget."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dagwright.core.model.call_limits import DailyBudget
from dagwright.core.model.states import NO_USAGE, Usage, usage_from_json

_DAY_S = 86_400


@dataclass(slots=True)
class DayUse:
    """Usage of the calls of one limit on one day.

    Args:
        day: number of the day since the epoch.
    """

    day: int = 0
    usage: Usage = NO_USAGE

    def add(self, usage: Usage, now: float) -> None:
        """Add the usage of calls."""
        self.usage = self.usage_today(now) + usage
        self.day = _day(now)

    def usage_today(self, now: float) -> Usage:
        """Return the usage of the current day."""
        return self.usage if self.day == _day(now) else NO_USAGE

    def describe(self, budget: DailyBudget, now: float) -> str:
        """Return the usage of the current day, such as `tokens: 48,210 of 50,000 used today`."""
        return ", ".join(f"{part} used today" for part, _ in _parts(budget, self.usage_today(now)))

    def used_up_reason(self, budget: DailyBudget, now: float) -> str | None:
        """Return why no more model calls may start on the current day, or `None`."""
        usage = self.usage_today(now)
        if budget.money is not None and usage.cost is None:
            return "daily budget (the cost of a call is unknown; set a price, or a budget without money)"
        used_up_parts = [part for part, is_used_up in _parts(budget, usage) if is_used_up]
        until = datetime.fromtimestamp(next_day(now), UTC).strftime("%Y-%m-%dT%H:%MZ")
        return f"daily budget ({', '.join(used_up_parts)} used, until {until})" if used_up_parts else None

    def to_json(self) -> dict[str, Any]:
        return {"day": self.day, "usage": self.usage.to_json()}


def day_use_from_json(encoded: Mapping[str, Any]) -> DayUse:
    """Decode `DayUse.to_json`."""
    return DayUse(encoded["day"], usage_from_json(encoded["usage"]))


def next_day(now: float) -> float:
    """Return the start of the next day, in seconds since the epoch."""
    return float((_day(now) + 1) * _DAY_S)


def _day(now: float) -> int:
    return int(now // _DAY_S)


def _parts(budget: DailyBudget, usage: Usage) -> Iterator[tuple[str, bool]]:
    """Yield a text with the usage of each part of a budget, and whether the part is used up."""
    for name, used_amount, limit in (
        ("tokens", usage.tokens, budget.tokens),
        ("money", usage.money, budget.money),
        ("calls", usage.calls, budget.calls),
    ):
        if limit is not None:
            yield f"{name}: {used_amount:,} of {limit:,}", used_amount >= limit
