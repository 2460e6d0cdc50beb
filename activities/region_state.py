"""Cache of regions whose nodes are offloaded to the store. After a cache miss, a region is read from the store.

Every batch report is also in the store and refers to the previous report, so any worker can continue a region.
This module must not import workflows.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from dagwright.activities.region_batches import RegionBatch, start_with_ended_nodes
from dagwright.core.compiler.offloaded_regions import OffloadedRegion
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.states import NodeStatus, Phase, Record
from dagwright.features.regions.batches import end_from_json, end_to_json
from dagwright.features.regions.offloaded_batches import OffloadedBatchInput, ends_from_json, ends_to_json
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.plans.pages import load_region_pages, parse_region
from dagwright.store import PayloadStore

MAX_NODES = 1_200_000
"""Limit of the cache in nodes, of a few KB each. At the limit, the least recently used regions are evicted."""
CACHE_TIME_S = 300.0
"""How long a region stays cached for its next batch. If the run was terminated, there is no next batch."""


@dataclass(slots=True)
class OffloadedRegionState:
    """State of a region at the end of a batch.

    Args:
        region: the nodes of the region.
        scheduler: the states of its nodes.
        last_report: reference of the previous batch report; `None` before the first report.
        first_input: input of the first batch; `None` after the first batch. The first report contains this input for
            other workers.
        reported_count: number of ended nodes that have been reported.
        counts: status -> number of reported nodes of the region.
        completed_end_node_count: number of completed nodes without dependents.
    """

    region: OffloadedRegion
    scheduler: RunScheduler
    last_report: str | None
    first_input: Mapping[str, Any] | None
    reported_count: int = 0
    counts: Counter[NodeStatus] = field(default_factory=Counter)
    completed_end_node_count: int = 0

    def count_ended(self, numbers: Iterable[int]) -> None:
        """Count nodes that have ended; counting all nodes each time would cost more than running them."""
        records = self.scheduler.records
        for number in numbers:
            self.counts[records[number].status] += 1
            self.completed_end_node_count += (
                number in self.region.ends and records[number].status is NodeStatus.COMPLETED
            )

    def report(self, batch: RegionBatch) -> bytes:
        """Return the report of a batch, for the store."""
        ended_numbers = batch.ended_node_numbers()
        report = ends_to_json(self.scheduler, ended_numbers, batch.tool_versions(ended_numbers))
        return pydantic_core.to_json({**report, "before": self.last_report, "outside": self.first_input})

    def result(self, batch: RegionBatch, ref: str) -> bytes:
        """Return the result of a batch whose report has the given reference."""
        scheduler, region = self.scheduler, self.region
        ended_numbers = batch.ended_node_numbers()
        self.count_ended(ended_numbers)
        exported_numbers = [number for number in ended_numbers if number in region.exports]
        result = {
            "batch": ref,
            "counts": {status.value: count for status, count in self.counts.items()},
            "open": len(region.member_numbers) - self.counts.total(),
            "ends": self.completed_end_node_count,
            "node_ends": [
                [region.plan.nodes[number].id, *end_to_json(scheduler.records[number])] for number in exported_numbers
            ],
            "versions": batch.tool_versions(exported_numbers),
            "error": scheduler.state.error.to_json() if scheduler.state.error else None,
        }
        return pydantic_core.to_json(result)


class RegionCache:
    """The regions of this process between two batches. Use this object on one event loop only."""

    def __init__(self) -> None:
        self._regions: OrderedDict[tuple[str, str], OffloadedRegionState] = OrderedDict()
        self._expiry_timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def pop(self, run_id: str, batch_input: OffloadedBatchInput) -> OffloadedRegionState | None:
        """Remove and return a region in the state after the previous batch; `None` if this state is not cached."""
        state = self._remove((run_id, batch_input.region_ref))
        return (
            state
            if state is not None and state.last_report is not None and state.last_report == batch_input.previous_ref
            else None
        )

    def put(self, run_id: str, batch_input: OffloadedBatchInput, state: OffloadedRegionState, *, ref: str) -> None:
        """Cache a region for its next batch.

        Args:
            ref: reference of the region's latest batch report.
        """
        if state.scheduler.is_finished:
            return
        state.last_report, state.first_input, state.reported_count = ref, None, len(state.scheduler.state.ended_numbers)
        key = (run_id, batch_input.region_ref)
        self._remove(key)
        self._regions[key] = state
        self._expiry_timers[key] = asyncio.get_running_loop().call_later(CACHE_TIME_S, self._remove, key)
        while (
            len(self._regions) > 1
            and sum(len(cached_region.region.member_numbers) for cached_region in self._regions.values()) > MAX_NODES
        ):
            self._remove(next(iter(self._regions)))

    def _remove(self, key: tuple[str, str]) -> OffloadedRegionState | None:
        if key in self._expiry_timers:
            self._expiry_timers.pop(key).cancel()
        return self._regions.pop(key, None)


@dataclass(frozen=True, slots=True)
class StoredRegion:
    """A region as read from the store, not decoded yet.

    Args:
        pages: pages of its nodes.
        reports: its batch reports, oldest first.
    """

    head: Mapping[str, Any]
    pages: Sequence[bytes]
    reports: Sequence[bytes]


async def fetch_region(batch_input: OffloadedBatchInput, store: PayloadStore) -> StoredRegion:
    """Read a region from the store.

    Raises:
        PayloadMissing, PayloadDamaged: a part of the region is missing or damaged.
        StoreUnavailable: the store does not respond.
    """
    head, pages = await load_region_pages(batch_input.region_ref, store)
    reports: list[bytes] = []
    report_ref = batch_input.previous_ref
    while report_ref is not None:
        reports.append(await store.get(report_ref))
        report_ref = pydantic_core.from_json(reports[-1])["before"]
    return StoredRegion(head, pages, reports[::-1])


def restore_region(stored_region: StoredRegion, batch_input: OffloadedBatchInput) -> OffloadedRegionState:
    """Return a region in the state after its last batch, or in its initial state if no batch has ended.

    Raises:
        ValueError: the stored region is invalid.
    """
    region = parse_region(stored_region.head, stored_region.pages)
    reports = [pydantic_core.from_json(report_json) for report_json in stored_region.reports]
    first_input = reports[0]["outside"] if reports else batch_input.outside_data
    if first_input is None:
        raise ValueError("the first batch of a region has no input")
    try:
        reported_ends = {str(entry[0]): end_from_json(entry[1:]) for entry in first_input["node_ends"]}
        outside_ids = [node.id for node in region.plan.nodes if node.kind == "external"]
        # If the outcome of an outside node is not reported, the node has completed, and no node of the region reads its
        # result.
        outside_ends = [
            (node_id, reported_ends.get(node_id) or Record(NodeStatus.COMPLETED)) for node_id in outside_ids
        ]
        inputs = value_from_json(first_input["inputs"], first_input.get("stored_inputs"))
        scheduler = create_scheduler(region.plan, inputs)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"invalid region input: {error!r}") from None
    state = OffloadedRegionState(region, scheduler, batch_input.previous_ref, None if reports else first_input)
    if reports:
        ends = [end for report in reports for end in ends_from_json(report, region.plan)]
        _resume(scheduler, outside_ends, ends)
        state.count_ended(number for number, _ in ends)
    else:
        start_with_ended_nodes(scheduler, outside_ends)
    return state


def _resume(
    scheduler: RunScheduler, outside_ends: Sequence[tuple[str, Record]], member_ends: Sequence[tuple[int, Record]]
) -> None:
    records = [Record() for _ in scheduler.plan.nodes]
    for node_id, record in outside_ends:
        number = scheduler.state.number_of(node_id)
        if number is not None:
            records[number] = record
    for number, record in member_ends:
        records[number] = record
    scheduler.rebuild.resume(records, error=None, cancelled=False, phase=Phase.ACTIVE)
    scheduler.reconcile(time.time())
