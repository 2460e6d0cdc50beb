"""How long a run has been busy: the time of a budget, which stands still while people are waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BusyTime:
    """Counts seconds of a run, but for those in which it rests: nothing runs, and people are waited for.

    It has no clock: whoever looks says what time it is.

    Args:
        before_s: seconds until `since`.
        since: from when on it counts, in seconds since the epoch; `None` while it stands still.
        resting: calls of the sub-plans that rest, in the order in which they said so.
        rests: whether the run itself does.
        told: what of that the run above knows.
    """

    before_s: float = 0.0
    since: float | None = None
    resting: dict[str, None] = field(default_factory=dict)
    rests: bool = False
    told: bool = False
    _now: float = field(default=0.0, init=False, compare=False)

    @property
    def seconds(self) -> float:
        """Returns how long the run had been busy when somebody looked last."""
        return self.before_s if self.since is None else self.before_s + max(self._now - self.since, 0.0)

    def look(self, at: float) -> None:
        """Takes note of the time, at which something happens: from here on it counts."""
        self._now = at
        if self.since is None:
            self.since = at

    def wait(self, at: float, *, rests: bool) -> None:
        """Takes note of the time at which nothing more can be done; if the run rests, it stands still from here on."""
        self.look(at)
        self.rests = rests
        if rests:
            self.before_s, self.since = self.seconds, None

    def take_told(self, call: str, *, rests: bool) -> None:
        """Takes what a sub-plan tells of itself."""
        self.resting.pop(call, None)
        if rests:
            self.resting[call] = None

    def to_json(self) -> dict[str, Any]:
        """Returns it as it is carried on, without what is empty."""
        parts = {
            "before_s": self.before_s or None,
            "since": self.since,
            "resting": [*self.resting] or None,
            "rests": self.rests or None,
            "told": self.told or None,
        }
        return {name: part for name, part in parts.items() if part is not None}


def busy_time_from_json(encoded: Mapping[str, Any]) -> BusyTime:
    """Returns what `BusyTime.to_json` told.

    Raises:
        TypeError, ValueError, AttributeError: it is none.
    """
    since = encoded.get("since")
    return BusyTime(
        float(encoded.get("before_s", 0.0)),
        None if since is None else float(since),
        dict.fromkeys(encoded.get("resting", ())),
        bool(encoded.get("rests", False)),
        bool(encoded.get("told", False)),
    )
