"""Items of a run: their tasks, the ids of the tasks, and the limits on their number.

The items of a small `for_each` are tasks of the run itself; a large one is split into map batches. It must not import
the scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.expressions.reference_resolution import Scope
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import StoredList, keys_of
from dagwright.core.model.states import ItemRecord, Record
from dagwright.core.model.tasks import TaskRef
from dagwright.core.scheduler import map_batches

OWN_ITEMS = 5_000
"""Most items that are tasks of the run itself: starting and failing all of them in one activation takes 0.2 s."""
RUN_ITEMS = 1_000_000
"""Most items of one run, including those in child runs: some thousand batches, which the run keeps in memory."""
_WORK_OF_MAP_BATCH = 40
"""Cost of a batch in units of the compute budget."""


class ItemBook:
    """Items of one run.

    Args:
        numbers: node id -> its number.
        max_in_flight: tasks of the run in flight at most.
    """

    def __init__(self, plan: CompiledPlan, numbers: Mapping[str, int], *, max_in_flight: int) -> None:
        self._plan = plan
        self._numbers = numbers
        self.max_in_flight = max_in_flight
        self._refs: dict[str, TaskRef] = {}
        """Item id -> its reference."""
        self.node_refs: list[TaskRef | None] = [None] * len(numbers)
        """Node number -> its reference, created once and cached until the node has ended."""
        self._own = 0
        self._count = 0
        self.open: dict[int, int] = {}
        """Node number -> number of its tasks that have to end before the node ends."""

    def node(self, number: int) -> TaskRef:
        """Return the reference of a node."""
        ref = self.node_refs[number]
        if ref is None:
            ref = self.node_refs[number] = TaskRef(number)
        return ref

    def find(self, task_id: str) -> TaskRef | None:
        """Return the node or item of a task id, or `None`."""
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
        """Return the concurrency of the batches of a node with `count` items."""
        node = self._plan.nodes[number]
        tool = self._plan.tools.get(node.tool)
        return map_batches.width_of(node, tool, count=count, max_in_flight=self.max_in_flight)

    def tasks_of(
        self, number: int, items: Sequence[Any], *, scope: Scope, may_open_requests: bool
    ) -> list[ItemRecord] | NodeError:
        """Return the tasks of a node, which are its items or batches of them, or an error.

        Args:
            may_open_requests: whether the items may ask people, so that child runs cannot execute them.

        Raises:
            UnresolvedReference: a key cannot be resolved.
            ComputeBudgetExceeded: resolving the keys exceeds the compute budget.
        """
        node = self._plan.nodes[number]
        if self._count + len(items) > RUN_ITEMS:
            counts = f"for_each has {len(items):,} items, and other nodes of the run have {self._count:,}"
            hint = "move some of them into sub-plans, which are separate runs"
            return NodeError("too_large", f"{counts}; at most {RUN_ITEMS:,} are allowed in total: {hint}")
        if may_open_requests and self._own + len(items) > OWN_ITEMS:
            counts = f"for_each has {len(items):,} items that may ask people, and the run has {self._own:,} other items"
            return NodeError("too_large", f"{counts}; at most {OWN_ITEMS:,} are allowed in total")
        is_batched = not may_open_requests and (
            len(items) > map_batches.MAP_BATCH_ITEMS or self._own + len(items) > OWN_ITEMS
        )
        # Without `key` the positions are the keys, and positions are unique.
        keys = [] if is_batched and node.key is None else keys_of(node, items, scope=scope)
        problem = keys if isinstance(keys, NodeError) else self._problem(number, keys)
        if problem is not None or isinstance(keys, NodeError):
            return problem or []
        if not is_batched:
            return [ItemRecord(key, item) for key, item in zip(keys, items, strict=True)]
        if isinstance(items, StoredList):
            # Otherwise every batch would store and pass on the projections of the whole list.
            items = items.bare()
        batches = map_batches.map_batches_of(items, self.width_of(number, len(items)))
        scope.budget.spend(_WORK_OF_MAP_BATCH * len(batches))
        records = map_batches.records_of(batches)
        return self._problem(number, [record.key for record in records]) or records

    def _problem(self, number: int, keys: Sequence[str]) -> NodeError | None:
        """Return the error if a task id with one of these keys is not unique, else `None`."""
        node_id = self._plan.nodes[number].id
        used_keys: set[str] = set()
        for key in keys:
            name = f"{node_id}[{key}]"
            if name in used_keys or name in self._refs or name in self._numbers:
                message = f"{name!r} names two items or nodes; the keys of {node_id!r} must be unique"
                return NodeError("duplicate_key", message)
            used_keys.add(name)
        return None

    def claim(self, number: int, record: Record) -> None:
        """Register the ids of the tasks of a node, and count its items."""
        node_id = self._plan.nodes[number].id
        self._refs |= {f"{node_id}[{item.key}]": TaskRef(number, index) for index, item in enumerate(record.items)}
        self._own += 0 if map_batches.is_batched(record) else len(record.items)
        self._count += map_batches.count_of(record)
