"""Limits and policy of a run as JSON documents."""

from typing import Any

from dagwright.core.model.times import format_time
from dagwright.features.budgets.budget import options_to_json
from dagwright.features.run_scheduler import RunScheduler


def limits_to_json(scheduler: RunScheduler) -> dict[str, Any]:
    """Return `max_parallel`, `deadline` (RFC 3339 time, null means no deadline) and `budget`, if the run has one."""
    found = {
        "max_parallel": scheduler.state.max_in_flight,
        "deadline": format_time(scheduler.features.deadline.deadline.at),
    }
    return (
        found
        if scheduler.features.budget.budget is None
        else {**found, "budget": options_to_json(scheduler.features.budget.budget)}
    )


def policy_to_json(scheduler: RunScheduler) -> dict[str, Any]:
    """Return `policy`."""
    return {"policy": scheduler.state.policy.to_json()}
