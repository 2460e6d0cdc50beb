"""Delays that services request: the failures that request a wait, and the limit of the total wait."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from dagwright.activities.service_waits import MAX_WAIT_S, RequestedWait, deferral_of, requested_wait, wait_state
from dagwright.tools import RetryLater

REQUESTED_BY = "429 from api.example.org"


def _status_error(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://api.example.org/v1?key=secret")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError("no luck", request=request, response=response)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_status_error(429, **{"Retry-After": "7"}), RequestedWait(REQUESTED_BY, timedelta(seconds=7))),
        (_status_error(503, **{"Retry-After": "7"}), RequestedWait("503 from api.example.org", timedelta(seconds=7))),
        (_status_error(429), None),
        (_status_error(500, **{"Retry-After": "7"}), None),
        (
            RetryLater("busy", timedelta(days=7), requested_by=REQUESTED_BY),
            RequestedWait(REQUESTED_BY, timedelta(days=1)),
        ),
        (RetryLater("busy", timedelta(seconds=7)), None),
        (RetryLater("busy", requested_by=REQUESTED_BY), None),
        (ConnectionError(), None),
    ],
)
def test_only_a_failure_with_a_delay_from_the_service_requests_a_wait(
    error: Exception, expected: RequestedWait | None
) -> None:
    assert requested_wait(error) == expected


def test_delay_grows_and_the_total_wait_is_limited() -> None:
    state: Any = None
    now_s, delays_s = 1_000.0, list[float]()
    while (
        wait := deferral_of(RequestedWait(REQUESTED_BY, timedelta(0)), name="get", earlier_state=state, now_s=now_s)
    ) is not None:
        delays_s.append(wait.delay.total_seconds())
        now_s, state = now_s + delays_s[-1], wait_state(wait.state)
    # Each delay is up to 10% longer than its minimum, at random.
    for min_delay_s, delay_s in zip((1, 2, 4, 8, 16, 32, 60), delays_s, strict=False):
        assert min_delay_s <= delay_s <= min_delay_s * 1.1 + 1e-6
    assert max(delays_s) <= 60 * 1.1 + 1e-6
    assert len(delays_s) < 1_700
    assert MAX_WAIT_S <= now_s - 1_000.0 < MAX_WAIT_S + 10
    five_seconds = RequestedWait(REQUESTED_BY, timedelta(seconds=5))
    first_deferral = deferral_of(five_seconds, name="get", earlier_state="?", now_s=0.0)
    assert str(first_deferral) == "get was asked to wait until 1970-01-01T00:00:05.000Z (429 from api.example.org)"
