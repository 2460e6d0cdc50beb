"""The terms on which a run goes on, as documents: its limits, and the policy of its calls. Pure."""

from typing import Any

from dagwright.core.model.times import format_time
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.budgets.budget import options_to_json


def limits_to_json(scheduler: Scheduler) -> dict[str, Any]:
    """Returns `max_parallel`, `deadline` (RFC 3339 time, null for none) and, of a run that has one, `budget`."""
    found = {"max_parallel": scheduler.max_in_flight, "deadline": format_time(scheduler.deadline.at)}
    return found if scheduler.budget is None else {**found, "budget": options_to_json(scheduler.budget)}


def policy_to_json(scheduler: Scheduler) -> dict[str, Any]:
    """Returns `policy`."""
    return {"policy": scheduler.policy.to_json()}
