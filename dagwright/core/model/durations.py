"""Durations as plans write them: `500ms, 30s, 5m, 2h, 7d`."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

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
