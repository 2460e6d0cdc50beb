"""The actor of a command: who changed a run, why, and through which channel."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Actor:
    """Author of a command.

    Args:
        name: name of the user; `None` if it is unknown.
        reason: reason that the user gave.
        source: channel of the command: `update` or `signal`.
    """

    name: str | None = None
    reason: str | None = None
    source: str = "signal"

    def describe(self, action: str) -> str:
        """Return a sentence about the command, such as `paused by ann: too early`."""
        author_text = f" by {self.name}" if self.name else ""
        return f"{action}{author_text}{f': {self.reason}' if self.reason else ''}"

    def command_entry(self, command: str, at: float, **details: Any) -> dict[str, Any]:
        """Return the entry about the command in the lineage of a node."""
        entry = {"command": command, "by": self.name, "at": at, "source": self.source, "reason": self.reason}
        return {name: value for name, value in (entry | details).items() if value is not None}


UNKNOWN_ACTOR = Actor()
