"""The terms on which a run goes on, as documents: its limits, and the policy of its calls. Pure."""

from typing import Any

from dagwright.core.model.times import format_time
from dagwright.features.budgets.budget import options_to_json
from dagwright.features.run_scheduler import RunScheduler


def limits_to_json(scheduler: RunScheduler) -> dict[str, Any]:
    """Returns `max_parallel`, `deadline` (RFC 3339 time, null for none) and, of a run that has one, `budget`."""
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
    """Returns `policy`."""
    return {"policy": scheduler.state.policy.to_json()}
