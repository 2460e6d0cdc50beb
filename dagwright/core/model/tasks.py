"""What the scheduler hands out: something to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import Chunk
from dagwright.core.model.task_ref import TaskRef


@dataclass(slots=True)
class Task:
    """Something to run: a node, or one item of a node with `for_each`; nobody changes it.

    Args:
        id: the node's id, or `id[key]`.
        node: the compiled node.
        ref: the node or item.
        arguments: JSON object, resolved as far as the values are here; see `dagwright.core.expressions.stored_values`.
        path: typed path for the idempotency key: `[["node", id]]`, with `["item", key]` behind it for an item.
        chunk: of a large map, the stretch of items that a run of its own has to do, or the joining of all results.
        slice: which of the calls that a region takes, or of the tries by hand, 1 for the first.
        answers: what people answered to what it asked while it ran: `{"request", "answer"}`, in order, with
            its `checkpoint` if it gave one.
        scope: of its idempotency key, where a fork keeps that of another run.
        below: of a sub-plan in a fork, the carry of its run as JSON.
        undoes: of a run that takes back what another one did, the task whose run that was.
    """

    id: str
    node: CompiledNode
    ref: TaskRef
    arguments: dict[str, Any]
    path: list[list[str]]
    slice: int = 1
    chunk: Chunk | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    scope: str | None = None
    below: Any = None
    undoes: "Task | None" = None

    @property
    def is_run(self) -> bool:
        """Tells whether a run of its own does it: a sub-plan, or a chunk of a large map."""
        return self.node.kind == "plan" or (self.chunk is not None and self.chunk.count > 0)

    @property
    def is_join(self) -> bool:
        """Tells whether it joins the results of a large map."""
        return self.chunk is not None and not self.chunk.count

    @property
    def call_id(self) -> str:
        """The id of the call: that of the task, with `#2` and so on behind it for the later slices and tries."""
        return call_id(self.id, self.slice)


def call_id(task_id: str, number: int) -> str:
    """Returns the id of a call of a task, 1 for the first."""
    return task_id if number == 1 else f"{task_id}#{number}"
