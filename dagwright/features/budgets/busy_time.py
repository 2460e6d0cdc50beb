"""Busy time of a run, which a time budget limits. The time does not count while the run waits for people."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BusyTime:
    """Counter of seconds, paused while the run is idle: nothing runs, and it waits for people.

    It has no clock: the caller passes the time.

    Args:
        before_s: seconds counted before `since`.
        since: time from which it counts, in seconds since the epoch; `None` while it is paused.
        idle_children: call ids of the idle child runs, in the order of their reports.
        is_idle: whether the run itself is idle.
        reported_is_idle: last value of `is_idle` that was reported to the parent run.
    """

    before_s: float = 0.0
    since: float | None = None
    idle_children: dict[str, None] = field(default_factory=dict)
    is_idle: bool = False
    reported_is_idle: bool = False
    _now: float = field(default=0.0, init=False, compare=False)

    @property
    def seconds(self) -> float:
        """Seconds that the run was busy until the last call of `count_until`."""
        return self.before_s if self.since is None else self.before_s + max(self._now - self.since, 0.0)

    def count_until(self, at: float) -> None:
        """Update the time of the last event, and start to count if it is paused."""
        self._now = at
        if self.since is None:
            self.since = at

    def pause_if_idle(self, at: float, *, is_idle: bool) -> None:
        """Count until a time at which no more tasks can start, and pause if the run is idle."""
        self.count_until(at)
        self.is_idle = is_idle
        if is_idle:
            self.before_s, self.since = self.seconds, None

    def set_idle(self, call: str, *, is_idle: bool) -> None:
        """Set whether a child run is idle."""
        self.idle_children.pop(call, None)
        if is_idle:
            self.idle_children[call] = None

    def to_json(self) -> dict[str, Any]:
        """Return the counter as JSON, without empty fields."""
        parts = {
            "before_s": self.before_s or None,
            "since": self.since,
            "idle_children": [*self.idle_children] or None,
            "is_idle": self.is_idle or None,
            "reported": self.reported_is_idle or None,
        }
        return {name: part for name, part in parts.items() if part is not None}


def busy_time_from_json(encoded: Mapping[str, Any]) -> BusyTime:
    """Decode the result of `BusyTime.to_json`.

    Raises:
        TypeError, ValueError, AttributeError: `encoded` has another form.
    """
    since = encoded.get("since")
    return BusyTime(
        float(encoded.get("before_s", 0.0)),
        None if since is None else float(since),
        dict.fromkeys(encoded.get("idle_children", ())),
        bool(encoded.get("is_idle", False)),
        bool(encoded.get("reported", False)),
    )
