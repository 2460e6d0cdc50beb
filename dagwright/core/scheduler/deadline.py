"""How long a run may take: what it began with, or what somebody set since."""

import math
from dataclasses import dataclass, replace

from dagwright.core.model.errors import NodeError

_EARLY_S = 0.001
"""A timer may fire so much before the time that was worked out for it, as parts of seconds are rounded."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long a run may take, from the start of its first execution.

    Args:
        began_at: that start, in seconds since the epoch.
        limit_s: seconds from there; `None` is as long as it takes.
        whose: whom the error of a run over it names.
        what: which limit the error names.
    """

    began_at: float = 0.0
    limit_s: float | None = None
    whose: str = "the run"
    what: str = "its deadline"

    @property
    def at(self) -> float | None:
        """Until when the run may go on, in seconds since the epoch."""
        return None if self.limit_s is None else self.began_at + self.limit_s

    @property
    def error(self) -> NodeError:
        """Why a run has failed that took over it."""
        return NodeError("deadline_exceeded", f"{self.whose} took over {self.what}")

    def is_due(self, at: float) -> bool:
        """Tells whether the run may go on no longer."""
        return self.at is not None and at >= self.at - _EARLY_S

    def set_by(self, name: str | None, *, limit_s: float) -> "Deadline":
        """Returns the deadline that somebody gives the run instead.

        Args:
            name: who.
            limit_s: infinite is none any more.
        """
        what = f"its deadline of {limit_s:g} s, set by {name or 'somebody who gave no name'}"
        return replace(self, limit_s=None if math.isinf(limit_s) else limit_s, what=what)
