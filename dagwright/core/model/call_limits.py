"""Limits of calls across all runs: subjects, limits, and their text form such as `20/s concurrency=5`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from dagwright.core.errors import DagwrightError

SubjectKind = Literal["tool", "model", "owner", "template"]
NAME_BYTES = 200
MAX_COUNT = 10**9
MAX_CONCURRENCY = 1000
"""Maximum concurrency of a limit. A limit stores an entry for each running call, to free the slots of dead workers."""
_PERIODS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_RATE = re.compile(r"([0-9]{1,9})/(s|min|h)")
_UNKNOWN_PERIOD = re.compile(r"[0-9]{1,9}/([A-Za-z]+)")
_PART = re.compile(r"(concurrency|tokens)=([0-9]{1,9})")
_DAILY_PART = re.compile(r"(tokens|money|calls)=([0-9]{1,12}(?:\.[0-9]{1,6})?)/day")
_EXAMPLE = "`20/s`, `500/min`, `concurrency=5`, `tokens=100000` (per minute), `tokens=2000000/day` or `money=5/day`"


class CallLimitInvalid(DagwrightError, ValueError):
    """The text or JSON of a limit is invalid; the message shows the valid form."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """Subject of a limit: the calls that share the limit.

    These are all calls of one tool or model, all calls in the runs of one owner, or all calls in the runs of one
    template (a published plan).
    """

    kind: SubjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def subject_at_host(kind: SubjectKind, name: str, url: str) -> Subject | None:
    """Return a subject restricted to the host of a URL, such as `tool:http_request@api.example.org`.

    Returns:
        `None` if the URL has no valid host.
    """
    try:
        host = urlsplit(url).hostname or ""
        return parse_subject(f"{kind}:{name}@{host}") if host else None
    except ValueError:
        return None


def parse_subject(text: str) -> Subject:
    """Parse the text of a subject, such as `tool:http_request`.

    Raises:
        CallLimitInvalid: the kind is unknown, or the name is empty or too long.
    """
    kind, _, name = text.partition(":")
    if kind not in get_args(SubjectKind):
        kinds = ", ".join(f"`{subject_kind}:NAME`" for subject_kind in get_args(SubjectKind))
        raise CallLimitInvalid(f"a limit applies to one of {kinds}, not to {text!r:.80}")
    if not 0 < len(name.encode(errors="replace")) <= NAME_BYTES or not name.isprintable() or name != name.strip():
        raise CallLimitInvalid(
            f"the name in {text!r:.80} must have 1 to {NAME_BYTES} printable bytes of UTF-8, without spaces around it"
        )
    return Subject(cast(SubjectKind, kind), name)


@dataclass(frozen=True, slots=True)
class Rate:
    """Number of calls that may start in a period."""

    count: int
    unit: str

    @property
    def period_s(self) -> float:
        """Length of the period in seconds."""
        return _PERIODS_S[self.unit]

    @property
    def interval_s(self) -> float:
        """Average seconds between the starts of two calls."""
        return self.period_s / self.count

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """Model usage that the calls of a subject may have in one day, in the units of a run's budget."""

    tokens: int | None = None
    money: Decimal | None = None
    calls: int | None = None

    def __str__(self) -> str:
        parts = (("tokens", self.tokens), ("money", self.money), ("calls", self.calls))
        return " ".join(f"{name}={value}/day" for name, value in parts if value is not None)


@dataclass(frozen=True, slots=True)
class CallLimit:
    """Limit of the calls of a subject; at least one of its parts is set.

    Args:
        rate: calls that may start in a period.
        concurrency: calls that may run at the same time.
        tokens_per_minute: tokens that model calls may use in a minute.
        daily_budget: model usage in a day.
    """

    rate: Rate | None = None
    concurrency: int | None = None
    tokens_per_minute: int | None = None
    daily_budget: DailyBudget | None = None

    def __str__(self) -> str:
        parts = (
            str(self.rate) if self.rate else None,
            f"concurrency={self.concurrency}" if self.concurrency else None,
            f"tokens={self.tokens_per_minute}" if self.tokens_per_minute else None,
            str(self.daily_budget) if self.daily_budget else None,
        )
        return " ".join(filter(None, parts))


def parse_limit(text: str) -> CallLimit:
    """Parse the text of a limit, such as `20/s concurrency=5 tokens=100000`. The parts may have any order.

    Raises:
        CallLimitInvalid: a part is invalid or appears twice, or there is no part.
    """
    values: dict[str, Any] = {}
    for part in text.split():
        name, value = _parse_part(part)
        if name in values:
            raise CallLimitInvalid(f"the limit {text!r:.200} has two parts of the same kind")
        values[name] = value
    daily_amounts = {name: values.get(f"{name}/day") for name in ("tokens", "money", "calls")}
    daily_budget = DailyBudget(**daily_amounts) if any(daily_amounts.values()) else None
    return check_limit(CallLimit(values.get("rate"), values.get("concurrency"), values.get("tokens"), daily_budget))


def _parse_part(text: str) -> tuple[str, Any]:
    if (match := _RATE.fullmatch(text)) is not None:
        return "rate", Rate(int(match[1]), match[2])
    if (match := _PART.fullmatch(text)) is not None:
        return match[1], int(match[2])
    if (match := _DAILY_PART.fullmatch(text)) is not None:
        return f"{match[1]}/day", _daily_amount(match[1], match[2])
    if (match := _UNKNOWN_PERIOD.fullmatch(text)) is not None:
        daily_example = "; `calls=1000/day` limits model calls per day" if match[1] == "day" else ""
        raise CallLimitInvalid(
            f"the period of a rate is one of {', '.join(_PERIODS_S)}, not {match[1]!r:.40}{daily_example}"
        )
    raise CallLimitInvalid(f"a limit is {_EXAMPLE}, not {text!r:.80}")


def _daily_amount(name: str, amount: str) -> int | Decimal:
    value = Decimal(amount) if name == "money" else int(amount) if amount.isdigit() else 0
    if value <= 0:
        kind = "an amount" if name == "money" else "a whole number"
        raise CallLimitInvalid(f"{name} per day must be {kind} over 0, not {amount}; to stop the tools, pause them")
    return value


def check_limit(limit: CallLimit) -> CallLimit:
    """Check the values of a limit and return the limit.

    Raises:
        CallLimitInvalid: a value is out of range, or the limit is empty.
    """
    if limit == CallLimit():
        raise CallLimitInvalid(f"a limit has at least one of {_EXAMPLE}")
    if limit.rate is not None and not 1 <= limit.rate.count <= MAX_COUNT:
        raise CallLimitInvalid(f"a rate is at least 1 call in a period, not {limit.rate}; to stop the tool, pause it")
    if limit.concurrency is not None and not 1 <= limit.concurrency <= MAX_CONCURRENCY:
        raise CallLimitInvalid(f"concurrency is a number from 1 to {MAX_CONCURRENCY:,}, not {limit.concurrency}")
    if limit.tokens_per_minute is not None and not 1 <= limit.tokens_per_minute <= MAX_COUNT:
        raise CallLimitInvalid(f"tokens per minute are a number from 1 to {MAX_COUNT:,}, not {limit.tokens_per_minute}")
    return limit


def parse_limits(text: str) -> Mapping[Subject, CallLimit]:
    """Parse limits of several subjects, such as `tool:http_request 20/s; owner:ann concurrency=5`.

    Raises:
        CallLimitInvalid: a limit is invalid, or a subject appears twice.
    """
    limits: dict[Subject, CallLimit] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, limit = entry.partition(" ")
        subject = parse_subject(name)
        if subject in limits:
            raise CallLimitInvalid(f"{subject} has two limits; write them as one limit")
        limits[subject] = parse_limit(limit)
    return limits
