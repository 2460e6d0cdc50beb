"""Busy time of a run, which a time budget limits. The time does not count while the run waits for people."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BusyTime:
    """Counter of seconds, paused while the run is idle: nothing runs, and it waits for people.

    The counter has no clock: the caller passes the time.

    Args:
        counted_s: seconds counted before `resumed_at`.
        resumed_at: time at which the counter last resumed, in seconds since the epoch; `None` while it is paused.
        idle_children: call ids of the idle child runs, in the order of their reports.
        is_idle: whether the run itself is idle.
        reported_is_idle: last value of `is_idle` that was reported to the parent run.
    """

    counted_s: float = 0.0
    resumed_at: float | None = None
    idle_children: dict[str, None] = field(default_factory=dict)
    is_idle: bool = False
    reported_is_idle: bool = False
    _now: float = field(default=0.0, init=False, compare=False)

    @property
    def seconds(self) -> float:
        """Seconds that the run was busy until `count_until` was last called."""
        return self.counted_s if self.resumed_at is None else self.counted_s + max(self._now - self.resumed_at, 0.0)

    def count_until(self, at: float) -> None:
        """Update the time of the last event, and resume the counter if the counter is paused."""
        self._now = at
        if self.resumed_at is None:
            self.resumed_at = at

    def pause_if_idle(self, at: float, *, is_idle: bool) -> None:
        """Count until now, and pause if the run is idle. Called when no more tasks can start."""
        self.count_until(at)
        self.is_idle = is_idle
        if is_idle:
            self.counted_s, self.resumed_at = self.seconds, None

    def set_idle(self, call: str, *, is_idle: bool) -> None:
        """Set whether a child run is idle."""
        self.idle_children.pop(call, None)
        if is_idle:
            self.idle_children[call] = None

    def to_json(self) -> dict[str, Any]:
        """Return the counter as JSON, without empty fields."""
        parts = {
            "before_s": self.counted_s or None,
            "since": self.resumed_at,
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
    resumed_at = encoded.get("since")
    return BusyTime(
        float(encoded.get("before_s", 0.0)),
        None if resumed_at is None else float(resumed_at),
        dict.fromkeys(encoded.get("idle_children", ())),
        bool(encoded.get("is_idle", False)),
        bool(encoded.get("reported", False)),
    )
