"""Format and parse times: seconds since the epoch as RFC 3339."""

from datetime import UTC, datetime
from functools import lru_cache
from math import floor
from typing import overload


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
