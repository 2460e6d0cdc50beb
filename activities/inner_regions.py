"""Regions whose inside lies in the store: read once, kept between the slices of this process, read again after a loss.

What slices told is in the store too, each with the reference of the one before, so any worker can go on with a region.
This module must not import workflows.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from dagwright.activities.region_slices import RegionSlice, tell_outside
from dagwright.core.compiler.offloaded_regions import OffloadedRegion
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.states import NodeStatus, Phase, Record
from dagwright.features.regions.batches import end_from_json, end_to_json
from dagwright.features.regions.offloaded_batches import OffloadedBatchInput, told_from_json, told_to_json
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.plans.pages import inside_pages, read_inside
from dagwright.store import PayloadStore

KEPT_NODES = 1_200_000
"""Nodes of the regions that a process keeps, some kilobytes each; beyond it the longest unused go. A million fit."""
KEPT_FOR_S = 300.0
"""How long a region is kept for its next slice, which may never come: perhaps its run was terminated."""


@dataclass(slots=True)
class InnerRegion:
    """A region at the end of a slice.

    Args:
        inside: its inside.
        scheduler: what has become of its nodes.
        last: reference of what the last slice told; `None` before the first.
        outside: of the first slice, which tells it with its own, for whoever begins anew.
        told: how many of the nodes that the scheduler has ended were told.
        counts: states of the own nodes that have ended and were told.
        ends: count of those that have completed and that nothing waits for.
    """

    inside: OffloadedRegion
    scheduler: RunScheduler
    last: str | None
    outside: Mapping[str, Any] | None
    told: int = 0
    counts: Counter[NodeStatus] = field(default_factory=Counter)
    ends: int = 0

    def count(self, numbers: Iterable[int]) -> None:
        """Counts nodes that have ended; all of them each time would cost more than to run them."""
        records = self.scheduler.records
        for number in numbers:
            self.counts[records[number].status] += 1
            self.ends += number in self.inside.ends and records[number].status is NodeStatus.COMPLETED

    def told_by(self, region: RegionSlice) -> bytes:
        """Returns what a slice puts into the store."""
        ended = region.ended()
        told = told_to_json(self.scheduler, ended, region.versions(ended))
        return pydantic_core.to_json({**told, "before": self.last, "outside": self.outside})

    def answer(self, region: RegionSlice, ref: str) -> bytes:
        """Returns what a slice answers whose telling has that reference."""
        scheduler, inside = self.scheduler, self.inside
        ended = region.ended()
        self.count(ended)
        told = [number for number in ended if number in inside.wanted]
        answer = {
            "slice": ref,
            "counts": {status.value: count for status, count in self.counts.items()},
            "open": len(inside.places) - self.counts.total(),
            "ends": self.ends,
            "ended": [[inside.plan.nodes[number].id, *end_to_json(scheduler.records[number])] for number in told],
            "versions": region.versions(told),
            "error": scheduler.state.error.to_json() if scheduler.state.error else None,
        }
        return pydantic_core.to_json(answer)


class RegionMemory:
    """The regions that this process has worked on, between their slices; belongs to one event loop."""

    def __init__(self) -> None:
        self._regions: OrderedDict[tuple[str, str], InnerRegion] = OrderedDict()
        self._ends: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def take(self, workflow_id: str, given: OffloadedBatchInput) -> InnerRegion | None:
        """Returns a region as the slice before left it, or `None` if it is not here; it is not kept any more."""
        found = self._drop((workflow_id, given.inner))
        return found if found is not None and found.last is not None and found.last == given.before else None

    def keep(self, workflow_id: str, given: OffloadedBatchInput, region: InnerRegion, *, ref: str) -> None:
        """Keeps a region until its next slice.

        Args:
            ref: of what its last slice told.
        """
        if region.scheduler.is_finished:
            return
        region.last, region.outside, region.told = ref, None, len(region.scheduler.state.ended)
        key = (workflow_id, given.inner)
        self._drop(key)
        self._regions[key] = region
        self._ends[key] = asyncio.get_running_loop().call_later(KEPT_FOR_S, self._drop, key)
        while len(self._regions) > 1 and sum(len(each.inside.places) for each in self._regions.values()) > KEPT_NODES:
            self._drop(next(iter(self._regions)))

    def _drop(self, key: tuple[str, str]) -> InnerRegion | None:
        if key in self._ends:
            self._ends.pop(key).cancel()
        return self._regions.pop(key, None)


@dataclass(frozen=True, slots=True)
class Stored:
    """A region as it is in the store, not read yet.

    Args:
        pages: of its nodes.
        told: what its slices told, the first one first.
    """

    head: Mapping[str, Any]
    pages: Sequence[bytes]
    told: Sequence[bytes]


async def fetch(given: OffloadedBatchInput, store: PayloadStore) -> Stored:
    """Returns what the store has of a region.

    Raises:
        PayloadMissing, PayloadDamaged: a part of it is not there any more.
        StoreUnavailable: the store cannot be asked now.
    """
    head, pages = await inside_pages(given.inner, store)
    told: list[bytes] = []
    before = given.before
    while before is not None:
        told.append(await store.get(before))
        before = pydantic_core.from_json(told[-1])["before"]
    return Stored(head, pages, told[::-1])


def restored(stored: Stored, given: OffloadedBatchInput) -> InnerRegion:
    """Returns a region as its slices left it, or at its beginning.

    Raises:
        ValueError: what the store has is no region.
    """
    inside = read_inside(stored.head, stored.pages)
    told = [pydantic_core.from_json(each) for each in stored.told]
    outside = told[0]["outside"] if told else given.outside
    if outside is None:
        raise ValueError("the first slice of a region does not tell what it began with")
    try:
        told_outside = {str(entry[0]): end_from_json(entry[1:]) for entry in outside["ended"]}
        names = [node.id for node in inside.plan.nodes if node.kind == "reported"]
        # What is not told has completed, and nothing here reads it.
        ended = [(name, told_outside.get(name) or Record(NodeStatus.COMPLETED)) for name in names]
        inputs = value_from_json(outside["inputs"], outside.get("stored_inputs"))
        scheduler = create_scheduler(inside.plan, inputs)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"this is nothing that a region could begin with: {error!r}") from None
    region = InnerRegion(inside, scheduler, given.before, None if told else outside)
    if told:
        told_ends = [end for each in told for end in told_from_json(each, inside.plan)]
        _resume(scheduler, ended, told_ends)
        region.count(number for number, _ in told_ends)
    else:
        tell_outside(scheduler, ended)
    return region


def _resume(
    scheduler: RunScheduler, outside: Sequence[tuple[str, Record]], ended: Sequence[tuple[int, Record]]
) -> None:
    records = [Record() for _ in scheduler.plan.nodes]
    for node_id, record in outside:
        number = scheduler.state.number_of(node_id)
        if number is not None:
            records[number] = record
    for number, record in ended:
        records[number] = record
    scheduler.rebuild.resume(records, error=None, cancelled=False, phase=Phase.ACTIVE)
    scheduler.reconcile(time.time())
