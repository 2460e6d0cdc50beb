"""Hold of a limit: calls wait after a service has asked to wait, and then start one after another.

During the hold, each call books a separate start after the hold, and *comes back* (requests to start again) at that
time. If the service asks to wait again, the interval between two starts doubles. Calls may come back late and all at
once, for example if no worker ran for a while. Therefore the starts of calls that come back keep the interval too.
"""

from dataclasses import dataclass

from dagwright.core.model.times import format_time

MAX_HOLD_S = 300.0
"""Longest hold after one response. Only the call that got the response may wait longer, if the service requests a
longer wait."""
RECENT_S = 30.0
"""Seconds after the last start that a hold has delayed, during which the hold counts as recent. If a new hold starts
while the previous hold is recent, the interval doubles."""
WAIT_REQUESTED_PHRASE = "was asked to wait until"
"""First words of the reason why calls wait during a hold."""
FIRST_INTERVAL_S = 0.1
_MAX_INTERVAL_S = 5.0
_MAX_PACED_S = 1.0
"""Longest wait on the worker of a call that has come back. For a longer wait, the server keeps the call."""


@dataclass(slots=True)
class Hold:
    """Hold of the calls of one limit. Times are seconds since the epoch.

    Args:
        until: no call starts before this time.
        requested_by: service that requested the hold, such as `429 from api.example.org`.
        next_at: earliest free start after the hold.
        interval_s: seconds between two starts after the hold.
        paced_at: earliest start of the next call that comes back after the hold.
    """

    until: float = 0.0
    requested_by: str = ""
    next_at: float = 0.0
    interval_s: float = FIRST_INTERVAL_S
    paced_at: float = 0.0

    @property
    def recent_until(self) -> float:
        """Time until which the hold is recent (see `RECENT_S`); afterwards it has no effect."""
        return max(self.until, self.next_at) + RECENT_S if self.until else 0.0

    @property
    def reason(self) -> str:
        """Reason why calls wait."""
        return f"{WAIT_REQUESTED_PHRASE} {format_time(self.until)} ({self.requested_by})"

    def extend(self, until: float, now: float, *, requested_by: str) -> None:
        """Extend the hold to `until`; an earlier time has no effect."""
        if until <= self.until:
            return
        if now >= self.until:
            is_repeated = now < self.recent_until
            self.interval_s = min(self.interval_s * 2, _MAX_INTERVAL_S) if is_repeated else FIRST_INTERVAL_S
        # A call whose booked start is now inside the hold requests a start again at that time, and gets a later one.
        self.until, self.requested_by, self.next_at = until, requested_by, until

    def book_start(self, now: float, *, has_waited: bool) -> float | None:
        """Book the start of a call; `None` if the call may start now or within a second.

        Args:
            has_waited: whether the call comes back at the time of an earlier booked start.
        """
        earliest_at = self.paced_at - _MAX_PACED_S if has_waited else self.next_at
        if now >= max(self.until, earliest_at):
            return None
        start_at = max(self.next_at, self.paced_at)
        self.next_at = start_at + self.interval_s
        return start_at

    def is_recent(self, now: float) -> bool:
        """Return whether calls that were held may still come back."""
        return now < self.recent_until

    def book_paced_start(self, at: float) -> float:
        """Book the start of a call that comes back after the hold.

        Args:
            at: earliest start that other limits allow.
        """
        start_at = max(at, self.paced_at)
        self.paced_at = start_at + self.interval_s
        return start_at

    def booked_count(self, now: float) -> int:
        """Return the number of booked starts in the future."""
        return max(0, round((self.next_at - max(now, self.until)) / self.interval_s))
