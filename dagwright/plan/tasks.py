"""What the scheduler hands out: something to run."""

from dataclasses import dataclass
from typing import Any

from dagwright.plan.compiled import CompiledNode
from dagwright.plan.states import Chunk


@dataclass(slots=True)
class Task:
    """Something to run: a node, or one item of a node with `for_each`; nobody changes it.

    Args:
        id: the node's id, or `id[key]`.
        node: the compiled node.
        number: the node's number.
        item: position of the item, `None` for a whole node.
        arguments: JSON object, resolved as far as the values are here; see `dagwright.plan.stored`.
        path: typed path for the idempotency key: `[["node", id]]`, with `["item", key]` behind it for an item.
        chunk: of a large map, the stretch of items that a run of its own has to do, or the joining of all results.
        slice: which of the calls that a region takes, 1 for the first.
    """

    id: str
    node: CompiledNode
    number: int
    item: int | None
    arguments: dict[str, Any]
    path: list[list[str]]
    slice: int = 1
    chunk: Chunk | None = None

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
        """The id of the call: that of the task, with `#2` and so on behind it for the later slices of a region."""
        return self.id if self.slice == 1 else f"{self.id}#{self.slice}"
