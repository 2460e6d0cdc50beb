"""Answers of a limit to calls that request a start: start times, estimates, tokens, and the queue for leases.

A lease allows a call to run within a limit of concurrent calls.
"""

import pytest

from dagwright.core.model.call_limits import CallLimit, parse_limit
from dagwright.features.call_limits.limit_state import LATE_S, PLACE_TIMEOUT_S, LimitAnswer, LimitState

_NOW = 1_000_000.0


def _request_starts(state: LimitState, limit: CallLimit, count: int, *, now: float = _NOW) -> list[LimitAnswer]:
    return [state.request(limit, f"call-{number}", now) for number in range(count)]


def test_calls_over_the_rate_get_later_starts_and_calls_at_the_end_of_the_queue_get_estimates() -> None:
    state, limit = LimitState(), parse_limit("2/s")
    answers = _request_starts(state, limit, 40)
    assert [answer.decision for answer in answers] == ["start"] * 3 + ["defer"] * 37
    # Calls start half a second apart. A start may be a tenth of the period early.
    # Deferred calls request a start again half a second before their booked starts.
    assert [round(answer.delay_s, 2) for answer in answers[:6]] == [0, 0.4, 0.9, 1.0, 1.4, 1.9]
    assert (answers[3].reason, answers[3].calls_ahead) == ("rate limit 2/s", 3)
    assert [round(answer.delay_s, 1) for answer in answers[-2:]] == [18.4, 18.9]
    assert state.waiting_count(limit, _NOW) == 39
    # In this test, the calls with an estimated start never request a start again, as if they were cancelled. A new call
    # does not wait for these calls.
    assert state.request(limit, "new", _NOW + 11).decision == "start"


def test_returning_calls_start_before_new_calls() -> None:
    state, limit = LimitState(), parse_limit("2/s")
    _request_starts(state, limit, 40)
    # All calls request a start again at once, as after a pause of the workers. Each call gets a different start.
    now = _NOW + 15
    answers = [state.request(limit, f"call-{number}", now, has_waited=True) for number in range(3, 9)]
    assert [answer.decision for answer in answers] == ["start"] * 3 + ["defer"] * 3
    assert [round(answer.delay_s, 2) for answer in answers] == [0, 0.4, 0.9, 1.0, 1.4, 1.9]
    assert state.request(limit, "new", now).delay_s > 3.0


def test_late_call_gets_another_start_and_keeps_its_lease() -> None:
    state, limit = LimitState(), parse_limit("10/s concurrency=2")
    assert state.request(limit, "a", _NOW).delay_s == 0
    # The answer was lost, so the call requests a start again. Its third request is late.
    assert state.request(limit, "a", _NOW + LATE_S).delay_s == 0
    assert state.request(limit, "a", _NOW + 1, lead_s=0.5).delay_s == pytest.approx(0.5)
    assert (len(state.leases), state.leases["a"].started_at) == (1, _NOW + 1.5)
    # The next start keeps the interval to the new start of `a`.
    assert state.request(limit, "b", _NOW + 1).delay_s == pytest.approx(0.5)
    assert state.starts.next_at == pytest.approx(_NOW + 1.7)


def test_missed_start_counts_toward_the_rate_only_if_another_call_booked_a_later_start() -> None:
    state, limit = LimitState(), parse_limit("1/min")
    assert state.request(limit, "a", _NOW) == LimitAnswer("start")
    assert state.request(limit, "a", _NOW + 0.6, lead_s=0.6).delay_s == pytest.approx(0.6)
    assert state.starts.next_at == pytest.approx(_NOW + 61.2)
    # A second request with the same lead comes from a new attempt, so the first attempt has started.
    assert state.request(limit, "a", _NOW + 2, lead_s=0.6).decision == "defer"
    assert state.request(limit, "b", _NOW + 56, has_waited=True).decision == "start"
    assert state.request(limit, "a", _NOW + 57, lead_s=1.6, has_waited=True).decision == "defer"


def test_lease_ends_by_release_or_timeout_and_the_queue_keeps_its_order() -> None:
    state, limit = LimitState(), parse_limit("concurrency=2")
    decisions = [answer.decision for answer in _request_starts(state, limit, 5)]
    assert decisions == ["start", "start", "queue", "queue", "defer"]
    state.release("call-0", _NOW + 1)
    assert state.request(limit, "call-3", _NOW + 1).decision == "queue"
    assert state.request(limit, "call-2", _NOW + 1).decision == "start"
    # The worker of call-1 and call-2 dies, so their leases end. Call-3 keeps its place in the queue.
    for step, decision in ((1, "queue"), (2, "queue"), (3, "start")):
        assert state.request(limit, "call-3", _NOW + step * PLACE_TIMEOUT_S * 0.9).decision == decision
    assert [*state.leases] == ["call-3"]


def test_repeated_request_of_a_call_uses_its_lease() -> None:
    state, limit = LimitState(), parse_limit("concurrency=1")
    assert [state.request(limit, "a", _NOW + second).decision for second in range(3)] == ["start"] * 3
    # A running call counts although its lease has expired, as after an outage of the server.
    state.renew("b", _NOW)
    assert state.request(limit, "c", _NOW).decision == "queue"


def test_tokens_are_estimated_at_the_start_and_corrected_at_the_end() -> None:
    state, limit = LimitState(), parse_limit("tokens=60000")
    assert state.request(limit, "a", _NOW, kind="model_call").decision == "start"
    state.add_tokens(limit, 30_000)
    answer = state.request(limit, "b", _NOW, kind="model_call")
    assert (answer.decision, answer.reason) == ("defer", "limit of 60,000 tokens/min")
    # Call `a` used the tokens of 30 s. The tokens of 6 s may be used early.
    assert answer.delay_s == pytest.approx(23.5 / 2)
    assert state.request(limit, "c", _NOW, kind="call").decision == "start"


@pytest.mark.parametrize("limit", [CallLimit(), parse_limit("calls=900/day"), parse_limit("5/s")])
@pytest.mark.parametrize("return_delay_s", [0.0, 3.0, 20.0], ids=["after the hold", "between", "after the last start"])
def test_held_calls_that_come_back_together_start_one_after_another(limit: CallLimit, return_delay_s: float) -> None:
    """Calls come back late if no worker runs at the end of the hold, or if all slots of the worker are in use."""
    state, hold_end = LimitState(), _NOW + 10
    state.hold.extend(hold_end, _NOW, requested_by="429 from api.example.org")
    calls = [f"call-{number}" for number in range(60)]
    due_at = {call: _NOW + state.request(limit, call, _NOW).delay_s for call in calls}
    assert sorted(due_at.values()) == pytest.approx([hold_end + 0.1 * number for number in range(60)])
    next_request_at = {call: max(due, hold_end + return_delay_s) for call, due in due_at.items()}
    starts: list[float] = []
    while next_request_at:
        call, now = min(next_request_at.items(), key=lambda item: item[1])
        answer = state.request(limit, call, now, has_waited=True, kind="call_with_models")
        if answer.decision == "start":
            starts.append(now + answer.delay_s)
            del next_request_at[call]
        else:
            next_request_at[call] = now + max(1.0, answer.delay_s)
    rate = limit.rate.count if limit.rate is not None else 10
    max_per_second = max(sum(window_start <= start < window_start + 1.0 for start in starts) for window_start in starts)
    assert max_per_second <= 1.1 * rate + 1, max_per_second
    assert max(starts) - min(starts) <= 60 / rate + 6


def test_discarded_bookings_delay_no_start_and_a_hold_delays_all_starts() -> None:
    state, limit = LimitState(), parse_limit("1/h")
    _request_starts(state, limit, 3)
    state.discard_bookings(_NOW)
    assert state.request(limit, "a", _NOW).decision == "start"
    state.hold.extend(_NOW + 30, _NOW, requested_by="429 from api.example.org")
    assert state.request(parse_limit("100/s"), "b", _NOW).decision == "defer"
