"""Wait times that services request with status 429 or 503 and `Retry-After`.

An attempt that is asked to wait does not count (`dagwright.activities.deferral`). When `MAX_WAIT_S` have passed since
the first request to wait, further requests are ordinary failures. A response without a time to wait is also an
ordinary failure.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from dagwright.activities.errors import CallDeferred
from dagwright.core.boundary.limits import MAX_DELAY_S
from dagwright.core.model.times import format_time
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.tools.errors import RetryLater
from dagwright.tools.retry_after import cap_delay, requested_delay, requesting_service

MAX_WAIT_S = MAX_DELAY_S
"""Maximum time since the first request to wait; further requests then count as failed attempts."""
_MAX_BACKOFF_S = 60.0
"""Upper limit of the minimum delay, which doubles with each request to wait. A service may request a longer delay."""
_JITTER = 0.1
"""Maximum random extension as a share of the delay, so that not all calls continue at the same moment."""
_STATE_FIELD = "asked_to_wait"
_RANDOM = random.Random()


@dataclass(frozen=True, slots=True)
class RequestedWait:
    """Wait that a service requested.

    Args:
        service: status and host of the service, such as `429 from api.example.org`.
    """

    service: str
    delay: timedelta

    @property
    def host(self) -> str:
        """Return the host of the service."""
        return self.service.rpartition(" from ")[2]


def requested_wait(error: BaseException) -> RequestedWait | None:
    """Return the wait that a failure requests, if it requests one."""
    if isinstance(error, RetryLater | ModelFailure):
        service = error.requested_by
        delay = cap_delay(error.after) if isinstance(error, RetryLater) else error.delay
    elif isinstance(error, httpx.HTTPStatusError):
        service = requesting_service(error.response.status_code, error.response.request.url.host)
        delay = requested_delay(error.response.headers)
    else:
        return None
    return None if service is None or delay is None else RequestedWait(service, delay)


def deferral_of(wait: RequestedWait, *, name: str, earlier_state: Any, now_s: float) -> CallDeferred | None:
    """Return the deferral of an attempt that was asked to wait; `None` if the call has waited too long in total.

    Args:
        name: name of the tool or model, for the reason.
        earlier_state: state that the previous attempt left (`Heartbeats.deferred_state`).
    """
    previous_state = wait_state(earlier_state).get(_STATE_FIELD, {})
    first_request_at, request_count = previous_state.get("since", now_s), previous_state.get("times", 0)
    if now_s - first_request_at >= MAX_WAIT_S:
        return None
    min_delay_s = min(2.0 ** min(request_count, 10), _MAX_BACKOFF_S)
    delay_s = min(max(wait.delay.total_seconds(), min_delay_s), first_request_at + MAX_WAIT_S - now_s)
    reason = f"{name} was asked to wait until {format_time(now_s + delay_s)} ({wait.service})"
    state = {_STATE_FIELD: {"since": first_request_at, "times": request_count + 1}}
    return CallDeferred(reason, timedelta(seconds=delay_s * (1 + _JITTER * _RANDOM.random())), state=state)


def wait_state(earlier_state: Any) -> dict[str, Any]:
    """Return the fields of a deferred attempt's state that record requested waits.

    A deferral for another reason must keep these fields.
    """
    state = earlier_state.get(_STATE_FIELD) if isinstance(earlier_state, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(state.get(key), int | float) for key in ("since", "times")):
        return {}
    return {_STATE_FIELD: dict(state)}
