"""What model calls have used, as it crosses the boundary: with a result, with a failure, or with the end of a run.

Whoever asks a model in an activity says what that used, with every result in its metadata and with every failure in its
details, the attempts before it included: each leaves in its heartbeats what it has used. So a run adds up what it is
told, and asks for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model import usage as plan_usage
from dagwright.core.model.usage import NONE, Usage

__all__ = [
    "MOST_USED",
    "NONE",
    "USAGE_PLACE",
    "Usage",
    "earlier_calls",
    "started_attempt",
    "told_agents",
    "told_usage",
    "usage_from_json",
    "usage_of_heartbeat",
    "usage_of_metadata",
    "wait_of_heartbeat",
]

MOST_USED = 10**15
"""Of anything, as one message may tell: sums of it stay numbers that can be reckoned with, and told."""
USAGE_PLACE = 2
"""Where the details of a heartbeat tell a usage, behind what the tool keeps and its progress."""


def usage_from_json(encoded: Any) -> Usage:
    """Returns the usage that somebody else tells.

    Raises:
        ValueError: it is none, or more than anything can have used.
    """
    usage = plan_usage.usage_from_json(encoded)
    if any(getattr(usage, name) > MOST_USED for name in Usage.model_fields):
        raise ValueError(f"a usage has at most {MOST_USED:,} of anything")
    return usage


def usage_of_metadata(metadata: Mapping[str, bytes]) -> Usage:
    """Returns the usage that the metadata of a result tell; none if they tell nothing that can be read."""
    if wire.METADATA_USAGE not in metadata:
        return NONE
    try:
        return usage_from_json(json_from_bytes(metadata[wire.METADATA_USAGE]))
    except ValueError:
        return NONE


def told_usage(told: Any) -> Usage:
    """Returns the usage that a failure, an end or an attempt tells in its JSON, none if it tells nothing of the kind.

    Args:
        told: an object that may have a `usage`.
    """
    usage = told.get(wire.DETAIL_USAGE) if isinstance(told, Mapping) else None
    if not isinstance(usage, Mapping):
        return NONE
    try:
        return usage_from_json(usage)
    except ValueError:
        return NONE


def started_attempt(details: Sequence[Any]) -> int | None:
    """Return the attempt of a `write` that has called its tool, by its last heartbeat; `None` if none has."""
    reported = details[USAGE_PLACE] if len(details) > USAGE_PLACE else None
    attempt = reported.get(wire.DETAIL_STARTED) if isinstance(reported, Mapping) else None
    return attempt if isinstance(attempt, int) else None


def earlier_calls(details: Sequence[Any], attempt: int) -> int:
    """Return how many attempts of a `write` have called its tool, by the last heartbeat before an attempt.

    Calls before the server reset the count of attempts are not counted, as after a pause.

    Args:
        attempt: number of the attempt that asks.
    """
    told = details[USAGE_PLACE] if len(details) > USAGE_PLACE else None
    calls = told.get(wire.DETAIL_CALLS) if isinstance(told, Mapping) else None
    if not isinstance(calls, list) or len(calls) != 2 or not all(isinstance(each, int) for each in calls):
        return 0
    return int(calls[0]) if calls[1] < attempt else 0


def wait_of_heartbeat(details: Sequence[Any]) -> str | None:
    """Return why an attempt waits for the payload store, by its last heartbeat; `None` if it does not."""
    told = details[USAGE_PLACE] if len(details) > USAGE_PLACE else None
    reason = told.get(wire.DETAIL_WAITS_FOR) if isinstance(told, Mapping) else None
    return reason if isinstance(reason, str) else None


def usage_of_heartbeat(details: Sequence[Any]) -> Usage:
    """Returns what the attempts of a call have used up to a heartbeat, none if it tells nothing of the kind."""
    return told_usage(details[USAGE_PLACE]) if len(details) > USAGE_PLACE else NONE


def told_agents(told: Any) -> dict[str, Usage]:
    """Returns what each agent has used by what the end of a run tells; none if it tells nothing of the kind.

    Args:
        told: an object that may have a `usage` with `agents`.
    """
    usage = told.get(wire.DETAIL_USAGE) if isinstance(told, Mapping) else None
    try:
        agents = usage["agents"] if isinstance(usage, Mapping) and "agents" in usage else {}
        return {str(name): usage_from_json(used) for name, used in agents.items()}
    except (ValueError, AttributeError):
        return {}
