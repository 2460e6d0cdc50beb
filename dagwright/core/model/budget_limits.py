"""Limits of a budget: their kinds, and their formats on the wire and for people."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

from dagwright.core.model.times import MAX_DURATION, parse_duration
from dagwright.core.name_hints import suggestion

LimitKind = Literal["tokens", "money", "calls", "nodes", "time"]
KINDS: Sequence[LimitKind] = get_args(LimitKind)
Limit = int | Decimal
Limits = Mapping[LimitKind, Limit]
LimitAction = Literal["ask", "finish"]

_MAX_AMOUNT = 10**15
_MAX_S = Decimal(int(MAX_DURATION.total_seconds()))


def max_limit(kind: LimitKind) -> Limit:
    """Return the largest allowed limit of a kind."""
    return _MAX_S if kind == "time" else _MAX_AMOUNT


def limits_from_json(encoded: Any, *, allow_null: bool = False) -> dict[LimitKind, Limit | None]:
    """Parse an object of limits; with `allow_null`, null removes a limit.

    Raises:
        ValueError: the object is invalid; the message names the field and the expected value.
    """
    if not isinstance(encoded, Mapping) or not encoded:
        raise ValueError(f'expected an object with some of {", ".join(KINDS)}, such as {{"tokens": 50000}}')
    limits: dict[LimitKind, Limit | None] = {}
    for name, value in encoded.items():
        kind = next((kind for kind in KINDS if kind == name), None)
        if kind is None:
            hint = suggestion(str(name), KINDS) or f"the limits are {', '.join(KINDS)}"
            raise ValueError(f"unknown limit {name!r:.60}; {hint}")
        try:
            limits[kind] = None if value is None and allow_null else limit_from_json(kind, value)
        except ValueError as error:
            raise ValueError(f"{kind} {error}") from None
    return limits


def limit_from_json(kind: str, value: Any) -> Limit:
    """Parse one limit.

    Raises:
        ValueError: the value is invalid; the caller adds the name of the limit before the message.
    """
    if kind == "money":
        return _parse_money(value)
    if kind == "time":
        return _parse_time(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_AMOUNT:
        raise ValueError(f"must be a whole number from 1 to {_MAX_AMOUNT:,}, not {value!r:.60}")
    return value


def _parse_money(value: Any) -> Decimal:
    try:
        # `str` of a float is its shortest exact text, which is the number as the user wrote it.
        money = Decimal(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except InvalidOperation:
        money = None
    if money is None or not money.is_finite() or not 0 < money <= _MAX_AMOUNT:
        raise ValueError(
            f"must be an amount of money over 0 and at most {_MAX_AMOUNT:,}, such as 1.50, not {value!r:.60}"
        )
    return money


def _parse_time(value: Any) -> Decimal:
    if not isinstance(value, str):
        raise ValueError(f"must be a duration such as 30m, not {value!r:.60}")
    try:
        return Decimal(str(parse_duration(value).total_seconds()))
    except ValueError as error:
        raise ValueError(f"must be a duration: {error}") from None


def limit_to_json(kind: LimitKind, limit: Limit) -> Any:
    """Return the JSON form of a limit."""
    if kind == "time":
        return f"{limit:f}s"
    return str(limit) if kind == "money" else limit


def limit_text(kind: LimitKind, limit: Limit) -> str:
    """Return a limit, or a usage in the unit of the limit, as text for people."""
    if kind == "time":
        return f"{limit:,.1f} s"
    return str(limit) if isinstance(limit, Decimal) else f"{limit:,}"
