"""Properties of call limits: for any requests and ends of calls, no limit is exceeded, and every call starts."""

import json
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from dagwright.core.model.call_limits import CallLimit, Rate
from dagwright.features.call_limits.limit_state import LATE_S, LimitState, limit_state_from_json
from dagwright.features.call_limits.schedule import EARLY_SHARE

_RATES = st.builds(Rate, st.integers(1, 200), st.sampled_from(["s", "min"]))
_ANY_LIMITS = st.builds(CallLimit, st.none() | _RATES, st.none() | st.integers(1, 5))
_LIMITS = _ANY_LIMITS.filter(lambda limit: limit != CallLimit())


@dataclass(frozen=True)
class _Call:
    """A call.

    Args:
        at: time of the first request.
        duration_s: duration of the call after its start.
        return_delay_s: delay of the next request after the end of a deferral.
        latency_s: latency of each response.
    """

    at: float
    duration_s: float
    return_delay_s: float
    latency_s: float


_CALLS = st.builds(_Call, st.floats(0, 20), st.floats(0, 20), st.floats(0, 8), st.floats(0, 2))
_CONCURRENT_CALLS = st.builds(_Call, st.just(1.0), st.just(0.1), st.just(0.0), st.just(0.0))
_PAUSES = st.tuples(st.floats(0, 5), st.floats(0, 5))


def _simulate(limit: CallLimit, calls: list[_Call], pause: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the start and end of each call.

    Calls request a start as workers do. The state is encoded as JSON before each request.

    Args:
        pause: start and length of a pause of the workers. Everything that is due in the pause happens at its end.
    """

    def after_pause(at: float) -> float:
        return sum(pause) if pause[0] <= at < sum(pause) else at

    state = LimitState()
    queue = sorted((call.at, number, False, 0.0) for number, call in enumerate(calls))
    running_calls: list[tuple[float, int]] = []
    spans: dict[int, tuple[float, float]] = {}
    while queue:
        now, number, has_waited, lead_s = queue.pop(0)
        for ended_at, call_number in sorted(each for each in running_calls if each[0] <= now):
            state.release(str(call_number), ended_at)
            running_calls.remove((ended_at, call_number))
        for _, call_number in running_calls:
            if call_number in spans and spans[call_number][0] <= now:
                state.renew(str(call_number), now)
        state = limit_state_from_json(json.loads(json.dumps(state.to_json())))
        response = state.request(limit, str(number), now, has_waited=has_waited, lead_s=lead_s)
        start = after_pause(max(now + calls[number].latency_s, now + response.delay_s))
        late_s = start - now - response.delay_s
        if response.decision == "start" and (late_s <= LATE_S or limit.rate is None):
            spans[number] = (start, start + calls[number].duration_s)
            running_calls.append((spans[number][1], number))
            continue
        if response.decision == "start":
            queue.append((start, number, has_waited, lead_s + late_s))
        else:
            assert response.delay_s > 0
            is_deferred = response.decision == "defer"
            back_at = now + response.delay_s + (calls[number].return_delay_s if is_deferred else 0.0)
            queue.append((after_pause(max(start, back_at)), number, has_waited or is_deferred, lead_s))
        queue.sort()
    return [spans[number] for number in sorted(spans)]


# `lead_s` is the sum of the delays by which starts of a call were late. If it were only the last delay, every second
# start would be late forever.
@example(CallLimit(Rate(50, "s")), [_Call(1.0, 0.1, 0.0, 1.8)], (3.0, 1.2))
# At a low rate, a missed start that stays booked defers the call. Without `lead_s`, the next start is missed as well.
@example(CallLimit(Rate(1, "min")), [_Call(1.0, 0.1, 0.0, 0.3)], (0.0, 0.0))
@given(
    _LIMITS, st.lists(_CALLS, min_size=1, max_size=40) | st.lists(_CONCURRENT_CALLS, min_size=30, max_size=40), _PAUSES
)
def test_no_limit_is_exceeded_and_every_call_starts(
    limit: CallLimit, calls: list[_Call], pause: tuple[float, float]
) -> None:
    spans = _simulate(limit, calls, pause)
    assert len(spans) == len(calls)
    starts = sorted(start for start, _ in spans)
    if limit.rate is not None:
        capacity_s = EARLY_SHARE * limit.rate.period_s + LATE_S
        for window_s in (1.0, limit.rate.period_s):
            max_starts = (window_s + capacity_s) / limit.rate.interval_s + 1
            assert max(sum(first <= start < first + window_s for start in starts) for first in starts) <= max_starts
    if limit.concurrency is not None:
        for start in starts:
            assert sum(call_start <= start < call_end for call_start, call_end in spans) <= limit.concurrency
