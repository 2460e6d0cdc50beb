"""Joins: count the ended dependencies of a node and decide whether it starts, waits or is passed over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dagwright.core.model.compiled import CompiledNode, Join
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record


class Decision(Enum):
    """Decision of a join about a node."""

    WAIT = "wait"
    START = "start"
    PASS_OVER = "pass over"


@dataclass(slots=True)
class Wait:
    """Counters over the dependencies of one node.

    Args:
        remaining: dependencies that have not ended.
        is_early: the join may decide before the last dependency has ended.
        done: dependencies that count as done for `any` and `at_least`.
        skipped: dependencies that propagate a skip.
        failed: at least one dependency propagates a failure.
        blockers: ids of the failed nodes that caused it.
    """

    remaining: int
    is_early: bool = False
    done: int = 0
    skipped: int = 0
    failed: bool = False
    blockers: dict[str, None] = field(default_factory=dict)

    def count(self, node: CompiledNode, record: Record) -> None:
        """Count a dependency that has ended."""
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
        """Return the decision of a join for the current counts.

        `PASS_OVER` requires that all dependencies have ended, so that the decision does not depend on the order
        in which they end.
        """
        kind, required = join
        if kind in ("any", "at_least"):
            can_start = self.done >= (required or 1)
        else:
            can_start = not self.remaining and (kind == "all_done" or not (self.failed or self.skipped))
        if can_start:
            return Decision.START
        return Decision.WAIT if self.remaining else Decision.PASS_OVER


def why_blocked(wait: Wait, numbers: Mapping[str, int], records: Sequence[Record]) -> tuple[tuple[str, ...], NodeError]:
    """Return the ids of the nodes that block a node, in plan order, and the error of the blocked node.

    Args:
        numbers: node id -> its number. Nodes inside an offloaded region may be missing; they come last.
    """
    blockers = tuple(sorted(wait.blockers, key=lambda name: numbers.get(name, len(numbers))))
    known = [numbers.get(name) for name in blockers]
    cancelled = all(number is not None and records[number].status is NodeStatus.CANCELLED for number in known)
    verb = "was cancelled" if cancelled else "failed"
    return blockers, NodeError("dependency_failed", f"Waiting for dependency: {', '.join(blockers)} {verb}")
