"""Times and durations as text: RFC 3339, and `500ms, 30s, 5m, 2h, 7d`."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor
from typing import Annotated, overload

from pydantic import AfterValidator


@overload
def format_time(seconds: float) -> str: ...


@overload
def format_time(seconds: None) -> None: ...


@overload
def format_time(seconds: float | None) -> str | None: ...


def format_time(seconds: float | None) -> str | None:
    """Returns seconds since the epoch as RFC 3339 UTC with milliseconds."""
    if seconds is None:
        return None
    whole = floor(seconds)
    # As `datetime` does: rounded to microseconds, of which the last three are left out.
    milliseconds = round((seconds - whole) * 1_000_000) // 1_000
    return f"{_second(whole)}.{milliseconds:03}Z" if milliseconds < 1_000 else f"{_second(whole + 1)}.000Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    # Each call tells two times or three, and most of them lie in the same few seconds.
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def seconds_of(formatted: str) -> float:
    """Parse a time as documents have it; return seconds since the epoch."""
    return datetime.fromisoformat(formatted).timestamp()


def time_of(seconds: float) -> datetime:
    """Return seconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")

LONGEST = timedelta(days=3650)
"""Ten years: longer is a slip of the pen, and Temporal's timers end not far above."""


def parse_duration(text: str) -> timedelta:
    """Returns the duration that a text stands for.

    Raises:
        ValueError: the text is no number with a unit, is not over zero, or is longer than `LONGEST`.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is no duration; write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d")
    duration = timedelta(milliseconds=float(match[1]) * _UNITS_MS[match[2]])
    if not timedelta() < duration <= LONGEST:
        raise ValueError(f"{text!r} is out of range; a duration is over 0 and at most {LONGEST.days}d")
    return duration


def _checked(text: str) -> str:
    parse_duration(text)
    return text


DurationText = Annotated[str, AfterValidator(_checked)]
"""A field of a model that keeps a duration as it was written."""
