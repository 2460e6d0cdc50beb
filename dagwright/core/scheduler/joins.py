"""What a node waits for, and when its join lets it start or gives it up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dagwright.core.model.compiled import CompiledNode, Join
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record


class Decision(Enum):
    """What a join says of a node."""

    WAIT = "wait"
    START = "start"
    PASS_OVER = "pass over"


@dataclass(slots=True)
class Wait:
    """What one node still waits for: counters over its dependencies.

    Args:
        remaining: dependencies that have not ended.
        is_early: a decision may come before the last of them has ended.
        done: dependencies that count as done for `any` and `at_least`.
        skipped: dependencies that pass their skip on.
        failed: one of them passes a failure on.
        blockers: ids of the failed nodes behind it.
    """

    remaining: int
    is_early: bool = False
    done: int = 0
    skipped: int = 0
    failed: bool = False
    blockers: dict[str, None] = field(default_factory=dict)

    def count(self, node: CompiledNode, record: Record) -> None:
        """Takes the end of a dependency."""
        self.remaining -= 1
        if record.status is NodeStatus.COMPLETED:
            self.done += 1
        elif record.status is NodeStatus.SKIPPED:
            self.done += 1
            self.skipped += 1
        elif record.status is NodeStatus.FAILED and node.on_error == "skip":
            self.skipped += 1
        else:
            self.failed = True
            self.blockers.update(dict.fromkeys(record.blocked_by or (node.id,)))

    def decide(self, join: Join) -> Decision:
        """Returns what a join says now.

        A decision other than to start waits for the last dependency that it could hang on, so that it is the
        same for every order in which the dependencies end.
        """
        kind, wanted = join
        if kind in ("any", "at_least"):
            is_wanted = self.done >= (wanted or 1)
        else:
            is_wanted = not self.remaining and (kind == "all_done" or not (self.failed or self.skipped))
        if is_wanted:
            return Decision.START
        return Decision.WAIT if self.remaining else Decision.PASS_OVER


def why_blocked(wait: Wait, numbers: Mapping[str, int], records: Sequence[Record]) -> tuple[tuple[str, ...], NodeError]:
    """Returns the ids of the nodes behind one that is given up, in plan order, and its error.

    Args:
        numbers: node id -> its number; one inside of a region may not be known, and such ones come last.
    """
    blockers = tuple(sorted(wait.blockers, key=lambda name: numbers.get(name, len(numbers))))
    known = [numbers.get(name) for name in blockers]
    cancelled = all(number is not None and records[number].status is NodeStatus.CANCELLED for number in known)
    verb = "was cancelled" if cancelled else "failed"
    return blockers, NodeError("dependency_failed", f"Waiting for dependency: {', '.join(blockers)} {verb}")
