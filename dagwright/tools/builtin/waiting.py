"""A wait that survives crashes: its start is recorded in the heartbeat."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import WithJsonSchema

from dagwright.core.model.json_schemas import TEXT_FORMAT
from dagwright.core.model.times import parse_duration
from dagwright.tools.context import context
from dagwright.tools.spec import tool

MAX_WAIT = timedelta(days=30)

WaitDuration = Annotated[
    str | float,
    WithJsonSchema(
        {
            "type": ["string", "number"],
            TEXT_FORMAT: "duration",
            "minimum": 0,
            "maximum": MAX_WAIT.total_seconds(),
        }
    ),
]
"""A duration such as `30s`, or a number of seconds."""


@tool(effects="read", secrets=[], timeout=MAX_WAIT + timedelta(hours=1), max_attempts=1_000)
async def wait(duration: WaitDuration) -> dict[str, str]:
    """Wait for a duration and return the start and end time.

    Args:
        duration: time to wait, such as `500ms`, `30s`, `5m`, `2h`, `7d`, or a number of seconds; at most 30 days
    """
    length = parse_duration(duration) if isinstance(duration, str) else _checked_duration(duration)
    if length > MAX_WAIT:
        raise ValueError(f"{duration!r} is longer than {MAX_WAIT.days}d, the longest wait")
    call = context()
    start = datetime.now(UTC)
    if isinstance(call.last_heartbeat, str):
        start = datetime.fromisoformat(call.last_heartbeat)
    # A worker that takes over the wait continues from the first start.
    call.heartbeat(start.isoformat())
    while (remaining := start + length - datetime.now(UTC)) > timedelta(0):
        # Short sleeps: the wall clock may be set, and a machine may be suspended.
        await asyncio.sleep(min(remaining.total_seconds(), 60.0))
    return {"started_at": _timestamp(start), "ended_at": _timestamp(datetime.now(UTC))}


def _checked_duration(seconds: float) -> timedelta:
    if not 0 <= seconds <= MAX_WAIT.total_seconds():
        raise ValueError(f"{seconds!r} is not a number of seconds from 0 to {MAX_WAIT.days}d")
    return timedelta(seconds=seconds)


def _timestamp(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
