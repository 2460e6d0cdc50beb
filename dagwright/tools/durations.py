"""Durations as plans and tools write them: `500ms`, `30s`, `5m`, `2h`, `7d`."""

import math
import re
from datetime import timedelta

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")


def seconds_of(duration: timedelta | float | str) -> float:
    """Returns `duration` in seconds.

    Args:
        duration: a timedelta, a number of seconds, or text with a unit (`500ms`, `30s`, `5m`, `2h`, `7d`).

    Raises:
        ValueError: it is none of these, or negative, or not finite.
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        match = _WRITTEN.fullmatch(duration.strip())
        if match is None:
            raise ValueError(
                f"{duration[:50]!r} is no duration; write a number and a unit, like 500ms, 30s, 5m, 2h, 7d"
            )
        seconds = float(match[1]) * _UNITS_S[match[2]]
    else:
        seconds = float(duration)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{duration!r} is no duration; it must be finite and not negative")
    return seconds
