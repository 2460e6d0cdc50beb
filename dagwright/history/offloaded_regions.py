"""Nodes of offloaded regions, read from the payload store because most of them are not in the run.

The final records of a batch's nodes are in the store as soon as the run has the batch's result. So the nodes can be
read while the region runs, without a worker, and after the run has closed, as long as the store retains the values of
the run.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.run_state import RegionState, offloaded_regions
from dagwright.features.regions.offloaded_batches import numbered_end_from_json
from dagwright.protocol.documents import document_of_record
from dagwright.store import PayloadStore, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_CACHED_BATCHES = 4
"""Maximum number of batches in memory while all nodes are read; a batch has some megabytes. The nodes are read by
number, and the batches are nearly in this order, so a larger cache would have no effect.
"""

REGION_UNREADABLE = "region_unreadable"
"""Code of the note that the nodes of offloaded regions cannot be read."""


@dataclass(frozen=True, slots=True)
class InnerNode:
    """Node of an offloaded region.

    Args:
        document: the document of the node, as in a result document, except that a value in the store is a
            `StoredValue`.
        is_end_node: whether the node has no dependents.
    """

    id: str
    document: dict[str, Any]
    is_end_node: bool


def unreadable_note(error: StoreError) -> dict[str, Any]:
    """Return the note that the nodes of offloaded regions cannot be read."""
    is_temporary = isinstance(error, StoreUnavailable)
    advice = "try again later" if is_temporary else "the run has only their counts by state"
    message = f"the nodes inside large regions of pure nodes cannot be read: {error}; {advice}"
    return {"code": REGION_UNREADABLE, "node_id": None, "message": message}


class OffloadedNodes:
    """All nodes of the offloaded regions of one run, with their final records if these are known.

    Each method raises `PayloadMissing` or `PayloadDamaged` if the store has lost the nodes, and `StoreUnavailable` if
    the store does not respond.

    Args:
        scheduler: scheduler of the run, rebuilt from its history; `None` while its plan is not known.
        store: payload store that contains the regions.
    """

    def __init__(self, scheduler: "RunScheduler | None", store: PayloadStore) -> None:
        self._regions: list[_OffloadedRegion] = []
        shared_ids: list[str] = []
        if scheduler is not None:
            for number, region in offloaded_regions(scheduler.plan):
                self._regions.append(_OffloadedRegion(scheduler, number, store))
                shared_ids += [scheduler.plan.nodes[member].id for member in region.members]
        self.ids_in_run = frozenset(shared_ids)
        """Ids of the nodes that the run also has, because nodes outside depend on them."""
        self.count = sum(region.count for region in self._regions)

    def __bool__(self) -> bool:
        return bool(self._regions)

    async def find(self, node_id: str) -> InnerNode | None:
        """Return a node, or `None` if no region has a node with that id."""
        for region in self._regions:
            node = await region.find(node_id)
            if node is not None:
                return node
        return None

    async def nodes(self) -> AsyncIterator[InnerNode]:
        """Yield all nodes region by region, each region in an order in which its nodes can run.

        Complexity: O(V + E) time; memory: all ids, four bytes per node for its batch, and some pages and batches.
        """
        for region in self._regions:
            async for node in region.nodes():
                yield node

    async def edges(self) -> AsyncIterator[tuple[str, str]]:
        """Yield every edge into a node of a region, from the dependency to the dependent."""
        for region in self._regions:
            async for edge in region.edges():
                yield edge

    async def find_failed_nodes(self, *, limit: int) -> list[InnerNode]:
        """Return at most `limit` failed nodes, in each region the newest failure first."""
        failed_nodes: list[InnerNode] = []
        for region in self._regions:
            if len(failed_nodes) < limit:
                failed_nodes += await region.find_failed_nodes(limit=limit - len(failed_nodes))
        return failed_nodes


@dataclass(frozen=True, slots=True)
class _RegionHead:
    """Offloaded region without its nodes.

    Args:
        page_refs: store references of the pages of its nodes.
        starts: number of the first node of each page, followed by the count of all nodes.
        end_node_numbers: numbers of the nodes without dependents.
    """

    page_refs: Sequence[str]
    starts: Sequence[int]
    end_node_numbers: frozenset[int]


class _OffloadedRegion:
    """One offloaded region.

    The stored plan of the region has its own numbers: first the outside nodes on which the region depends, then the
    nodes of the region.
    """

    def __init__(self, scheduler: "RunScheduler", number: int, store: PayloadStore) -> None:
        self._scheduler = scheduler
        self._region = scheduler.plan.nodes[number]
        self._record = scheduler.records[number]
        self._store = store
        self._outside_ids = [scheduler.plan.nodes[dependency].id for dependency in self._region.dependencies]
        self._hidden_numbers = frozenset(
            position
            for position, dependency in enumerate(self._region.dependencies)
            if scheduler.plan.nodes[dependency].kind in HIDDEN_KINDS
        )
        """Numbers of the outside nodes that the compiler has added."""
        self._cached_head: _RegionHead | None = None
        self.count = self._region.inner_count

    async def find(self, node_id: str) -> InnerNode | None:
        numbered_node = await self._find_node(node_id)
        if numbered_node is None:
            return None
        number, node = numbered_node
        record = self._record_in_run(node_id)
        if record is None:
            ends = await self._ends_of(lambda entry: entry[0] == number, limit=1)
            record = self._record_of(node, *ends[0]) if ends else self._unreported_record()
        return await self._inner_node(number, node, record, needs=await self._needs_of(node))

    async def find_failed_nodes(self, *, limit: int) -> list[InnerNode]:
        state: RegionState | None = self._record.result
        count = min(limit, state["counts"].get(NodeStatus.FAILED.value, 0) if state else 0)
        ends = await self._ends_of(lambda entry: entry[1] == NodeStatus.FAILED.value, limit=count) if count else []
        failed_nodes = []
        for entry, versions in ends:
            node = await self._node(entry[0])
            record = self._record_in_run(node.id) or self._record_of(node, entry, versions)
            failed_nodes.append(await self._inner_node(entry[0], node, record, needs=await self._needs_of(node)))
        return failed_nodes

    async def nodes(self) -> AsyncIterator[InnerNode]:
        node_ids = [node.id async for node in self._all_nodes()]
        batch_indexes, refs = await self._batches_of_nodes(len(node_ids))
        cached_batches: OrderedDict[int, tuple[dict[int, Sequence[Any]], Mapping[str, str]]] = OrderedDict()
        number = -1
        async for node in self._all_nodes():
            number += 1
            if number < len(self._outside_ids):
                continue
            record, batch_index = self._record_in_run(node.id), batch_indexes[number]
            if record is None and batch_index >= 0:
                if batch_index not in cached_batches:
                    batch = await self._batch(refs[batch_index])
                    cached_batches[batch_index] = {entry[0]: entry for entry in batch["node_ends"]}, batch["versions"]
                    if len(cached_batches) > _CACHED_BATCHES:
                        cached_batches.popitem(last=False)
                cached_batches.move_to_end(batch_index)
                ends, versions = cached_batches[batch_index]
                record = self._record_of(node, ends[number], versions)
            needs = [node_ids[dependency] for dependency in node.dependencies if dependency not in self._hidden_numbers]
            yield await self._inner_node(number, node, record or self._unreported_record(), needs=needs)

    async def edges(self) -> AsyncIterator[tuple[str, str]]:
        node_ids: list[str] = []
        async for node in self._all_nodes():
            for dependency in node.dependencies:
                if dependency not in self._hidden_numbers:
                    yield node_ids[dependency], node.id
            node_ids.append(node.id)

    # Records of the nodes.

    def _record_in_run(self, node_id: str) -> Record | None:
        """Return the record of a node in the run, which may have data that the store lacks, such as a wait reason."""
        number = self._scheduler.state.number_of(node_id)
        return None if number is None else self._scheduler.records[number]

    def _unreported_record(self) -> Record:
        """Return the record of a node that no batch has reported."""
        region_record = self._record
        if not region_record.status.is_final:
            state: RegionState | None = region_record.result
            ended_count = self._region.inner_count - state["open"] if state else 0
            has_started = region_record.status is not NodeStatus.PENDING
            reason = f"its region is running: {ended_count:,} of its {self._region.inner_count:,} nodes have ended"
            return Record(reason=reason if has_started else None)
        return Record(
            region_record.status,
            error=region_record.error,
            ended_at=region_record.ended_at,
            reason=region_record.reason,
        )

    def _record_of(self, node: CompiledNode, entry: Sequence[Any], versions: Mapping[str, str]) -> Record:
        return numbered_end_from_json(entry, versions, tool=node.tool)[1]

    async def _ends_of(
        self, matches: Callable[[Sequence[Any]], bool], *, limit: int
    ) -> list[tuple[Sequence[Any], Mapping[str, str]]]:
        """Return the encoded final records of matching nodes with their tools' versions, the last record first."""
        ends: list[tuple[Sequence[Any], Mapping[str, str]]] = []
        ref = self._last_batch
        while ref is not None and len(ends) < limit:
            batch = await self._batch(ref)
            ends += [(entry, batch["versions"]) for entry in reversed(batch["node_ends"]) if matches(entry)]
            ref = batch["before"]
        return ends[:limit]

    async def _batches_of_nodes(self, count: int) -> tuple["array[int]", list[str]]:
        """Return, for each node, the index of the batch that reported it, or -1; and the references of all batches."""
        batch_indexes, refs = array("i", [-1]) * count, list[str]()
        ref = self._last_batch
        while ref is not None:
            batch = await self._batch(ref)
            for entry in batch["node_ends"]:
                batch_indexes[entry[0]] = len(refs)
            refs.append(ref)
            ref = batch["before"]
        return batch_indexes, refs

    @property
    def _last_batch(self) -> str | None:
        state: RegionState | None = self._record.result
        return state["batch"] if state else None

    async def _batch(self, ref: str) -> Mapping[str, Any]:
        batch: Mapping[str, Any] = pydantic_core.from_json(await self._store.get(ref))
        return batch

    # Nodes in the plan.

    async def _head(self) -> _RegionHead:
        if self._cached_head is None:
            assert self._region.inner is not None
            head = pydantic_core.from_json(await self._store.get(self._region.inner))
            self._cached_head = _RegionHead(head["pages"], [0, *accumulate(head["counts"])], frozenset(head["ends"]))
        return self._cached_head

    async def _all_nodes(self) -> AsyncIterator[CompiledNode]:
        """Yield all nodes, the outside nodes first."""
        for page_ref in (await self._head()).page_refs:
            for node in _nodes_of(await self._store.get(page_ref)):
                yield node

    async def _find_node(self, node_id: str) -> tuple[int, CompiledNode] | None:
        """Return a node of the region with its number, or `None`. A page is decoded only if it contains the id."""
        head = await self._head()
        encoded_id = pydantic_core.to_json(node_id)
        for page_ref, start in zip(head.page_refs, head.starts, strict=False):
            content = await self._store.get(page_ref)
            if encoded_id in content:
                for number, node in enumerate(_nodes_of(content), start):
                    if node.id == node_id and number >= len(self._outside_ids):
                        return number, node
        return None

    async def _node(self, number: int) -> CompiledNode:
        if number < len(self._outside_ids):
            return CompiledNode(self._outside_ids[number], kind="external")
        head = await self._head()
        page_index = bisect_right(head.starts, number) - 1
        page = await self._store.get(head.page_refs[page_index])
        return _nodes_of(page)[number - head.starts[page_index]]

    async def _needs_of(self, node: CompiledNode) -> list[str]:
        return [
            (await self._node(dependency)).id
            for dependency in node.dependencies
            if dependency not in self._hidden_numbers
        ]

    async def _inner_node(self, number: int, node: CompiledNode, record: Record, *, needs: Sequence[str]) -> InnerNode:
        tool = self._scheduler.plan.tools.get(node.tool)
        document = document_of_record(record, title=node.title, tool=node.tool, needs=needs, declaration=tool)
        return InnerNode(node.id, document, number in (await self._head()).end_node_numbers)


def _nodes_of(page: bytes) -> list[CompiledNode]:
    return nodes_from_columns(pydantic_core.from_json(page))
