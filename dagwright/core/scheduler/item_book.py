"""The items of a run: the tasks that a node's items become, the ids of those tasks, and how many there may be.

A run takes the items of a `for_each` as tasks of its own, as long as they are few. It must not import the scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.expressions.resolution import Scope
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import StoredList, keys_of
from dagwright.core.model.states import ItemRecord, Record
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.scheduler import map_batches

OWN_ITEMS = 5_000
"""Items that one run takes as tasks of its own: to begin and to fail them all at one moment takes 0.2 s."""
RUN_ITEMS = 1_000_000
"""Items of one run, those that other runs do for it with them: some thousand chunks, which it keeps in memory."""
_WORK_OF_CHUNK = 40
"""In the units of the work budget."""


class ItemBook:
    """The items of one run.

    Args:
        plan: the plan.
        numbers: node id -> its number.
        max_in_flight: tasks of the run at once.
    """

    def __init__(self, plan: CompiledPlan, numbers: Mapping[str, int], *, max_in_flight: int) -> None:
        self._plan = plan
        self._numbers = numbers
        self.max_in_flight = max_in_flight
        self._refs: dict[str, TaskRef] = {}
        """Id of an item -> its reference."""
        self.node_refs: list[TaskRef | None] = [None] * len(numbers)
        """Number of a node -> its reference, created once and kept until the node has ended."""
        self._own = 0
        self._count = 0
        self.open: dict[int, int] = {}
        """Number of a node -> how many of its tasks have to end before it does."""

    def node(self, number: int) -> TaskRef:
        """Return the reference of a node."""
        ref = self.node_refs[number]
        if ref is None:
            ref = self.node_refs[number] = TaskRef(number)
        return ref

    def find(self, task_id: str) -> TaskRef | None:
        """Return the node or item of a task id."""
        if task_id in self._refs:
            return self._refs[task_id]
        number = self._numbers.get(task_id)
        return None if number is None else self.node(number)

    def ref(self, task_id: str) -> TaskRef:
        """Return the node or item of a task id.

        Raises:
            KeyError: there is no such node or item.
        """
        ref = self._refs.get(task_id)
        return self.node(self._numbers[task_id]) if ref is None else ref

    def width_of(self, number: int, count: int) -> map_batches.Width:
        """Returns how wide the chunks of a node run that has so many items."""
        node = self._plan.nodes[number]
        tool = self._plan.tools.get(node.tool)
        return map_batches.width_of(node, tool, count=count, max_in_flight=self.max_in_flight)

    def tasks_of(self, number: int, items: Sequence[Any], *, scope: Scope, asks: bool) -> list[ItemRecord] | NodeError:
        """Returns the tasks of a node, which are its items or chunks of them, or why it cannot have them.

        Args:
            asks: whether the items may ask people, so that no other run can do them.

        Raises:
            MissingData: a key leads nowhere.
            TooMuchWork: the keys would take too long.
        """
        node = self._plan.nodes[number]
        if self._count + len(items) > RUN_ITEMS:
            told = f"for_each has {len(items):,} items, and the run has {self._count:,} of other nodes"
            advice = "let sub-plans do some of it, which are runs of their own"
            return NodeError("too_large", f"{told}; at most {RUN_ITEMS:,} are allowed in sum: {advice}")
        if asks and self._own + len(items) > OWN_ITEMS:
            told = f"for_each has {len(items):,} items that may ask people, and the run has {self._own:,} other items"
            return NodeError("too_large", f"{told}; at most {OWN_ITEMS:,} are allowed in sum")
        is_cut = not asks and (len(items) > map_batches.CHUNK_ITEMS or self._own + len(items) > OWN_ITEMS)
        # Without a key they are named by their positions, which differ.
        keys = [] if is_cut and node.key is None else keys_of(node, items, scope=scope)
        problem = keys if isinstance(keys, NodeError) else self._problem(number, keys)
        if problem is not None or isinstance(keys, NodeError):
            return problem or []
        if not is_cut:
            return [ItemRecord(key, item) for key, item in zip(keys, items, strict=True)]
        if isinstance(items, StoredList):
            # What is told of all of it would be kept, and handed on, with every chunk.
            items = items.bare()
        cut = map_batches.chunks_of(items, self.width_of(number, len(items)))
        scope.budget.spend(_WORK_OF_CHUNK * len(cut))
        records = map_batches.records_of(cut)
        return self._problem(number, [record.key for record in records]) or records

    def _problem(self, number: int, keys: Sequence[str]) -> NodeError | None:
        """Returns why the tasks of a node cannot have these keys, if they cannot."""
        node_id = self._plan.nodes[number].id
        seen: set[str] = set()
        for key in keys:
            name = f"{node_id}[{key}]"
            if name in seen or name in self._refs or name in self._numbers:
                message = f"{name!r} names two items or nodes; the keys of {node_id!r} must differ from each other"
                return NodeError("duplicate_key", message)
            seen.add(name)
        return None

    def claim(self, number: int, record: Record) -> None:
        """Gives the tasks of a node their ids."""
        node_id = self._plan.nodes[number].id
        self._refs |= {f"{node_id}[{item.key}]": TaskRef(number, place) for place, item in enumerate(record.items)}
        self._own += 0 if map_batches.is_cut(record) else len(record.items)
        self._count += map_batches.count_of(record)
