"""State of one limit, and the answers to calls that want to start.

A call gets a start time if the start is at most `HORIZON_S` away. All later calls get only an estimate and request
again: a booked start cannot be used by another call, so the bookings of a cancelled run would block all other calls. A
start expires `LATE_S` after its time, because calls that are later than that could all start together. A call that
misses its start requests another start with a longer lead (minimum time until the start). If no other call has booked a
start since, the missed start is free again.

With a concurrency limit a call also needs a lease, which expires unless it is renewed. The queue for the next lease has
as many places as the limit has leases; the other calls get an estimate.
"""

import zlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from dagwright.core.model.call_limits import CallLimit
from dagwright.features.call_limits.day_use import DayUse, day_use_from_json, next_day
from dagwright.features.call_limits.hold import Hold
from dagwright.features.call_limits.schedule import Schedule

HORIZON_S = 1.0
"""Longest time between the answer to a call and its start."""
LATE_S = 0.25
"""Time for which a booked start stays valid."""
OVERTAKE_S = 0.2
"""A new call that can start within this time may overtake calls with an estimate, because these calls would come back
too late to use the start."""
_EARLY_S = 0.5
"""Calls request again this long before their estimated start, so that no start is lost if some calls are late."""
_MAX_EXACT_S = 20.0
"""Longest wait that is estimated exactly. For a longer wait, a call requests again after half of the wait, because
calls ahead may end without starting."""
_MIN_WAIT_S = 1.0
"""The server keeps a deferred call for at least this time."""
DAY_SPREAD_S = 60.0
"""Period after midnight over which the starts of calls that waited for a new daily budget are spread."""
LEASE_S = 30.0
"""Time after which the lease of a dead worker expires."""
PLACE_TIMEOUT_S = 15.0
"""Time for which a call keeps its place in the queue without requesting again."""
MAX_ESTIMATE_S = 300.0
_MIN_POLL_S, _MAX_POLL_S = 0.1, 2.0
_FIRST_LEASE_S = 1.0
_FIRST_TOKENS = 500.0
"""Estimates before the first call has ended: seconds of a call, and tokens of a call."""
_NEWEST_SHARE = 0.2
"""Share of the newest value in a moving average."""

Decision = Literal["start", "queue", "defer"]
RequestKind = Literal["call", "call_with_models", "model_call", "tokens"]
"""`call`: a tool. `call_with_models`: a tool that calls models. `model_call`: a model, which also uses tokens.
`tokens`: the tokens of a model call inside a call that has started."""


@dataclass(frozen=True, slots=True)
class LimitAnswer:
    """Answer to a call.

    Args:
        decision: `start`: start after the delay. `defer`: request again after the delay. `queue`: also request again
            after the delay, and the call keeps its place in the queue.
        delay_s: seconds.
        reason: part of the limit that the call waits for, such as `rate limit 20/s`; empty if the call does not wait.
        calls_ahead: estimated number of calls that start before this call.
    """

    decision: Decision
    delay_s: float = 0.0
    reason: str = ""
    calls_ahead: int = 0

    def to_json(self) -> list[Any]:
        return [self.decision, self.delay_s, self.reason, self.calls_ahead]


@dataclass(slots=True)
class Lease:
    """Permission of a call to run.

    Args:
        expires_at, started_at: seconds since the epoch.
    """

    expires_at: float
    started_at: float


@dataclass(frozen=True, slots=True)
class Booking:
    """The last booked start, which is cancelled if its call misses the start.

    Args:
        lead_s: lead of the request. If the call requests again with a longer lead, the call has missed the start.
        starts, tokens: `next_at` of the schedule with this name in `LimitState`, before and after the booking.
    """

    call: str
    lead_s: float
    starts: tuple[float, float]
    tokens: tuple[float, float]


@dataclass(slots=True)
class LimitState:
    """State of one limit. All times are seconds since the epoch.

    Args:
        starts, tokens: schedules of the rate and of the tokens.
        tail_at: estimated start of the last call that has an estimate.
        returned_tail_at: estimated start of the last call that came back and got another estimate. Such calls start
            before new calls.
        hold: hold after the service asked to wait.
        day_use: model usage of the current day.
        leases: call -> its lease.
        queue: call that waits for a lease -> time at which the call loses its place. First come, first served.
        mean_lease_s, tokens_per_call: moving averages of the seconds for which a call has its lease,
            and of the tokens of a call.
        booking: last booked start.
    """

    starts: Schedule = field(default_factory=Schedule)
    tokens: Schedule = field(default_factory=Schedule)
    tail_at: float = 0.0
    returned_tail_at: float = 0.0
    hold: Hold = field(default_factory=Hold)
    day_use: DayUse = field(default_factory=DayUse)
    leases: dict[str, Lease] = field(default_factory=dict)
    queue: dict[str, float] = field(default_factory=dict)
    mean_lease_s: float = _FIRST_LEASE_S
    tokens_per_call: float = _FIRST_TOKENS
    booking: Booking | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "day_use": self.day_use.to_json()}

    def request(
        self,
        limit: CallLimit,
        call: str,
        now: float,
        *,
        has_waited: bool = False,
        kind: RequestKind = "call",
        lead_s: float = 0.0,
    ) -> LimitAnswer:
        """Answer a call that wants to start.

        Args:
            call: id of the call, the same for each of its requests.
            has_waited: whether an earlier request of the call was answered with `defer`.
            kind: determines the parts of the limit that apply.
            lead_s: minimum seconds until the start; each start that the call receives too late makes the lead longer.
        """
        limit = _applicable_parts(limit, kind)
        self._expire(now)
        if self.booking is not None and self.booking.call == call and lead_s > self.booking.lead_s:
            self._cancel(self.booking)
        if call in self.leases:
            return self._start_again(limit, call, now, lead_s=lead_s)
        if (start_at := self.hold.book_start(now, has_waited=has_waited)) is not None:
            calls_ahead = round((start_at - max(now, self.hold.until)) / self.hold.interval_s)
            return LimitAnswer("defer", start_at - now, self.hold.reason, calls_ahead)
        if (
            limit.daily_budget is not None
            and (used_up_reason := self.day_use.used_up_reason(limit.daily_budget, now)) is not None
        ):
            return LimitAnswer("defer", _daily_budget_wait_s(call, now), used_up_reason)
        at, reason = self._earliest_start(limit, now + lead_s)
        # A new call waits behind the calls with an estimate, unless these calls start within the horizon.
        is_its_turn = has_waited or max(at, self.tail_at, self.returned_tail_at) - now <= HORIZON_S
        if limit.concurrency is not None:
            place = [*self.queue].index(call) if call in self.queue else len(self.queue)
            free_leases = limit.concurrency - len(self.leases)
            if place >= free_leases:
                return self._wait_for_lease(limit, call, place, now, is_its_turn=is_its_turn, has_waited=has_waited)
        wait_s = at - now - lead_s
        if wait_s <= (HORIZON_S if is_its_turn else OVERTAKE_S):
            if has_waited and limit.rate is None and limit.concurrency is None and self.hold.is_recent(now):
                at = self.hold.book_paced_start(at)
            self._start(limit, call, at, lead_s=lead_s)
            calls_ahead = round(wait_s / self._interval_s(limit)) if reason else 0
            return LimitAnswer("start", at - now, reason, calls_ahead)
        return self._estimate(at, reason, now, limit, has_waited=has_waited)

    def release(self, call: str, now: float) -> None:
        """End the lease of a call, or its place in the queue."""
        self.queue.pop(call, None)
        lease = self.leases.pop(call, None)
        if lease is not None:
            self.mean_lease_s = _average(self.mean_lease_s, max(0.0, now - lease.started_at))

    def renew(self, call: str, now: float) -> None:
        """Renew the lease of a call that runs, even if the lease has expired."""
        lease = self.leases.get(call)
        started_at = now if lease is None else lease.started_at
        self.leases[call] = Lease(max(now, started_at) + LEASE_S, started_at)

    def add_tokens(self, limit: CallLimit, tokens: float) -> None:
        """Replace the estimated tokens of a call in the schedule with the tokens that the call has used."""
        if limit.tokens_per_minute is not None:
            self.tokens.correct((tokens - self.tokens_per_call) * 60.0 / limit.tokens_per_minute)
        self.tokens_per_call = _average(self.tokens_per_call, tokens)

    def discard_bookings(self, now: float) -> None:
        """Discard bookings and estimates after a change of the limit."""
        for schedule in (self.starts, self.tokens):
            schedule.next_at = min(schedule.next_at, now)
        self.tail_at = self.returned_tail_at = min(self.tail_at, now)

    def waiting_count(self, limit: CallLimit, now: float) -> int:
        """Return the estimated number of calls that wait."""
        self._expire(now)
        booked_count = 0.0 if limit.rate is None else (self.starts.next_at - now) / limit.rate.interval_s
        tail_at = max(self.tail_at, self.returned_tail_at)
        estimated_count = (tail_at - max(now, self.starts.next_at)) / self._interval_s(limit)
        return len(self.queue) + max(0, int(booked_count)) + max(0, int(estimated_count)) + self.hold.booked_count(now)

    def _expire(self, now: float) -> None:
        for call in [call for call, lease in self.leases.items() if lease.expires_at <= now]:
            del self.leases[call]
        for call in [call for call, ends_at in self.queue.items() if ends_at <= now]:
            del self.queue[call]

    def _earliest_start(self, limit: CallLimit, now: float) -> tuple[float, str]:
        """Return the earliest start of a call, ignoring leases, and why the call cannot start now."""
        candidates = [(now, "")]
        if limit.tokens_per_minute is not None:
            candidates.append(
                (self.tokens.earliest_start(now, period_s=60.0), f"limit of {limit.tokens_per_minute:,} tokens/min")
            )
        if limit.rate is not None:
            candidates.append(
                (self.starts.earliest_start(now, period_s=limit.rate.period_s), f"rate limit {limit.rate}")
            )
        return max(candidates, key=lambda candidate: candidate[0])

    def _interval_s(self, limit: CallLimit) -> float:
        """Return the average seconds between two starts while calls wait."""
        intervals = [0.001]
        if limit.rate is not None:
            intervals.append(limit.rate.interval_s)
        if limit.concurrency is not None:
            intervals.append(self.mean_lease_s / limit.concurrency)
        if limit.tokens_per_minute is not None:
            intervals.append(self.tokens_per_call * 60.0 / limit.tokens_per_minute)
        return max(intervals)

    def _start(self, limit: CallLimit, call: str, at: float, *, lead_s: float) -> None:
        self.queue.pop(call, None)
        starts_at, tokens_at = self.starts.next_at, self.tokens.next_at
        if limit.rate is not None:
            self.starts.book(at, cost_s=limit.rate.interval_s)
        if limit.tokens_per_minute is not None:
            self.tokens.book(at, cost_s=self.tokens_per_call * 60.0 / limit.tokens_per_minute)
        starts, tokens = (starts_at, self.starts.next_at), (tokens_at, self.tokens.next_at)
        self.booking = Booking(call, lead_s, starts=starts, tokens=tokens)
        if limit.concurrency is not None:
            self.leases[call] = Lease(at + LEASE_S, at)

    def _cancel(self, booking: Booking) -> None:
        """Restore each schedule that has not changed since this booking."""
        for schedule, (next_before, next_after) in ((self.starts, booking.starts), (self.tokens, booking.tokens)):
            if schedule.next_at == next_after:
                schedule.next_at = next_before
        self.booking = None

    def _start_again(self, limit: CallLimit, call: str, now: float, *, lead_s: float) -> LimitAnswer:
        """Answer a call that has a lease: its last answer was lost or late, or the worker of its last attempt died."""
        started_at = self.leases[call].started_at
        if limit.rate is None or now <= started_at + LATE_S:
            self.renew(call, now)
            return LimitAnswer("start", max(0.0, started_at - now))
        at, reason = self._earliest_start(limit, now + lead_s)
        self._start(limit, call, at, lead_s=lead_s)
        return LimitAnswer("start", at - now, reason)

    def _wait_for_lease(
        self, limit: CallLimit, call: str, place: int, now: float, *, is_its_turn: bool, has_waited: bool
    ) -> LimitAnswer:
        assert limit.concurrency is not None
        reason = f"concurrency limit {limit.concurrency}"
        if call in self.queue or (is_its_turn and len(self.queue) < limit.concurrency):
            self.queue[call] = now + PLACE_TIMEOUT_S
            poll_s = min(max(self.mean_lease_s / limit.concurrency / 2, _MIN_POLL_S), _MAX_POLL_S)
            return LimitAnswer("queue", poll_s, reason, place)
        return self._estimate(now + (place + 1) * self._interval_s(limit), reason, now, limit, has_waited=has_waited)

    def _estimate(
        self, earliest_at: float, reason: str, now: float, limit: CallLimit, *, has_waited: bool
    ) -> LimitAnswer:
        """Return when a call requests again; calls that came back start before new calls."""
        at = max(earliest_at, self.returned_tail_at if has_waited else max(self.tail_at, self.returned_tail_at))
        interval_s = self._interval_s(limit)
        calls_ahead = max(0, round((at - now) / interval_s))
        if has_waited:
            self.returned_tail_at = at + interval_s
        else:
            self.tail_at = at + interval_s
        wait_s = max(_MIN_WAIT_S, at - now - _EARLY_S)
        # A long wait is halved, because calls ahead may end without starting, for example if their run is cancelled.
        delay_s = wait_s if wait_s <= _MAX_EXACT_S else min(wait_s / 2, MAX_ESTIMATE_S)
        return LimitAnswer("defer", delay_s, reason, calls_ahead)


def limit_state_from_json(encoded: dict[str, Any]) -> LimitState:
    """Decode `LimitState.to_json`."""
    values = dict(encoded)
    for name in ("starts", "tokens"):
        values[name] = Schedule(**values[name])
    values["day_use"] = day_use_from_json(values["day_use"])
    values["hold"] = Hold(**values["hold"])
    if (booking := values.get("booking")) is not None:
        pairs = {name: tuple(booking[name]) for name in ("starts", "tokens")}
        values["booking"] = Booking(**{**booking, **pairs})
    values["leases"] = {call: Lease(**lease) for call, lease in values["leases"].items()}
    return LimitState(**values)


def _applicable_parts(limit: CallLimit, kind: RequestKind) -> CallLimit:
    """Return the parts of a limit that apply to a request."""
    if kind == "tokens":
        return CallLimit(tokens_per_minute=limit.tokens_per_minute, daily_budget=limit.daily_budget)
    if kind == "model_call":
        return limit
    return replace(
        limit, tokens_per_minute=None, daily_budget=limit.daily_budget if kind == "call_with_models" else None
    )


def _daily_budget_wait_s(call: str, now: float) -> float:
    """Return the seconds after which a call requests again, if the budget of the day is used up.

    The wait is limited, because the budget may be raised at any time. After midnight, each call comes back at another
    time.
    """
    share = zlib.crc32(call.encode()) / 2**32
    wait_s = next_day(now) + share * DAY_SPREAD_S - now
    return wait_s if wait_s <= MAX_ESTIMATE_S + DAY_SPREAD_S else MAX_ESTIMATE_S


def _average(previous_average: float, newest_value: float) -> float:
    return (1 - _NEWEST_SHARE) * previous_average + _NEWEST_SHARE * newest_value
