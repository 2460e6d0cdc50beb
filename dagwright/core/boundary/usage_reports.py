"""Model usage that is reported with a result, with a failure, or with the end of a run.

An activity that calls models reports its usage in the metadata of each result and in the details of each failure. The
report includes earlier attempts, because each attempt saves its usage in its heartbeats. The run only adds up reports
and makes no calls to get them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model import states
from dagwright.core.model.states import NO_USAGE, Usage

__all__ = [
    "MAX_USAGE_VALUE",
    "NO_USAGE",
    "USAGE_INDEX",
    "DeferralReport",
    "Usage",
    "awaited_limit",
    "earlier_call_count",
    "earlier_deferrals",
    "reported_agent_usage",
    "reported_usage",
    "started_attempt",
    "store_wait_reason",
    "usage_from_json",
    "usage_of_heartbeat",
    "usage_of_metadata",
]

MAX_USAGE_VALUE = 10**15
"""Largest value of a field in one report, so that sums stay valid numbers."""
USAGE_INDEX = 2
"""Index of the usage in the details of a heartbeat, after the state and the progress of the tool."""


def usage_from_json(encoded: Any) -> Usage:
    """Parse a usage from another process.

    Raises:
        ValueError: the form is invalid, or a field is over `MAX_USAGE_VALUE`.
    """
    usage = states.usage_from_json(encoded)
    if any(getattr(usage, name) > MAX_USAGE_VALUE for name in Usage.model_fields):
        raise ValueError(f"each field of a usage is at most {MAX_USAGE_VALUE:,}")
    return usage


def usage_of_metadata(metadata: Mapping[str, bytes]) -> Usage:
    """Return the usage in the metadata of a result; `NO_USAGE` if it is missing or invalid."""
    if wire.METADATA_USAGE not in metadata:
        return NO_USAGE
    try:
        return usage_from_json(json_from_bytes(metadata[wire.METADATA_USAGE]))
    except ValueError:
        return NO_USAGE


def reported_usage(message: Any) -> Usage:
    """Return the usage in the JSON of a failure, a closing event or a heartbeat.

    Args:
        message: an object that may have a `usage`.

    Returns:
        `NO_USAGE` if the usage is missing or invalid.
    """
    usage = message.get(wire.DETAIL_USAGE) if isinstance(message, Mapping) else None
    if not isinstance(usage, Mapping):
        return NO_USAGE
    try:
        return usage_from_json(usage)
    except ValueError:
        return NO_USAGE


def _report_field(details: Sequence[Any], name: str) -> Any:
    """Return a part of the usage report of a heartbeat; `None` if it is missing."""
    report = details[USAGE_INDEX] if len(details) > USAGE_INDEX else None
    return report.get(name) if isinstance(report, Mapping) else None


def started_attempt(details: Sequence[Any]) -> int | None:
    """Return the number of the attempt that called the tool, from the last heartbeat of a `write` call.

    Returns:
        `None` if no attempt called the tool.
    """
    attempt = _report_field(details, wire.DETAIL_STARTED)
    return attempt if isinstance(attempt, int) else None


def earlier_call_count(details: Sequence[Any], attempt: int) -> int:
    """Return how many earlier attempts of a `write` call have called the tool, from the last of their heartbeats.

    If the server has reset the attempt number, as it does after a pause, earlier calls are not counted.

    Args:
        attempt: number of the current attempt.
    """
    calls = _report_field(details, wire.DETAIL_CALLS)
    if not isinstance(calls, list) or len(calls) != 2 or not all(isinstance(call, int) for call in calls):
        return 0
    return int(calls[0]) if calls[1] < attempt else 0


@dataclass(frozen=True, slots=True)
class DeferralReport:
    """Deferred attempts of a call before the current attempt, from the last of their heartbeats.

    Args:
        count: number of deferred attempts.
        attempt: number of the last deferred attempt; 0 if no attempt was deferred.
        state: JSON that the previous attempt saved for the current attempt, if the previous attempt was deferred.
    """

    count: int = 0
    attempt: int = 0
    state: Any = None


def earlier_deferrals(details: Sequence[Any], attempt: int) -> DeferralReport:
    """Return the deferred attempts of a call before the current attempt.

    If the server has reset the attempt number, as it does after a pause, earlier attempts are not included.

    Args:
        attempt: number of the current attempt.
    """
    report = _report_field(details, wire.DETAIL_DEFERRED)
    if not isinstance(report, Mapping):
        return DeferralReport()
    count, last_attempt = report.get("count"), report.get("attempt")
    if not isinstance(count, int) or not isinstance(last_attempt, int) or not 0 < count <= last_attempt < attempt:
        return DeferralReport()
    return DeferralReport(count, last_attempt, report.get("state") if last_attempt == attempt - 1 else None)


def store_wait_reason(details: Sequence[Any]) -> str | None:
    """Return why an attempt waits for the payload store, from its last heartbeat; `None` if it does not wait."""
    reason = _report_field(details, wire.DETAIL_STORE_ERROR)
    return reason if isinstance(reason, str) else None


def awaited_limit(details: Sequence[Any]) -> str | None:
    """Return the name of the call limit that an attempt waits for, from its last heartbeat, or `None`."""
    limit_name = _report_field(details, wire.DETAIL_LIMITED_BY)
    return limit_name if isinstance(limit_name, str) else None


def usage_of_heartbeat(details: Sequence[Any]) -> Usage:
    """Return the usage of all attempts of a call up to a heartbeat; `NO_USAGE` if it is missing or invalid."""
    return reported_usage(details[USAGE_INDEX]) if len(details) > USAGE_INDEX else NO_USAGE


def reported_agent_usage(message: Any) -> dict[str, Usage]:
    """Return the usage of each agent in a closing event's JSON; empty if the usage is missing or invalid.

    Args:
        message: an object that may have a `usage` with `agents`.
    """
    usage = message.get(wire.DETAIL_USAGE) if isinstance(message, Mapping) else None
    try:
        agents = usage["agents"] if isinstance(usage, Mapping) and "agents" in usage else {}
        return {str(name): usage_from_json(agent_usage) for name, agent_usage in agents.items()}
    except (ValueError, AttributeError):
        return {}
