"""How much time may be spent on looking for results of pure tools: a share of what their calls take.

Most pure calls take microseconds, and to work out a key or to ask the store would take longer than to call. A tool
shows by itself what it is: a call that took long earns time for looking, a result that was found earns all the time
that it saved, and each look costs what it took. So looking never makes a run slower by more than that share of its
slow calls. This module must not import workflows.
"""

SLOW_S = 0.005
"""What a call has to take for its result to be kept."""
_SHARE = 0.2
_FIRST_S = 0.001
"""Enough for a look or two, since a new process does not know which tools are slow."""
_MOST_S = 1.0


class LookBudget:
    """The seconds that each tool has left; safe across threads as long as a lost sum does no harm."""

    def __init__(self) -> None:
        self.left_s: dict[str, float] = {}
        """Tool -> seconds; of tools that are not here nothing is known yet."""

    def allows(self, tool: str) -> bool:
        """Tells whether it may be worth to look for a result of the tool."""
        return self.left_s.get(tool, _FIRST_S) > 0

    def looked(self, tool: str, took_s: float, *, saved_s: float = 0.0) -> None:
        """Takes note of a look, and of the time that the call took whose result it found."""
        self._add(tool, saved_s - took_s)

    def called(self, tool: str, took_s: float) -> None:
        """Takes note of a call."""
        if took_s > SLOW_S:
            self._add(tool, took_s * _SHARE)

    def _add(self, tool: str, seconds: float) -> None:
        self.left_s[tool] = min(self.left_s.get(tool, _FIRST_S) + seconds, _MOST_S)
