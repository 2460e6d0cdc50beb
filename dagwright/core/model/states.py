"""States of nodes and runs (docs/internals/states.md), and the record that a run keeps of a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

from dagwright.core.model.errors import NodeError
from dagwright.core.model.lineage import NOTHING, Seen
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.usage import NONE, Usage

_JOIN_KEY = "all"
"""Key of the task that joins the results of a large map."""

STILL_OUTSIDE = "still running outside"
"""Reason of a cancelled node whose call did not end in time."""

ABANDONED = "the run goes on without it"
"""Reason of a superseded sub-goal that nothing replaced: it was only to help."""


class NodeStatus(StrEnum):
    """The state of a node, or of one item of a `for_each`."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"

    @property
    def is_final(self) -> bool:
        """Tells whether a node in this state stays in it."""
        return self in _FINAL

    @property
    def has_ended(self) -> bool:
        """Tells whether a node in this state came to an end of its own, good or bad, and was not left out."""
        return self in _ENDED

    @property
    def is_passed(self) -> bool:
        """Tells whether a node in this state leaves nothing to be wished for."""
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
    WAITING = "waiting"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(Enum):
    """How far a run as a whole has come: from one of these to the next, some of them left out."""

    GOING = auto()
    """Nothing has ended it."""
    STOPPED = auto()
    """It was cancelled or aborted: nothing new starts any more."""
    UNDOING = auto()
    """It takes back what it did, or has done so."""
    CLOSED = auto()
    """It was stopped for good: what it has not taken back stands."""

    @property
    def is_stopped(self) -> bool:
        """Tells whether nothing new starts in this phase."""
        return self in (Phase.STOPPED, Phase.CLOSED)

    @property
    def is_given_up(self) -> bool:
        """Tells whether what the run did is taken back, as far as that goes."""
        return self in (Phase.UNDOING, Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a driver knows of the attempts behind an outcome.

    Args:
        count: attempts so far, 1 for the first; 0 if nothing was tried.
        started_at: seconds since the epoch at which the last attempt started, if it is known.
        tool_version: version of the tool that made the outcome.
        cached: of an outcome that an earlier call made: `{"made_at", "workflow_id", "node"}` of that call.
        usage: what was used of models, as far as it was told.
        agents: of a sub-plan, what of it each agent inside has used.
        seen: which files and addresses the last attempt told that it has read; of a sub-plan what it has in all.
    """

    count: int = 1
    started_at: float | None = None
    tool_version: str = ""
    cached: Mapping[str, Any] | None = None
    usage: Usage = NONE
    agents: Mapping[str, Usage] = field(default_factory=dict)
    seen: Seen = NOTHING


@dataclass(slots=True)
class Record:
    """What a run knows of a node or of one item of it; times are seconds since the epoch.

    Args:
        blocked_by: ids of the failed nodes that keep it from running, in plan order.
        cached: of a result that an earlier call made: which one; see `Attempt`.
        reason: what a waiting node waits for, or why it was cancelled.
        message: what a worker said beside its outputs, or beside its failure.
        reused: of a result that the run took over as a fork: the run and the node that made it.
        scope: of the idempotency key of its call, where a fork keeps that of another run.
        below: of what a run of its own did that can be taken back, the carry of that run as JSON.
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
    below: Any = None
    items: "list[ItemRecord]" = field(default_factory=list)


@dataclass(slots=True)
class ItemRecord:
    """One item of a `for_each`: its key, the item itself and what became of it; or many items, which are a chunk."""

    key: str
    item: Any
    record: Record = field(default_factory=Record)
    chunk: "Chunk | None" = None


@dataclass(slots=True)
class Chunk:
    """A stretch of the items of a node; with no items the task that joins the results of all of them.

    Args:
        first: position of its first item.
        count: how many items it has.
        items: the items, until they have ended.
        counts: state -> how many of its items ended so.
        pieces: (reference, count) of the lists in the payload store that are its results in order, if they are there.
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
        """What stands for it in ids: the positions of its first and last item."""
        return f"{self.first}-{self.first + self.count - 1}" if self.count else _JOIN_KEY


def planned_version(record: Record, declared: ToolDeclaration | None) -> str | None:
    """Return the tool version that the plan was compiled with, if the call ran with another one; else `None`."""
    planned = declared.version if declared is not None else ""
    return planned if planned and record.tool_version and planned != record.tool_version else None
