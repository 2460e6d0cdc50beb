"""Compute budget: the work that workflow code may do in one activation.

Code that takes more than about 2 s in one activation blocks the run forever. The work of conditions and queries is
therefore estimated before it is done. If it exceeds the limit, the node fails instead. The estimates depend only on
the sizes of values, and each activation has the full budget, so the result is the same at every replay.
"""

MAX_WORK = 1_500_000
"""Maximum work in one activation, in units of about half a microsecond."""
CHECK_BUDGET = MAX_WORK // 2
"""Maximum work in one activation to check nodes that a person adds to a run. The nodes are checked once before and once
after they are written to the history; each of the two checks has this budget."""

TOO_MUCH_AT_ONCE = "too many changes at once; try again in a moment"
"""Message for a command that is rejected because of other commands at the same time."""
_WORK_OF_REJECTION = MAX_WORK // 20


class ComputeBudgetExceeded(Exception):
    """An evaluation was rejected because it would take too long; the message has the reason."""


class ComputeBudget:
    """Work that the current activation of a run may still do.

    Args:
        limit: work in one activation.
    """

    def __init__(self, limit: int = MAX_WORK) -> None:
        self._time: float | None = None
        self._limit = limit
        self.remaining = limit

    def start(self, now: float) -> None:
        """Set the current time; at a new time the budget is full again."""
        if now != self._time:
            self._time, self.remaining = now, self._limit

    def require_half(self) -> None:
        """Check that half of the budget remains, so that the run can still progress in this activation.

        Raises:
            ComputeBudgetExceeded: less than half remains.
        """
        if self.remaining < self._limit // 2:
            raise ComputeBudgetExceeded(TOO_MUCH_AT_ONCE)

    def charge(self, work: int) -> None:
        """Subtract work that is already done. The remaining budget is at least 0."""
        self.remaining = max(0, self.remaining - work)

    def spend(self, work: int) -> None:
        """Subtract work before it is done.

        Raises:
            ComputeBudgetExceeded: the budget is not sufficient.
        """
        available_work = self.remaining
        self.remaining -= work
        if work > available_work:
            # The estimate costs time too, and thousands of nodes may repeat a rejected evaluation.
            self.remaining = max(0, available_work - _WORK_OF_REJECTION)
            raise ComputeBudgetExceeded(
                f"it reads too much: it needs about {work:,} units of work, but only {available_work:,} of "
                f"{self._limit:,} are left for this moment of the run; compute the value in a tool and read the result "
                "of the tool"
            )


class TooLargeForRun(ComputeBudgetExceeded):
    """A run needs a part of a stored value that is too large to project; the message names the part and a remedy."""

    def __init__(self, name: str, size_bytes: int | None) -> None:
        size = "" if size_bytes is None else f" has {size_bytes:,} bytes as JSON and"
        super().__init__(
            f"{name}{size} is in the payload store, where the run itself cannot read it; refer to a smaller part, or "
            "compute the value in a tool and read the result of the tool"
        )
