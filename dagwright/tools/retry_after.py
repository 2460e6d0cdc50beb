"""How long a service asks to be left alone: `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3)."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from dagwright.core.boundary.limits import MAX_DELAY_S

LONGEST_DELAY = timedelta(seconds=MAX_DELAY_S)
"""A delay is cut to this: a service that says a year must not park a run for a year."""


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """Returns the delay that a `Retry-After` header asks for, capped; `None` if it says nothing.

    Args:
        value: the header as it came.
        now: the present time, with a time zone.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _until(value, now)
    if not math.isfinite(seconds):
        return None
    return capped(timedelta(seconds=min(max(seconds, 0.0), LONGEST_DELAY.total_seconds())))


def capped(delay: timedelta) -> timedelta:
    """Returns `delay`, from nothing to `LONGEST_DELAY`."""
    return min(max(delay, timedelta(0)), LONGEST_DELAY)


def _until(value: str, now: datetime) -> timedelta | None:
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return capped((date if date.tzinfo else date.replace(tzinfo=UTC)) - now)
