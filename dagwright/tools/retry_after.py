"""The delay that a service requests before the next attempt."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from dagwright.core.boundary.limits import MAX_DELAY_S

_MAX_DELAY = timedelta(seconds=MAX_DELAY_S)
_BUSY_STATUSES = (429, 503)
"""Statuses with which a service requests a delay (RFC 6585, section 4; RFC 9110, section 15.6.4)."""


def requested_delay(headers: Mapping[str, str], *, now: datetime | None = None) -> timedelta | None:
    """Read the delay of a response, at most a day; `None` if the response has no valid delay.

    Args:
        headers: names in lower case, or a mapping that ignores case.
        now: current time, for converting a date in the header to a delay; by default, the time of the clock.

    Sources: RFC 9110, section 10.2.3, for `retry-after`. OpenAI and Azure send `retry-after-ms`. LiteLLM's proxy adds a
    prefix to the headers of the service that it calls.
    """
    milliseconds = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d{1,12}(\.\d+)?", milliseconds):
        return cap_delay(timedelta(milliseconds=float(milliseconds)))
    value = headers.get("retry-after") or headers.get("llm_provider-retry-after")
    return _delay_of(value, now or datetime.now(UTC)) if value else None


def cap_delay(delay: timedelta | None) -> timedelta | None:
    """Limit a delay to between zero and a day: a service must not stop a run for a year."""
    return None if delay is None else min(max(delay, timedelta(0)), _MAX_DELAY)


def requesting_service(status: int | None, host: str) -> str | None:
    """Return the status and host of a service that requests a delay, such as `429 from api.example.org`.

    Return `None` for a status that does not request a delay.
    """
    return f"{status} from {host}" if status in _BUSY_STATUSES else None


def _delay_of(value: str, now: datetime) -> timedelta | None:
    try:
        seconds = float(value)
    except ValueError:
        return _delay_until(value, now)
    if not math.isfinite(seconds):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), MAX_DELAY_S))


def _delay_until(value: str, now: datetime) -> timedelta | None:
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return cap_delay((date if date.tzinfo else date.replace(tzinfo=UTC)) - now)
