"""Clean-up of a payload store: a rule for the payloads that may be removed, and their removal.

A payload may be removed when no run that the namespace still lists can refer to it. When a run receives a reference,
the payload has been stored or renewed since the run started. Payloads last renewed before the start of the oldest
listed run therefore belong to runs that no longer exist. The retention period must have passed too: a deleted run may
be restored from an archive, and the list of runs may lag. If the rule lacks information, nothing is removed.
Cache entries are removed when they expire: no run depends on them.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagwright.core.errors import DagwrightError
from dagwright.store.payloads import OWNERS, CacheEntry, PayloadStore, StoredPayload

MARGIN = timedelta(days=1)
"""Subtracted from each cutoff, because the list of runs may lag, and the clocks of the store, the Temporal server and
the workers may differ."""
_MAX_CONCURRENT_REMOVALS = 64


class RetentionUnknown(DagwrightError):
    """The rule lacks information. The message is a clause with the reason and the fix."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """An execution of a run that the namespace still lists, open or closed.

    Args:
        first_execution_id: ID of the first execution in the chain of continuations and resets; `execution_id` if this
            execution is the first.
        started_at: start of this execution; after a continue-as-new, the time of the continuation.
        chain_started_at: start of the first execution of the chain, if the run reports it.
        root_id: workflow ID of the root run; `None` if the run is not a sub-plan.
    """

    workflow_id: str
    execution_id: str
    first_execution_id: str
    started_at: datetime
    chain_started_at: datetime | None = None
    root_id: str | None = None

    @property
    def earliest_start(self) -> datetime:
        """Return the earliest start that the run reports."""
        return self.started_at if self.chain_started_at is None else min(self.chain_started_at, self.started_at)


@dataclass(frozen=True, slots=True)
class NamespaceRetention:
    """The data of a namespace that the rule needs.

    Args:
        namespace: name of the namespace, for messages.
        namespace_id: unique ID of the namespace.
        retention_period: how long the namespace lists a closed run.
        runs: all runs that the namespace lists, in any order.
    """

    namespace: str
    namespace_id: str
    retention_period: timedelta
    runs: Collection[ListedRun]


@dataclass(frozen=True, slots=True)
class RemovalCutoff:
    """Payloads last renewed before `time` may be removed; `reason` is a clause that explains the cutoff."""

    time: datetime
    reason: str


def removal_cutoff(retention: NamespaceRetention, *, owner_namespaces: Collection[str], now: datetime) -> RemovalCutoff:
    """Return the time before which payloads are no longer needed.

    Args:
        owner_namespaces: IDs of the namespaces that have claimed the store.
        now: the current time, timezone-aware.

    Raises:
        RetentionUnknown: other namespaces own the store too, or the start of a run is unknown.

    Complexity: O(runs).
    """
    _check_owner_namespaces(retention, owner_namespaces)
    if retention.retention_period <= timedelta(0):
        raise RetentionUnknown(f"the namespace {retention.namespace} does not report its retention period")
    retained_since = now - retention.retention_period - MARGIN
    age_cutoff = RemovalCutoff(
        retained_since,
        f"the namespace {retention.namespace} retains runs for {_days(retention.retention_period)}, and a day is added",
    )
    start_times = _start_times(retention.runs)
    oldest_id = min(start_times, key=lambda workflow_id: (start_times[workflow_id], workflow_id), default=None)
    if oldest_id is None or start_times[oldest_id] - MARGIN >= retained_since:
        return age_cutoff
    return RemovalCutoff(
        start_times[oldest_id] - MARGIN,
        f"the run {oldest_id!r}, which started one day after this time, is still listed",
    )


def _check_owner_namespaces(retention: NamespaceRetention, owner_namespaces: Collection[str]) -> None:
    other_namespaces = sorted(set(owner_namespaces) - {retention.namespace_id})
    if other_namespaces:
        raise RetentionUnknown(
            f"workers of other namespaces use the store too ({', '.join(other_namespaces[:5])}; this namespace is "
            f"{retention.namespace_id}); give each namespace its own store, or, if the other namespaces no longer "
            f"exist, remove their files in {OWNERS}/ of the store"
        )
    if retention.namespace_id not in owner_namespaces:
        raise RetentionUnknown(
            f"no worker of the namespace {retention.namespace} ({retention.namespace_id}) has used the store; start a "
            "worker with this store, or check which Temporal server and store the command uses"
        )


def _start_times(runs: Collection[ListedRun]) -> dict[str, datetime]:
    """Return the earliest start of each workflow ID.

    Raises:
        RetentionUnknown: a run continues a run with an unknown start, or is a sub-plan of such a run.
    """
    start_times: dict[str, datetime] = {}
    for run in runs:
        recorded_start = start_times.get(run.workflow_id, run.earliest_start)
        start_times[run.workflow_id] = min(run.earliest_start, recorded_start)
    execution_ids = {run.execution_id for run in runs}
    for run in runs:
        if run.chain_started_at is None and run.first_execution_id not in execution_ids:
            raise RetentionUnknown(
                f"the run {run.workflow_id!r} continues a run that is no longer listed, and does not report when that "
                f"run started; {run.workflow_id!r} has to end and leave the list first"
            )
        # A sub-plan may refer to payloads of its root run, even if the sub-plan started much later.
        root_start = start_times.get(run.root_id) if run.root_id is not None else None
        if run.root_id is not None and (root_start is None or root_start > run.earliest_start):
            raise RetentionUnknown(
                f"the run {run.workflow_id!r} is a sub-plan of {run.root_id!r}, which is no longer listed, so the "
                "start of the root run is unknown; the sub-plan has to end and leave the list first"
            )
    return start_times


@dataclass(frozen=True, slots=True)
class Amount:
    """Number and total size of payloads or cache entries."""

    count: int = 0
    size_bytes: int = 0

    def plus(self, item: StoredPayload | CacheEntry) -> "Amount":
        """Return the amount plus one item."""
        return Amount(self.count + 1, self.size_bytes + item.size_bytes)


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Number and size of the payloads in a store.

    Args:
        total: all payloads.
        oldest_renewed_at: when the oldest payload was last stored or renewed; `None` if there is no payload.
        removable: payloads that may be removed; `None` without a cutoff.
    """

    total: Amount
    oldest_renewed_at: datetime | None
    removable: Amount | None


async def measure_payloads(store: PayloadStore, cutoff: RemovalCutoff | None) -> StoreUsage:
    """Measure the payloads of a store.

    Raises:
        StoreUnavailable: the store cannot be read now.
    """
    total, removable, oldest = Amount(), Amount(), None
    async for payload in store.list_payloads():
        total = total.plus(payload)
        oldest = payload.renewed_at if oldest is None else min(oldest, payload.renewed_at)
        if cutoff is not None and payload.renewed_at < cutoff.time:
            removable = removable.plus(payload)
    return StoreUsage(total, oldest, None if cutoff is None else removable)


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Number and size of all cache entries, and of the expired entries."""

    total: Amount
    expired: Amount


async def measure_cache(store: PayloadStore, *, now: datetime) -> CacheUsage:
    """Measure the cache entries of a store.

    Raises:
        StoreUnavailable: the store cannot be read now.
    """
    total, expired = Amount(), Amount()
    async for entry in store.cache_entries():
        total = total.plus(entry)
        expired = expired.plus(entry) if entry.expires_at < now else expired
    return CacheUsage(total, expired)


async def remove_expired_entries(store: PayloadStore, *, now: datetime) -> Amount:
    """Remove expired cache entries and return the removed amount.

    Raises:
        StoreUnavailable: the store cannot be used now.
    """
    removed_amount = Amount()
    async for entry in store.cache_entries():
        if entry.expires_at < now and await store.delete_cache_entry(entry.key, expired_before=now):
            removed_amount = removed_amount.plus(entry)
    return removed_amount


async def remove_payloads(store: PayloadStore, cutoff: RemovalCutoff) -> Amount:
    """Remove the payloads before the cutoff, and return the removed amount.

    Payloads that are renewed in the meantime are kept.

    Raises:
        StoreUnavailable: the store cannot be used now; a repeated call continues.
    """
    removed_amount = Amount()
    payloads: list[StoredPayload] = []
    async for payload in store.list_payloads():
        if payload.renewed_at < cutoff.time:
            payloads.append(payload)
        if len(payloads) == _MAX_CONCURRENT_REMOVALS:
            removed_amount = await _remove_batch(store, payloads, cutoff, previous_amount=removed_amount)
            payloads = []
    return await _remove_batch(store, payloads, cutoff, previous_amount=removed_amount)


async def _remove_batch(
    store: PayloadStore, payloads: Sequence[StoredPayload], cutoff: RemovalCutoff, *, previous_amount: Amount
) -> Amount:
    removals = await asyncio.gather(*(store.delete(payload.ref, renewed_before=cutoff.time) for payload in payloads))
    removed_amount = previous_amount
    for payload, is_removed in zip(payloads, removals, strict=True):
        removed_amount = removed_amount.plus(payload) if is_removed else removed_amount
    return removed_amount


def _days(duration: timedelta) -> str:
    days = duration / timedelta(days=1)
    return f"{days:g} day{'' if days == 1 else 's'}"
