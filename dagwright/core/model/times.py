"""Times and durations as text: RFC 3339, and `500ms, 30s, 5m, 2h, 7d`."""

import math
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
    """Return seconds since the epoch as RFC 3339 UTC with milliseconds."""
    if seconds is None:
        return None
    whole_seconds = floor(seconds)
    # `datetime.isoformat` also rounds to microseconds, and drops the last three digits.
    milliseconds = round((seconds - whole_seconds) * 1_000_000) // 1_000
    return (
        f"{_format_second(whole_seconds)}.{milliseconds:03}Z"
        if milliseconds < 1_000
        else f"{_format_second(whole_seconds + 1)}.000Z"
    )


def format_datetime(moment: datetime | None) -> str | None:
    """Format a time like `format_time`."""
    return None if moment is None else format_time(moment.timestamp())


@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    # Each caller formats two or three points in time, most of which are within the same few seconds.
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def parse_time(text: str) -> float:
    """Parse an RFC 3339 time, as in documents; return seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def cut_to_ms(seconds: float) -> float:
    """Return a time without the part below a millisecond, as `format_time` writes it."""
    return (round(seconds * 1_000_000) // 1_000) / 1_000


def utc_datetime(seconds: float) -> datetime:
    """Convert seconds since the epoch to a `datetime` in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES_MS = [(unit, size) for unit, size in reversed(_UNITS_MS.items()) if unit != "ms"]
_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")

Duration = timedelta | float | str
"""A timedelta, seconds, or a text such as `30s` or `2h`."""

MAX_DURATION = timedelta(days=3650)
"""Ten years: a longer duration is a mistake, and Temporal does not support much longer timers."""


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    Raises:
        ValueError: the text is not a number with a unit, is not over zero, or is longer than `MAX_DURATION`.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is not a duration; write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d")
    duration = timedelta(milliseconds=float(match[1]) * _UNITS_MS[match[2]])
    if not timedelta() < duration <= MAX_DURATION:
        raise ValueError(f"{text!r} is out of range; a duration is over 0 and at most {MAX_DURATION.days}d")
    return duration


def format_duration(duration: Duration) -> str:
    """Return a duration as plans write it, such as `90s`.

    Raises:
        ValueError: the value is not a duration, or is out of range.
    """
    if isinstance(duration, str):
        parse_duration(duration)
        return duration
    if isinstance(duration, bool) or not isinstance(duration, timedelta | int | float):
        raise ValueError(f"{duration!r:.80} is not a duration; expected a timedelta, seconds or a text such as 30s")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    milliseconds = round(seconds * 1_000) if math.isfinite(seconds) else 0
    for unit, size in _SIZES_MS:
        if milliseconds and milliseconds % size == 0:
            text = f"{milliseconds // size}{unit}"
            break
    else:
        text = f"{milliseconds}ms"
    parse_duration(text)
    return text


def _checked_duration(text: str) -> str:
    parse_duration(text)
    return text


DurationText = Annotated[str, AfterValidator(_checked_duration)]
"""Type of a field that stores a duration as written."""


def format_elapsed_time(seconds: float) -> str:
    """Format seconds for people: `320 ms`, `3.2 s`, `4 min 5 s` or `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
