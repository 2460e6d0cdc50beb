"""Schedule of starts at a limited rate, after the generic cell rate algorithm (GCRA, ITU-T I.371).

The schedule is one number, the theoretical time of the next start. A start may be up to a tenth of the period early,
so at most 10 % more calls than the rate start in any period.
"""

from dataclasses import dataclass

EARLY_SHARE = 0.1
"""Share of the period by which starts may be early."""


@dataclass(slots=True)
class Schedule:
    """Schedule of one rate.

    Args:
        next_at: theoretical time of the next start, in seconds since the epoch.
    """

    next_at: float = 0.0

    def earliest_start(self, now: float, *, period_s: float) -> float:
        """Return the earliest time of another start."""
        return max(now, self.next_at - EARLY_SHARE * period_s)

    def book(self, at: float, *, cost_s: float) -> None:
        """Book a start.

        Args:
            at: time of the start, a result of `earliest_start`.
            cost_s: time that the start takes up at the rate.
        """
        self.next_at = max(self.next_at, at) + cost_s

    def correct(self, difference_s: float) -> None:
        """Correct the cost of an earlier start.

        Args:
            difference_s: correct cost minus booked cost; may be negative.
        """
        self.next_at += difference_s
