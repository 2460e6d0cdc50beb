"""Records of a run: states of nodes and runs (docs/reference/states.md), model usage, and tasks.

A record has the state of a node and of its items. Usage is summed per node and per agent. The scheduler returns a task
for each node or item to run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from dagwright.core.model.lineage import NO_LINEAGE, LineageEntries

if TYPE_CHECKING:
    from dagwright.core.model.compiled import CompiledNode
    from dagwright.core.model.tools import ToolDeclaration


class Usage(BaseModel):
    """Tokens, calls and money; all zero by default.

    Unknown costs never count as zero: `unpriced_calls` and `uncounted_calls` are the numbers of calls without a known
    cost, and `cost` is `None` if one of them is not 0.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    calls: int = Field(default=0, ge=0)
    """Calls that a model has answered, including unusable answers."""
    prompt_tokens: int = Field(default=0, ge=0)
    """Input tokens, including cached tokens."""
    completion_tokens: int = Field(default=0, ge=0)
    """Output tokens, including reasoning tokens."""
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    money: Decimal = Field(default=Decimal(0), ge=0)
    """Cost of the calls with a known price, in the currency of the price table."""
    unpriced_calls: int = Field(default=0, ge=0)
    """Calls of models that are not in the price table."""
    uncounted_calls: int = Field(default=0, ge=0)
    """Calls whose response had no token counts."""

    @property
    def tokens(self) -> int:
        """All tokens, input and output."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> Decimal | None:
        """The cost if all of it is known, else `None`."""
        return None if self.unpriced_calls or self.uncounted_calls else self.money

    @property
    def is_nonzero(self) -> bool:
        """Whether anything was used."""
        return any(getattr(self, name) for name in Usage.model_fields)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference to another usage; each field is at least 0."""
        return Usage(**{name: max(getattr(self, name) - getattr(other, name), 0) for name in Usage.model_fields})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form. Money is a text, so that no reader rounds it."""
        return self.model_dump(mode="json")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form for documents, with the sum of tokens; `cost` is null if a part of it is unknown."""
        return {**self.to_json(), "tokens": self.tokens, "cost": None if self.cost is None else str(self.cost)}


NO_USAGE = Usage()
"""Nothing used."""


def usage_from_json(encoded: Any) -> Usage:
    """Parse the JSON form of a usage.

    Raises:
        ValueError: the form is invalid.
    """
    return Usage.model_validate(encoded)


def usages_to_json(usages: Mapping[str, Usage]) -> dict[str, Any]:
    """Return usages by name as JSON."""
    return {name: usage.to_json() for name, usage in usages.items()}


def usages_from_json(encoded: Any) -> dict[str, Usage]:
    """Parse the result of `usages_to_json`.

    Raises:
        ValueError: the form is invalid.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError("usages by name must be an object")
    return {str(name): usage_from_json(usage) for name, usage in encoded.items()}


@dataclass(slots=True)
class RunUsage:
    """Usage of a run and its child runs. Nodes without usage have no entry.

    Args:
        total: usage of the whole run.
        tasks: id of a node or item -> usage of all its attempts; for a node with items, the usage of the items.
        agents: name of an agent -> usage of its nodes.
    """

    total: Usage = NO_USAGE
    tasks: dict[str, Usage] = field(default_factory=dict)
    agents: dict[str, Usage] = field(default_factory=dict)

    def add(self, usage: Usage, *, tasks: Sequence[str], agents: Mapping[str, Usage]) -> None:
        """Add a usage.

        Args:
            tasks: id of the node or item; for an item also the id of its node.
            agents: name of an agent -> its part of the usage.
        """
        self.total += usage
        for task_id in tasks:
            self.tasks[task_id] = self.tasks.get(task_id, NO_USAGE) + usage
        for name, part in agents.items():
            self.agents[name] = self.agents.get(name, NO_USAGE) + part

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for the state of the run; empty if nothing was used."""
        if not self.total.is_nonzero:
            return {}
        parts = {"tasks": usages_to_json(self.tasks), "agents": usages_to_json(self.agents)}
        return {"total": self.total.to_json(), **parts}

    def to_document(self) -> dict[str, Any]:
        """Return the total and the usage of each agent as documents show them; empty if nothing was used."""
        if not self.total.is_nonzero:
            return {}
        agents = {"agents": {name: usage.to_document() for name, usage in self.agents.items()}} if self.agents else {}
        return {**self.total.to_document(), **agents}


def run_usage_from_json(encoded: Any) -> RunUsage:
    """Parse the result of `RunUsage.to_json`.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: the form is invalid.
    """
    if not encoded:
        return RunUsage()
    total = usage_from_json(encoded["total"])
    return RunUsage(total, usages_from_json(encoded["tasks"]), usages_from_json(encoded["agents"]))


_JOIN_KEY = "all"
"""Key of the task that joins the results of a large map."""

STILL_RUNNING_OUTSIDE = "still running outside"
"""Reason of a cancelled node whose call did not end in time."""

ABANDONED = "the run continues without it"
"""Reason of a sub-goal that was superseded without a replacement, because the sub-goal only supported other
sub-goals."""


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
    """Another node replaces it and receives its edges and references, or the run continues without it."""

    @property
    def is_final(self) -> bool:
        """Return whether the state is final."""
        return self in _FINAL

    @property
    def has_run(self) -> bool:
        """Return whether a node in this state has run, with or without success."""
        return self in _EXECUTED

    @property
    def counts_as_completed(self) -> bool:
        """Return whether the node counts as completed. A run is `completed` if all its nodes count as completed."""
        return self in _COUNTED_AS_COMPLETED


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
_EXECUTED = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED})
_COUNTED_AS_COMPLETED = frozenset({NodeStatus.COMPLETED, NodeStatus.SKIPPED, NodeStatus.SUPERSEDED})


class RunStatus(StrEnum):
    """The state of a whole run."""

    RUNNING = "running"
    """A node can still start or is in flight."""
    WAITING = "waiting"
    """It continues only after a person answers, a paused tool is resumed, or a missing worker starts."""
    COMPLETED = "completed"
    """Every node is completed, skipped or superseded."""
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    """A node failed, but a final node completed. Final nodes are the nodes in the references of `output`; without
    `output`, the nodes without dependents."""
    FAILED = "failed"
    """No final node completed, the output cannot be resolved, a node failed under `fail_fast`, the effects of the
    run were compensated, or the engine failed."""
    CANCELLED = "cancelled"
    """It was cancelled by the signal `cancel`, a command, or a cancel request of Temporal."""


class Phase(Enum):
    """Phase of a run as a whole. The phases occur in this order; a run may skip some of them."""

    ACTIVE = auto()
    """No command has ended the run."""
    STOPPED = auto()
    """The run was cancelled or aborted: no new nodes start."""
    COMPENSATING = auto()
    """The run compensates for its effects, or has done so."""
    CLOSED = auto()
    """No compensation can start or continue; effects that were not compensated remain."""

    @property
    def is_stopped(self) -> bool:
        """Return whether no new nodes start in this phase."""
        return self in (Phase.STOPPED, Phase.CLOSED)

    @property
    def forbids_compensation(self) -> bool:
        """Return whether compensation can no longer start."""
        return self in (Phase.COMPENSATING, Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class NodeError:
    """Why a node did not complete: `{"code", "message", "retryable"}`.

    Args:
        ref: reference of the whole text in the payload store, if the message is cut.
    """

    code: str
    message: str
    retryable: bool = False
    ref: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the error as in a node of the result document; `ref` only if there is one."""
        encoded = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return encoded if self.ref is None else {**encoded, "ref": self.ref}


@dataclass(frozen=True, slots=True)
class Attempt:
    """Last attempt of a call and the number of attempts, as far as the driver of the scheduler knows them.

    Args:
        count: number of attempts so far; 0 if there was no attempt.
        started_at: start of the last attempt in seconds since the epoch, if known.
        tool_version: version of the tool that made the outcome.
        cached: `{"made_at", "run_id", "node_id"}` of the earlier call whose outcome was reused, if any.
        usage: model usage, as far as it was reported.
        agents: for a sub-plan, name of an agent -> its part of the usage.
        lineage: files and URLs that the last attempt has reported; for a sub-plan, those of the whole child run.
    """

    count: int = 1
    started_at: float | None = None
    tool_version: str = ""
    cached: Mapping[str, Any] | None = None
    usage: Usage = NO_USAGE
    agents: Mapping[str, Usage] = field(default_factory=dict)
    lineage: LineageEntries = NO_LINEAGE


@dataclass(slots=True)
class Record:
    """Record of a node or item. Times are seconds since the epoch.

    Args:
        blocked_by: ids of the failed nodes that block it, in plan order.
        cached: the earlier call whose result was taken from the cache, if any; see `Attempt`.
        reason: why a node waits, or why it was cancelled.
        message: text that a worker tool returned in addition to its outputs or its failure.
        reused: in a fork, the run and the node that produced a reused result.
        scope: scope of the idempotency key of its call, if a fork reuses the key of another run.
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
    """One item of a `for_each` with its key and record, or a batch of items."""

    key: str
    item: Any
    record: Record = field(default_factory=Record)
    map_batch: "MapBatch | None" = None


@dataclass(slots=True)
class MapBatch:
    """Consecutive items of a node; `count` 0 marks the task that joins all results.

    Args:
        first: position of its first item.
        count: number of its items.
        items: the items, until they have ended.
        counts: state -> number of items that ended in this state.
        pieces: (reference, count) of each list in the payload store with results of the items, in order; empty if the
            results are not in the store.
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
        """Key of the batch in ids: the positions of the first and last item, or `all` for the join."""
        return f"{self.first}-{self.first + self.count - 1}" if self.count else _JOIN_KEY


def planned_version(record: Record, tool: "ToolDeclaration | None") -> str | None:
    """Return the tool version with which the plan was compiled, if the call ran with another version; else `None`."""
    version = tool.version if tool is not None else ""
    return version if version and record.tool_version and version != record.tool_version else None


class TaskRef(NamedTuple):
    """A node or one of its items, by position.

    A NamedTuple, because a run creates one for each node, and creating a frozen dataclass takes twice as long.

    Args:
        node: number of the node in the plan.
        item: position of the item; `None` is the node itself.
    """

    node: int
    item: int | None = None


@dataclass(slots=True)
class Task:
    """A node, or one item of a node with `for_each`, to run; treated as immutable.

    Args:
        id: the node's id, or `id[key]`.
        node: the compiled node.
        ref: position of the node or item.
        arguments: JSON object, resolved except for stored values; see `dagwright.core.expressions.stored_values`.
        path: typed path for the idempotency key: `[["node", id]]`, followed by `["item", key]` for an item.
        call_number: 1 for the first call of the task; 2 and so on for manual retries and later batches of a region.
        map_batch: for a large map, the batch of items for a child run, or the join of all results.
        answers: answers to the questions that the task asked while it ran: `{"request_id", "answer"}`, in order, with
            the `checkpoint` if the task saved one.
        scope: scope of the idempotency key of the task, if a fork reuses the key of another run.
        child_snapshot: for a sub-plan in a fork, the snapshot of the child run as JSON.
        compensated_task: for a compensation task that is a child run, the task whose effects it undoes.
    """

    id: str
    node: "CompiledNode"
    ref: TaskRef
    arguments: dict[str, Any]
    path: list[list[str]]
    call_number: int = 1
    map_batch: MapBatch | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    scope: str | None = None
    child_snapshot: Any = None
    compensated_task: "Task | None" = None

    @property
    def is_child_run(self) -> bool:
        """Whether a child run executes the task: a sub-plan, or a batch of a large map."""
        return self.node.kind == "plan" or (self.map_batch is not None and self.map_batch.count > 0)

    @property
    def is_join(self) -> bool:
        """Whether the task joins the results of a large map."""
        return self.map_batch is not None and not self.map_batch.count

    @property
    def call_id(self) -> str:
        """The id of the call: the task id, with the suffix `#2` and so on for later batches and retries."""
        return call_id(self.id, self.call_number)


def call_id(task_id: str, number: int) -> str:
    """Return the id of a call of a task, number 1 for the first."""
    return task_id if number == 1 else f"{task_id}#{number}"


ONE_ATTEMPT = Attempt()
"""Default if the driver of the scheduler knows nothing about the attempts."""


NO_ATTEMPT = Attempt(0)
"""For a call that ended before its first attempt."""
