"""Daily budgets: usage of a UTC day, the boundary of the day, and answers to calls that request a start."""

from decimal import Decimal
from typing import Any

import pytest

from dagwright.core.model.call_limits import CallLimitInvalid, DailyBudget, parse_limit
from dagwright.core.model.states import Usage
from dagwright.features.call_limits.limit_state import DAY_SPREAD_S, MAX_ESTIMATE_S, LimitState, limit_state_from_json

MIDNIGHT = 1_795_824_000.0
"""2026-11-28T00:00Z"""


def test_call_over_a_daily_budget_waits_for_midnight_utc_or_a_higher_budget() -> None:
    state, limit = LimitState(), parse_limit("tokens=1000/day money=0.50/day")
    assert str(limit) == "tokens=1000/day money=0.50/day"
    evening = MIDNIGHT - 3_600
    state.day_use.add(Usage(calls=1, prompt_tokens=700, money=Decimal("0.10")), evening)
    assert state.request(limit, "a", evening, kind="model_call").decision == "start"
    state.day_use.add(Usage(calls=1, completion_tokens=310, money=Decimal("0.10")), evening)
    assert limit.daily_budget is not None
    description = "tokens: 1,010 of 1,000 used today, money: 0.20 of 0.50 used today"
    assert state.day_use.describe(limit.daily_budget, evening) == description
    restored_state = limit_state_from_json(state.to_json())

    def request(call: str, at: float, kind: Any = "model_call") -> Any:
        return restored_state.request(limit, call, at, kind=kind)

    answer = request("b", evening)
    reason = "daily budget (tokens: 1,010 of 1,000 used, until 2026-11-28T00:00Z)"
    assert (answer.decision, answer.delay_s, answer.reason) == ("defer", 300, reason)
    # The starts of the deferred calls are spread over the time after midnight.
    delays_s = [request(f"{number}", MIDNIGHT - 5).delay_s - 5 for number in range(600)]
    assert all(0 <= delay_s < DAY_SPREAD_S for delay_s in delays_s)
    assert max(sum(start <= delay_s < start + 1 for delay_s in delays_s) for start in delays_s) < 30
    # If midnight is further away than the longest estimate, the call gets the longest estimate.
    assert request("b", MIDNIGHT - MAX_ESTIMATE_S - 1).delay_s >= MAX_ESTIMATE_S
    decision_by_kind = {"call": "start", "call_with_models": "defer", "tokens": "defer"}
    assert {kind: request(kind, evening, kind).decision for kind in decision_by_kind} == decision_by_kind
    assert restored_state.request(parse_limit("tokens=2000/day"), "c", evening, kind="model_call").decision == "start"
    assert request("b", MIDNIGHT).decision == "start"
    assert restored_state.day_use.describe(DailyBudget(calls=3), MIDNIGHT) == "calls: 0 of 3 used today"


def test_unknown_cost_of_a_call_blocks_a_daily_money_budget() -> None:
    state, limit = LimitState(), parse_limit("money=5/day")
    state.day_use.add(Usage(calls=1, unpriced_calls=1), MIDNIGHT)
    answer = state.request(limit, "a", MIDNIGHT, kind="model_call")
    assert answer.reason == "daily budget (the cost of a call is unknown; set a price, or a budget without money)"


@pytest.mark.parametrize("text", ["tokens=0/day", "tokens=1.5/day", "money=0/day", "calls=5/week"])
def test_invalid_daily_budgets_are_rejected(text: str) -> None:
    with pytest.raises(CallLimitInvalid):
        parse_limit(text)
