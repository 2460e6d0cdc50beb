"""The nodes inside of large regions, which a run itself does not hold: read from the payload store, for who looks.

What its slices have told lies there as soon as the run has heard of a slice. So it works while the region runs, with no
worker alive, and after the run has closed, as long as the store keeps what the run put there.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pydantic_core

from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.region_members import InnerState, offloaded_regions
from dagwright.features.regions.offloaded_batches import told_end
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.documents import written_node
from dagwright.store import PayloadStore, StoreError, StoreUnavailable

_SLICES_KEPT = 4
"""Slices in memory while all nodes are gone through: some megabytes each. Slices tell nodes in the order of their
numbers but for a few, so more would be of no use."""

INSIDE_UNREADABLE = "inside_unreadable"
"""Code of the note that the nodes inside of large regions cannot be told."""


@dataclass(frozen=True, slots=True)
class InnerNode:
    """A node inside of a region.

    Args:
        document: as a result document has it, but values in the store are a `StoredValue`.
        is_end: whether nothing waits for it.
    """

    id: str
    document: dict[str, Any]
    is_end: bool


def unreadable_note(error: StoreError) -> dict[str, Any]:
    """Returns the note that the nodes inside of large regions cannot be told."""
    is_passing = isinstance(error, StoreUnavailable)
    advice = "try again later" if is_passing else "the run itself knows only how many are in which state"
    message = f"the nodes inside of large regions of pure nodes cannot be told: {error}; {advice}"
    return {"code": INSIDE_UNREADABLE, "node_id": None, "message": message}


class Insides:
    """The nodes inside of the large regions of one run, as far as it is known here.

    Each method raises `PayloadMissing` or `PayloadDamaged` if the store does not have them any more, and
    `StoreUnavailable` if it cannot be asked now.

    Args:
        scheduler: of the run; projected. `None` while its plan is not known.
        store: where its regions lie.
    """

    def __init__(self, scheduler: RunScheduler | None, store: PayloadStore) -> None:
        self._regions: list[_Inside] = []
        held: list[str] = []
        if scheduler is not None:
            for number, region in offloaded_regions(scheduler.plan):
                self._regions.append(_Inside(scheduler, number, store))
                held += [scheduler.plan.nodes[member].id for member in region.members]
        self.held = frozenset(held)
        """Ids of those that the run holds as well, because something outside needs them."""
        self.count = sum(region.count for region in self._regions)

    def __bool__(self) -> bool:
        return bool(self._regions)

    async def find(self, node_id: str) -> InnerNode | None:
        """Returns a node, or `None` if there is none of that id inside of a region."""
        for region in self._regions:
            found = await region.find(node_id)
            if found is not None:
                return found
        return None

    async def nodes(self) -> AsyncIterator[InnerNode]:
        """Yields all nodes, region by region, each region in an order in which its nodes can run.

        Complexity: O(V + E) of what is read; in memory are the ids, four bytes for each node and some pages.
        """
        for region in self._regions:
            async for node in region.nodes():
                yield node

    async def edges(self) -> AsyncIterator[tuple[str, str]]:
        """Yields every edge that leads into a node inside of a region, from the node that is needed to the other."""
        for region in self._regions:
            async for edge in region.edges():
                yield edge

    async def failed(self, *, most: int) -> list[InnerNode]:
        """Returns nodes that have failed, the last ones first."""
        found: list[InnerNode] = []
        for region in self._regions:
            if len(found) < most:
                found += await region.failed(most=most - len(found))
        return found


@dataclass(frozen=True, slots=True)
class _Head:
    """The inside of a region without its nodes.

    Args:
        pages: references of the pages of its nodes.
        begins: number of the first node of each page, and the count of all.
        ends: numbers of the nodes that nothing waits for.
    """

    pages: Sequence[str]
    begins: Sequence[int]
    ends: frozenset[int]


class _Inside:
    """The inside of one region; its nodes have the numbers that they have there, those outside come first."""

    def __init__(self, scheduler: RunScheduler, number: int, store: PayloadStore) -> None:
        self._scheduler = scheduler
        self._region = scheduler.plan.nodes[number]
        self._record = scheduler.records[number]
        self._store = store
        self._outside = [scheduler.plan.nodes[needed].id for needed in self._region.dependencies]
        self._unwritten = frozenset(
            place
            for place, needed in enumerate(self._region.dependencies)
            if scheduler.plan.nodes[needed].kind in HIDDEN_KINDS
        )
        """Of those outside, the numbers of the nodes that nobody wrote."""
        self._head_read: _Head | None = None
        self.count = self._region.inner_count

    async def find(self, node_id: str) -> InnerNode | None:
        place = await self._place_of(node_id)
        if place is None:
            return None
        number, node = place
        record = self._held(node_id)
        if record is None:
            told = await self._told_of(lambda ended: ended[0] == number, most=1)
            record = self._record_of(node, *told[0]) if told else self._untold()
        return await self._inner_node(number, node, record, needs=await self._needs_of(node))

    async def failed(self, *, most: int) -> list[InnerNode]:
        state: InnerState | None = self._record.result
        count = min(most, state["counts"].get(NodeStatus.FAILED.value, 0) if state else 0)
        told = await self._told_of(lambda ended: ended[1] == NodeStatus.FAILED.value, most=count) if count else []
        found = []
        for ended, versions in told:
            node = await self._node(ended[0])
            record = self._held(node.id) or self._record_of(node, ended, versions)
            found.append(await self._inner_node(ended[0], node, record, needs=await self._needs_of(node)))
        return found

    async def nodes(self) -> AsyncIterator[InnerNode]:
        names = [node.id async for node in self._pages_of_nodes()]
        slices, refs = await self._places(len(names))
        read: OrderedDict[int, tuple[dict[int, Sequence[Any]], Mapping[str, str]]] = OrderedDict()
        number = -1
        async for node in self._pages_of_nodes():
            number += 1
            if number < len(self._outside):
                continue
            record, place = self._held(node.id), slices[number]
            if record is None and place >= 0:
                if place not in read:
                    told = await self._told(refs[place])
                    read[place] = {ended[0]: ended for ended in told["ended"]}, told["versions"]
                    if len(read) > _SLICES_KEPT:
                        read.popitem(last=False)
                read.move_to_end(place)
                ends, versions = read[place]
                record = self._record_of(node, ends[number], versions)
            needs = [names[each] for each in node.dependencies if each not in self._unwritten]
            yield await self._inner_node(number, node, record or self._untold(), needs=needs)

    async def edges(self) -> AsyncIterator[tuple[str, str]]:
        names: list[str] = []
        async for node in self._pages_of_nodes():
            for needed in node.dependencies:
                if needed not in self._unwritten:
                    yield names[needed], node.id
            names.append(node.id)

    # What became of the nodes.

    def _held(self, node_id: str) -> Record | None:
        """Returns the record of a node that the run holds as well: it may know more, such as why a node waits."""
        number = self._scheduler.state.number_of(node_id)
        return None if number is None else self._scheduler.records[number]

    def _untold(self) -> Record:
        """Returns the record of a node that no slice has told of."""
        region = self._record
        if not region.status.is_final:
            state: InnerState | None = region.result
            ended = self._region.inner_count - state["open"] if state else 0
            is_going_on = region.status is not NodeStatus.PENDING
            reason = f"its region is being run: {ended:,} of its {self._region.inner_count:,} nodes have ended"
            return Record(reason=reason if is_going_on else None)
        return Record(region.status, error=region.error, ended_at=region.ended_at, reason=region.reason)

    def _record_of(self, node: CompiledNode, ended: Sequence[Any], versions: Mapping[str, str]) -> Record:
        return told_end(ended, versions, tool=node.tool)[1]

    async def _told_of(
        self, is_wanted: Callable[[Sequence[Any]], bool], *, most: int
    ) -> list[tuple[Sequence[Any], Mapping[str, str]]]:
        """Returns what slices told of some nodes, with the versions of their tools, the last one first."""
        found: list[tuple[Sequence[Any], Mapping[str, str]]] = []
        ref = self._last_slice
        while ref is not None and len(found) < most:
            told = await self._told(ref)
            found += [(ended, told["versions"]) for ended in reversed(told["ended"]) if is_wanted(ended)]
            ref = told["before"]
        return found[:most]

    async def _places(self, count: int) -> tuple["array[int]", list[str]]:
        """Returns which slice told of each node, -1 for none, and the references of the slices."""
        slices, refs = array("i", [-1]) * count, list[str]()
        ref = self._last_slice
        while ref is not None:
            told = await self._told(ref)
            for ended in told["ended"]:
                slices[ended[0]] = len(refs)
            refs.append(ref)
            ref = told["before"]
        return slices, refs

    @property
    def _last_slice(self) -> str | None:
        state: InnerState | None = self._record.result
        return state["batch"] if state else None

    async def _told(self, ref: str) -> Mapping[str, Any]:
        told: Mapping[str, Any] = pydantic_core.from_json(await self._store.get(ref))
        return told

    # The nodes as they are in the plan.

    async def _head(self) -> _Head:
        if self._head_read is None:
            assert self._region.inner is not None
            read = pydantic_core.from_json(await self._store.get(self._region.inner))
            self._head_read = _Head(read["pages"], [0, *accumulate(read["counts"])], frozenset(read["ends"]))
        return self._head_read

    async def _pages_of_nodes(self) -> AsyncIterator[CompiledNode]:
        """Yields all nodes, those outside first."""
        for page in (await self._head()).pages:
            for node in _nodes_of(await self._store.get(page)):
                yield node

    async def _place_of(self, node_id: str) -> tuple[int, CompiledNode] | None:
        """Returns number and node of an own node; a page is read only if the id stands somewhere in it."""
        head = await self._head()
        written = pydantic_core.to_json(node_id)
        for page, begin in zip(head.pages, head.begins, strict=False):
            content = await self._store.get(page)
            if written in content:
                for number, node in enumerate(_nodes_of(content), begin):
                    if node.id == node_id and number >= len(self._outside):
                        return number, node
        return None

    async def _node(self, number: int) -> CompiledNode:
        if number < len(self._outside):
            return CompiledNode(self._outside[number], kind="reported")
        head = await self._head()
        page = bisect_right(head.begins, number) - 1
        return _nodes_of(await self._store.get(head.pages[page]))[number - head.begins[page]]

    async def _needs_of(self, node: CompiledNode) -> list[str]:
        return [(await self._node(each)).id for each in node.dependencies if each not in self._unwritten]

    async def _inner_node(self, number: int, node: CompiledNode, record: Record, *, needs: Sequence[str]) -> InnerNode:
        tool = self._scheduler.plan.tools.get(node.tool)
        document = written_node(record, title=node.title, tool=node.tool, needs=needs, declared=tool)
        return InnerNode(node.id, document, number in (await self._head()).ends)


def _nodes_of(page: bytes) -> list[CompiledNode]:
    return nodes_from_columns(pydantic_core.from_json(page))
