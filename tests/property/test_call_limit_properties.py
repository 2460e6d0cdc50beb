"""Properties of limits: no schedule of requests and ends exceeds a limit, and every call starts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dagwright.core.model.call_limits import CallLimit, Rate
from dagwright.features.call_limits.limit_state import LimitState, limit_state_from_json

_RATES = st.builds(Rate, st.integers(1, 200), st.sampled_from(["s", "min"]))
_ANY_LIMITS = st.builds(CallLimit, st.none() | _RATES, st.none() | st.integers(1, 5))
_LIMITS = _ANY_LIMITS.filter(lambda limit: limit != CallLimit())


def _simulate(limit: CallLimit, arrivals: list[float], holds: list[float]) -> list[tuple[float, float]]:
    """Return start and end of each call; each call requests as workers do, and the state travels as JSON."""
    state = LimitState()
    waiting = sorted((at, number, False) for number, at in enumerate(arrivals))
    running: list[tuple[float, int]] = []
    spans: dict[int, tuple[float, float]] = {}
    while waiting:
        now, number, has_waited = waiting.pop(0)
        for ended_at, call in sorted(each for each in running if each[0] <= now):
            state.release(str(call), ended_at)
            running.remove((ended_at, call))
        for _, call in running:
            if call in spans and spans[call][0] <= now:
                state.renew(str(call), now)
        state = limit_state_from_json(json.loads(json.dumps(state.to_json())))
        answer = state.request(limit, str(number), now, has_waited=has_waited)
        if answer.decision == "start":
            start = now + answer.delay_s
            spans[number] = (start, start + holds[number])
            running.append((spans[number][1], number))
        else:
            assert answer.delay_s > 0
            waiting.append((now + answer.delay_s, number, has_waited or answer.decision == "later"))
            waiting.sort()
    return [spans[number] for number in sorted(spans)]


@given(_LIMITS, st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), min_size=1, max_size=40))
def test_no_limit_is_exceeded_and_every_call_starts(limit: CallLimit, calls: list[tuple[float, float]]) -> None:
    spans = _simulate(limit, [at for at, _ in calls], [hold for _, hold in calls])
    assert len(spans) == len(calls)
    starts = sorted(start for start, _ in spans)
    if limit.rate is not None:
        for first in starts:
            count = sum(first <= start < first + limit.rate.period_s for start in starts)
            assert count <= 1.1 * limit.rate.count + 1
    if limit.concurrency is not None:
        for start in starts:
            assert sum(first <= start < last for first, last in spans) <= limit.concurrency
