"""Convert expressions such as `last quarter` to days.

A model returns the expression, and this module computes the days. Weeks start on Monday, quarters in January. A period
includes its first and its last day.
"""

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta

Period = tuple[date | None, date | None]
"""First and last day; `None` if the period has no first or no last day."""

FORMS = (
    "today, yesterday, this week, last month, next quarter, last year, last 30 days, 2 weeks ago, 2025, Q4, Q4 2025, "
    "December, December 2025, 2025-12, 2025-12-31, 2025-10-01 to 2025-12-31, since 2025-10-01, before 2026"
)
"""Examples of all supported forms of a period, for prompts and error messages."""

_MAX_UNITS = 10_000
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_UNIT = r"(day|week|month|quarter|year)s?"
_NAMED_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
_UNIT_OFFSETS = {"this": 0, "current": 0, "last": -1, "previous": -1, "past": -1, "next": 1}


class InvalidPeriod(ValueError):
    """A period that has no supported form, or that ends before it starts."""


def parse_period(expression: str, today: date) -> Period:
    """Return the days of a period.

    Args:
        expression: one of the `FORMS`, in any case.
        today: the reference day.

    Raises:
        InvalidPeriod: the form is not supported, or the period ends before it starts.
    """
    text = " ".join(expression.replace(",", " ").casefold().split()).removeprefix("the ").removeprefix("in ")
    try:
        period = _open_period(text, today) or _period_between(text, today) or _closed_period(text, today)
    except (ValueError, OverflowError):
        # An invalid day of a month, or a year out of range.
        period = None
    if period is None:
        raise InvalidPeriod(f"{expression[:60]!r} is not a supported period; write it in one of these forms: {FORMS}")
    first, last = period
    if first is not None and last is not None and first > last:
        raise InvalidPeriod(f"{expression[:60]!r} ends before it starts")
    return period


def _open_period(text: str, today: date) -> Period | None:
    match = re.fullmatch(r"(since|after|until|till|by|before) (.+)", text)
    closed_period = _closed_period(match[2], today) if match is not None else None
    if match is None or closed_period is None:
        return None
    first, last = closed_period
    assert first is not None
    assert last is not None
    periods: dict[str, Period] = {
        "since": (first, None),
        "after": (last + timedelta(days=1), None),
        "before": (None, first - timedelta(days=1)),
    }
    return periods.get(match[1], (None, last))


def _period_between(text: str, today: date) -> Period | None:
    match = re.fullmatch(r"(?:between |from )?(.+?) (?:to|and|until|till|through|-|–) (.+)", text)
    if match is None:
        return None
    start_period, end_period = _closed_period(match[1], today), _closed_period(match[2], today)
    return (start_period[0], end_period[1]) if start_period is not None and end_period is not None else None


def _closed_period(text: str, today: date) -> Period | None:
    if text in _NAMED_DAYS:
        return _single_day(today + timedelta(days=_NAMED_DAYS[text]))
    for pattern, parser in _PARSERS:
        match = re.fullmatch(pattern, text)
        if match is not None:
            return parser(match, today)
    return None


def _single_day(day: date) -> Period:
    return day, day


def _relative_period(match: re.Match[str], today: date) -> Period:
    """`this quarter`, `last quarter` or `next quarter`: a whole unit."""
    return _unit_at(today, match[2], _UNIT_OFFSETS[match[1]])


def _period_ago(match: re.Match[str], today: date) -> Period:
    """`2 weeks ago`: the whole week before the previous week."""
    return _unit_at(today, match[2], -_count(match[1]))


def _counted_period(match: re.Match[str], today: date) -> Period:
    """`last 30 days`: 30 days, including today."""
    count, unit = _count(match[2]), match[3]
    is_future = _UNIT_OFFSETS[match[1]] > 0
    if unit in ("day", "week"):
        days = timedelta(days=count * (7 if unit == "week" else 1) - 1)
        return (today, today + days) if is_future else (today - days, today)
    months = count * {"month": 1, "quarter": 3, "year": 12}[unit]
    if is_future:
        return today, _months_later(today, months) - timedelta(days=1)
    return _months_later(today, -months) + timedelta(days=1), today


def _quarter(match: re.Match[str], today: date) -> Period:
    """`Q4 2025`; without a year, the latest such quarter that has started."""
    number, year = int(match["quarter"]), int(match["year"] or match["leading_year"] or today.year)
    first = date(year, 3 * number - 2, 1)
    if not (match["year"] or match["leading_year"]) and first > today:
        first = date(today.year - 1, first.month, 1)
    return _unit_at(first, "quarter", 0)


def _month(match: re.Match[str], today: date) -> Period | None:
    """`December 2025`; without a year, the latest such month that has started."""
    number = next((position for position, name in enumerate(_MONTHS, 1) if _is_month(match[1], name)), None)
    if number is None:
        return None
    first = date(int(match[2] or today.year), number, 1)
    if not match[2] and first > today:
        first = date(today.year - 1, number, 1)
    return _unit_at(first, "month", 0)


def _is_month(text: str, name: str) -> bool:
    return text == name or (len(text) >= 3 and text.rstrip(".") in (name[:3], name[:4]))


def _iso_period(match: re.Match[str], _: date) -> Period:
    """`2025`, `2025-12` or `2025-12-31`."""
    year, month, day = (int(part) if part else None for part in match.groups())
    assert year is not None
    if month is None:
        return date(year, 1, 1), date(year, 12, 31)
    return _single_day(date(year, month, day)) if day is not None else _unit_at(date(year, month, 1), "month", 0)


_PARSERS: tuple[tuple[str, Callable[[re.Match[str], date], Period | None]], ...] = (
    (rf"({'|'.join(_UNIT_OFFSETS)}) {_UNIT}", _relative_period),
    (rf"(last|past|previous|next) (\d+) {_UNIT}", _counted_period),
    (rf"(\d+) {_UNIT} ago", _period_ago),
    (r"(?:(?P<leading_year>\d{4})[ -]?)?q(?P<quarter>[1-4])(?:[ -]?(?P<year>\d{4}))?", _quarter),
    (r"([a-z]+\.?)(?: (\d{4}))?", _month),
    (r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?", _iso_period),
)


def _unit_at(day: date, unit: str, unit_offset: int) -> Period:
    """Return the unit that contains a day, shifted by a number of units."""
    if unit == "day":
        return _single_day(day + timedelta(days=unit_offset))
    if unit == "week":
        first = day - timedelta(days=day.weekday()) + timedelta(weeks=unit_offset)
        return first, first + timedelta(days=6)
    unit_months = {"month": 1, "quarter": 3, "year": 12}[unit]
    start = date(day.year, day.month - (day.month - 1) % unit_months, 1)
    first = _months_later(start, unit_offset * unit_months)
    return first, _months_later(first, unit_months) - timedelta(days=1)


def _months_later(day: date, months: int) -> date:
    """Return the same day of another month, or the last day of that month if that month has fewer days."""
    month_number = day.year * 12 + day.month - 1 + months
    year, month = month_number // 12, month_number % 12 + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def _count(text: str) -> int:
    count = int(text) if len(text) <= 5 else _MAX_UNITS + 1
    if not 1 <= count <= _MAX_UNITS:
        raise ValueError(text)
    return count
