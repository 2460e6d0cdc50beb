"""How times are told: seconds since the epoch as RFC 3339."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import overload


@overload
def format_time(seconds: float) -> str: ...


@overload
def format_time(seconds: None) -> None: ...


@overload
def format_time(seconds: float | None) -> str | None: ...


def format_time(seconds: float | None) -> str | None:
    """Returns seconds since the epoch as RFC 3339 UTC with milliseconds."""
    return None if seconds is None else _told(seconds)


@lru_cache(maxsize=4_096)
def _told(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
