"""How long a run has been busy: the time of a budget, which stands still while people are waited for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BusyTime:
    """Counts seconds of a run, but for those in which nothing runs and people are waited for, or it is paused.

    It has no clock: whoever looks says what time it is.

    Args:
        before_s: seconds until `since`.
        since: from when on it counts, in seconds since the epoch; `None` while it stands still.
    """

    before_s: float = 0.0
    since: float | None = None
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

    def rest(self, at: float) -> None:
        """Lets it stand still until something happens."""
        self.look(at)
        self.before_s, self.since = self.seconds, None

    def to_json(self) -> list[float | None]:
        """Returns it as it is carried on."""
        return [self.before_s, self.since]


def busy_time_from_json(encoded: Sequence[Any]) -> BusyTime:
    """Returns what `BusyTime.to_json` told.

    Raises:
        TypeError, ValueError: it is none.
    """
    before_s, since = encoded
    return BusyTime(float(before_s), None if since is None else float(since))
