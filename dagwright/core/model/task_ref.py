"""Reference to a task of a run: a node, or one item of a node with `for_each`."""

from typing import NamedTuple


class TaskRef(NamedTuple):
    """A node or one of its items, by position.

    A NamedTuple and not a frozen dataclass: a run creates one for each node, and a dataclass takes twice as long.

    Args:
        node: number of the node in the plan.
        item: position of the item; `None` is the node itself.
    """

    node: int
    item: int | None = None
