"""Start times of calls after a hold. During a hold, all calls wait, because a service asked for a delay."""

from dagwright.features.call_limits.hold import Hold

NOW = 1_000.0
SERVICE = "429 from api.example.org"


def test_calls_start_one_after_another_after_the_hold() -> None:
    hold = Hold()
    assert hold.book_start(NOW, has_waited=False) is None
    hold.extend(NOW + 5, NOW, requested_by=SERVICE)
    assert hold.reason == "was asked to wait until 1970-01-01T00:16:45.000Z (429 from api.example.org)"
    starts = [hold.book_start(NOW + 1, has_waited=False) or 0.0 for _ in range(3)]
    assert [round(start - NOW, 1) for start in starts] == [5.0, 5.1, 5.2]
    assert hold.booked_count(NOW + 5) == 3
    # A call that asks again before its booked start gets another start. At its booked start, a call may start.
    assert hold.book_start(NOW + 4, has_waited=True) is not None
    assert hold.book_start(NOW + 5.1, has_waited=True) is None
    # A new call starts after the calls that have waited.
    assert hold.book_start(NOW + 5.1, has_waited=False) is not None
    assert hold.book_start(NOW + 6, has_waited=False) is None


def test_only_a_hold_soon_after_another_hold_doubles_the_start_interval() -> None:
    hold = Hold()
    hold.extend(NOW + 5, NOW, requested_by=SERVICE)
    hold.extend(NOW + 5.5, NOW + 1, requested_by=SERVICE)
    hold.extend(NOW + 3, NOW + 1, requested_by=SERVICE)
    assert (hold.until, hold.interval_s) == (NOW + 5.5, 0.1)
    hold.extend(NOW + 12, NOW + 6, requested_by=SERVICE)
    assert hold.interval_s == 0.2
    time_after_hold = hold.recent_until + 1
    hold.extend(time_after_hold + 5, time_after_hold, requested_by=SERVICE)
    assert hold.interval_s == 0.1
