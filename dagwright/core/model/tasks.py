"""Tasks, the scheduler's output, each a node or item to run; and references to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import MapBatch


class TaskRef(NamedTuple):
    """A node or one of its items, by position.

    A NamedTuple and not a frozen dataclass: a run creates one for each node, and a dataclass takes twice as long.

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
        ref: the node or item.
        arguments: JSON object, resolved except for stored values; see `dagwright.core.expressions.stored_values`.
        path: typed path for the idempotency key: `[["node", id]]`, followed by `["item", key]` for an item.
        chunk: for a large map, the batch of items for a child run, or the join of all results.
        slice: number of the batch of a region, or of the manual retry; 1 for the first.
        answers: answers to the questions that it asked while it ran: `{"request_id", "answer"}`, in order, with its
            `checkpoint` if it saved one.
        scope: scope of its idempotency key, if a fork reuses that of another run.
        child_snapshot: for a sub-plan in a fork, the snapshot of its run as JSON.
        compensated_task: for a run that compensates for another run, the task of that run.
    """

    id: str
    node: CompiledNode
    ref: TaskRef
    arguments: dict[str, Any]
    path: list[list[str]]
    slice: int = 1
    map_batch: MapBatch | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    scope: str | None = None
    child_snapshot: Any = None
    compensated_task: "Task | None" = None

    @property
    def is_run(self) -> bool:
        """Return whether a child run executes it: a sub-plan, or a batch of a large map."""
        return self.node.kind == "plan" or (self.map_batch is not None and self.map_batch.count > 0)

    @property
    def is_join(self) -> bool:
        """Return whether it joins the results of a large map."""
        return self.map_batch is not None and not self.map_batch.count

    @property
    def call_id(self) -> str:
        """The id of the call: the task id, with the suffix `#2` and so on for later batches and retries."""
        return call_id(self.id, self.slice)


def call_id(task_id: str, number: int) -> str:
    """Return the id of a call of a task, number 1 for the first."""
    return task_id if number == 1 else f"{task_id}#{number}"
