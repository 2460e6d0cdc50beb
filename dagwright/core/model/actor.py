"""Whose act it was that changed a run: in words, and in the lineage of a node."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class By:
    """Whose act it is.

    Args:
        name: who.
        reason: why.
        through: how it came: `update` or `signal`.
    """

    name: str | None = None
    reason: str | None = None
    through: str = "signal"

    def words(self, what: str) -> str:
        """Returns the act in words, such as `paused by ann: too early`."""
        by = f" by {self.name}" if self.name else ""
        return f"{what}{by}{f': {self.reason}' if self.reason else ''}"

    def step(self, what: str, at: float, **more: Any) -> dict[str, Any]:
        """Returns the act as it stands in the lineage of a node."""
        step = {"what": what, "by": self.name, "at": at, "through": self.through, "reason": self.reason, **more}
        return {name: value for name, value in step.items() if value is not None}


NOBODY = By()
