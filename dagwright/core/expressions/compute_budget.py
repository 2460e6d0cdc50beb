"""How much a run may work out at one moment.

A workflow has about 2 s for everything that it does at one moment, or it is stuck for ever. The work of conditions
and queries is therefore estimated before it is done, and what goes beyond the limit fails its node instead. The
estimates come from the sizes of values and from the time that the driver tells, so they are the same at every replay.
"""

MAX_WORK = 1_500_000
"""Work at one moment, in units of about half a microsecond."""

TOO_MUCH_AT_ONCE = "too much was changed at this moment; try again in a moment"
"""What a person is told whose act is refused because of others."""
_WORK_OF_REFUSAL = MAX_WORK // 20


class TooMuchWork(Exception):
    """Something was not worked out, because it would take too long; the message says why."""


class WorkBudget:
    """The work that is left for this moment of a run.

    Args:
        limit: how much there is at each moment.
    """

    def __init__(self, limit: int = MAX_WORK) -> None:
        self._moment: float | None = None
        self._limit = limit
        self.left = limit

    def start(self, at: float) -> None:
        """Tells what time it is; with a new moment the whole budget is there again."""
        if at != self._moment:
            self._moment, self.left = at, self._limit

    def leave_half(self) -> None:
        """Keeps half of the work of this moment for what has to move on in it.

        Raises:
            TooMuchWork: less is left.
        """
        if self.left < self._limit // 2:
            raise TooMuchWork(TOO_MUCH_AT_ONCE)

    def charge(self, work: int) -> None:
        """Takes work off the budget that was done whatever it took."""
        self.left = max(0, self.left - work)

    def spend(self, work: int) -> None:
        """Takes work off the budget.

        Raises:
            TooMuchWork: that much is not left.
        """
        left, self.left = self.left, self.left - work
        if work > left:
            # To estimate was work as well, and whatever is refused may be asked by thousands of nodes.
            self.left = max(0, left - _WORK_OF_REFUSAL)
            raise TooMuchWork(
                f"it reads too much: about {work:,} units of work, and {left:,} of {self._limit:,} are left for this "
                "moment of the run; let a tool work it out and read its result"
            )
