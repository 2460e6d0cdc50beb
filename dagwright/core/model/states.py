"""States of nodes and runs (docs/reference/states.md), and the record of a node in a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

from dagwright.core.model.errors import NodeError
from dagwright.core.model.lineage import NO_LINEAGE, CallLineage
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.usage import NO_USAGE, Usage

_JOIN_KEY = "all"
"""Key of the task that joins the results of a large map."""

STILL_OUTSIDE = "still running outside"
"""Reason of a cancelled node whose call did not end in time."""

ABANDONED = "the run continues without it"
"""Reason of a superseded sub-goal without a replacement: it only supported other sub-goals."""


class NodeStatus(StrEnum):
    """The state of a node, or of one item of a `for_each`."""

    PENDING = "pending"
    """A dependency has not ended."""
    READY = "ready"
    """It may start, and waits for a free slot."""
    RUNNING = "running"
    """Its call is in flight."""
    WAITING = "waiting"
    """It waits for a person, a worker, a rate limit or a paused tool; the reason is reported."""
    COMPLETED = "completed"
    """It has a result, which may be `partial`."""
    FAILED = "failed"
    """It has an error."""
    SKIPPED = "skipped"
    """Its `when` was false, its `for_each` was null, or a dependency was skipped."""
    BLOCKED = "blocked"
    """A dependency failed; `blocked_by` lists the failed nodes."""
    CANCELLED = "cancelled"
    """It was stopped, by a person or with the run."""
    SUPERSEDED = "superseded"
    """Another node replaces it; its edges and references lead to the new node."""

    @property
    def is_final(self) -> bool:
        """Return whether the state is final."""
        return self in _FINAL

    @property
    def has_ended(self) -> bool:
        """Return whether a node in this state has run to an end, with or without success."""
        return self in _ENDED

    @property
    def is_passed(self) -> bool:
        """Return whether the state is final and needs no action."""
        return self in _PASSED


_FINAL = frozenset(
    {
        NodeStatus.COMPLETED,
        NodeStatus.FAILED,
        NodeStatus.SKIPPED,
        NodeStatus.BLOCKED,
        NodeStatus.CANCELLED,
        NodeStatus.SUPERSEDED,
    }
)
_ENDED = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED})
_PASSED = frozenset({NodeStatus.COMPLETED, NodeStatus.SKIPPED, NodeStatus.SUPERSEDED})


class RunStatus(StrEnum):
    """The state of a whole run."""

    RUNNING = "running"
    """A node can still start or is in flight."""
    WAITING = "waiting"
    """Only people, paused tools or missing workers can make it continue."""
    COMPLETED = "completed"
    """Every node is completed, skipped or superseded."""
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    """A node failed, but a node that the `output` refers to, or without `output` one without dependents, completed."""
    FAILED = "failed"
    """No such node completed, the output cannot be resolved, a node failed under `fail_fast`, or the engine failed."""
    CANCELLED = "cancelled"
    """It was cancelled by the signal `cancel`, a command, or a cancel request of Temporal."""


class Phase(Enum):
    """Phase of a run as a whole; phases follow in this order, and some may be left out."""

    ACTIVE = auto()
    """No command has ended the run."""
    STOPPED = auto()
    """The run was cancelled or aborted: no new nodes start."""
    COMPENSATING = auto()
    """The run compensates for its effects, or has done so."""
    CLOSED = auto()
    """The run was stopped for good: effects without compensation remain."""

    @property
    def is_stopped(self) -> bool:
        """Return whether no new nodes start in this phase."""
        return self in (Phase.STOPPED, Phase.CLOSED)

    @property
    def is_compensated(self) -> bool:
        """Return whether the run's effects are compensated for, as far as possible."""
        return self in (Phase.COMPENSATING, Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Facts about the attempts of an outcome, as known to the driver.

    Args:
        count: attempts so far, 1 for the first; 0 if there was no attempt.
        started_at: start of the last attempt in seconds since the epoch, if known.
        tool_version: version of the tool that made the outcome.
        cached: for an outcome of an earlier call: `{"made_at", "run_id", "node_id"}` of that call.
        usage: model usage, as far as it was reported.
        agents: for a sub-plan, the part of the usage of each agent inside.
        lineage: files and URLs that the last attempt has reported; for a sub-plan, those of the whole run.
    """

    count: int = 1
    started_at: float | None = None
    tool_version: str = ""
    cached: Mapping[str, Any] | None = None
    usage: Usage = NO_USAGE
    agents: Mapping[str, Usage] = field(default_factory=dict)
    lineage: CallLineage = NO_LINEAGE


@dataclass(slots=True)
class Record:
    """Record of a node or of one of its items; times are seconds since the epoch.

    Args:
        blocked_by: ids of the failed nodes that block it, in plan order.
        cached: for a result of an earlier call: that call; see `Attempt`.
        reason: why a node waits, or why it was cancelled.
        message: message of a worker tool beside its outputs or its failure.
        reused: for a result that a fork reuses: the run and the node that made it.
        scope: scope of the idempotency key of its call, if a fork reuses that of another run.
        child_snapshot: if a child run has effects that can be compensated for, the snapshot of that run as JSON.
    """

    status: NodeStatus = NodeStatus.PENDING
    result: Any = None
    error: NodeError | None = None
    attempts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    blocked_by: tuple[str, ...] = ()
    partial: bool = False
    tool_version: str = ""
    cached: Mapping[str, Any] | None = None
    reason: str | None = None
    message: str | None = None
    reused: Mapping[str, Any] | None = None
    scope: str | None = None
    child_snapshot: Any = None
    items: "list[ItemRecord]" = field(default_factory=list)


@dataclass(slots=True)
class ItemRecord:
    """One item of a `for_each`: its key, the item and its record; or a batch of items."""

    key: str
    item: Any
    record: Record = field(default_factory=Record)
    map_batch: "MapBatch | None" = None


@dataclass(slots=True)
class MapBatch:
    """A map batch: consecutive items of a node; with no items it is the task that joins all results.

    Args:
        first: position of its first item.
        count: number of its items.
        items: the items, until they have ended.
        counts: state -> number of its items that ended in it.
        pieces: (reference, count) of the lists in the payload store with its results in order, if they are there.
        failed_key: key of its first item that failed.
    """

    first: int
    count: int
    items: Sequence[Any] = ()
    counts: dict[str, int] = field(default_factory=dict)
    pieces: Sequence[tuple[str, int]] = ()
    failed_key: str | None = None

    @property
    def key(self) -> str:
        """Its part of ids: the positions of its first and last item."""
        return f"{self.first}-{self.first + self.count - 1}" if self.count else _JOIN_KEY


def planned_version(record: Record, declared: ToolDeclaration | None) -> str | None:
    """Return the tool version that the plan was compiled with, if the call ran with another one; else `None`."""
    planned = declared.version if declared is not None else ""
    return planned if planned and record.tool_version and planned != record.tool_version else None
