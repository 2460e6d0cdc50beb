"""Clean-up of a payload store: a rule that depends only on the list of runs, and the removal by this rule.


A payload may be removed when no run that the namespace still lists can refer to it. Whenever a run receives a
reference, its payload is stored or renewed after the run started; so payloads last renewed before the start of the
oldest listed run belong to runs that no longer exist. The retention period must have passed too: a deleted run may be
restored from an archive, and the list of runs may lag. If the rule lacks information, nothing is removed. Cache entries
are removed when they expire: no run depends on them.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagwright.core.errors import DagwrightError
from dagwright.store.payloads import OWNERS, PayloadStore, Remembered, StoredPayload

MARGIN = timedelta(days=1)
"""Added to both limits: the clocks of store, server and worker may differ, and the list of runs may lag."""
_REMOVED_AT_ONCE = 64


class NeedUnknown(DagwrightError):
    """The rule lacks information; the message is a clause with the reason and the fix."""


@dataclass(frozen=True, slots=True)
class RetainedRun:
    """A run that the namespace still lists, open or closed.

    Args:
        first_run_id: ID of the first run in its chain of continuations and resets; its own ID if it is the first.
        started_at: start of this run; after a continue-as-new, the time of the continuation.
        began_at: start of the first run of its chain, if the run reports it.
        root_id: workflow ID of its root run if it is a sub-plan; else `None`.
    """

    workflow_id: str
    run_id: str
    first_run_id: str
    started_at: datetime
    began_at: datetime | None = None
    root_id: str | None = None

    @property
    def known_beginning(self) -> datetime:
        """Return the earliest start that the run reports."""
        return self.started_at if self.began_at is None else min(self.began_at, self.started_at)


@dataclass(frozen=True, slots=True)
class Retained:
    """The data of a namespace that the rule needs.

    Args:
        namespace: its name, for messages.
        namespace_id: its unique ID.
        retention: how long it lists a closed run.
        runs: all runs that it lists, in any order.
    """

    namespace: str
    namespace_id: str
    retention: timedelta
    runs: Collection[RetainedRun]


@dataclass(frozen=True, slots=True)
class Bound:
    """Payloads last renewed before `renewed_before` may be removed; `reason` is a clause that explains the limit."""

    renewed_before: datetime
    reason: str


def bound_of(retained: Retained, *, owners: Collection[str], now: datetime) -> Bound:
    """Return the age up to which payloads are still needed.

    Args:
        owners: the namespaces that have claimed the store.
        now: the current time, timezone-aware.

    Raises:
        NeedUnknown: the store has other users, or the start of a run is unknown.

    Complexity: O(runs).
    """
    _refuse_other_owners(retained, owners)
    if retained.retention <= timedelta(0):
        raise NeedUnknown(f"the namespace {retained.namespace} does not report its retention period")
    kept_since = now - retained.retention - MARGIN
    by_age = Bound(
        kept_since,
        f"the namespace {retained.namespace} retains runs for {_days(retained.retention)}, and a day is added",
    )
    began = _beginnings(retained.runs)
    oldest = min(began, key=lambda workflow_id: (began[workflow_id], workflow_id), default=None)
    if oldest is None or began[oldest] - MARGIN >= kept_since:
        return by_age
    return Bound(began[oldest] - MARGIN, f"the run {oldest!r} is still listed, and a day before its start is added")


def _refuse_other_owners(retained: Retained, owners: Collection[str]) -> None:
    others = sorted(set(owners) - {retained.namespace_id})
    if others:
        raise NeedUnknown(
            f"workers of other namespaces use the store too ({', '.join(others[:5])}; this one is "
            f"{retained.namespace_id}); give each namespace its own store, or, if the others are gone for good, remove "
            f"their files in {OWNERS}/ of the store"
        )
    if retained.namespace_id not in owners:
        raise NeedUnknown(
            f"no worker of the namespace {retained.namespace} ({retained.namespace_id}) has used the store; start one "
            "with this store, or check which server and store the command uses"
        )


def _beginnings(runs: Collection[RetainedRun]) -> dict[str, datetime]:
    """Return the earliest start of each workflow ID.

    Raises:
        NeedUnknown: a run continues another run, or is a sub-plan of one, whose start is unknown.
    """
    began: dict[str, datetime] = {}
    for run in runs:
        began[run.workflow_id] = min(run.known_beginning, began.get(run.workflow_id, run.known_beginning))
    run_ids = {run.run_id for run in runs}
    for run in runs:
        if run.began_at is None and run.first_run_id not in run_ids:
            raise NeedUnknown(
                f"the run {run.workflow_id!r} continues one that is no longer listed, and does not report when that "
                "started; it has to end and leave the list first"
            )
        # A sub-plan may hold references of its root run, however much later it started.
        if run.root_id is not None and not (run.root_id in began and began[run.root_id] <= run.known_beginning):
            raise NeedUnknown(
                f"the run {run.workflow_id!r} is a sub-plan of {run.root_id!r}, which is no longer listed, so its "
                "start is unknown; the sub-plan has to end and leave the list first"
            )
    return began


@dataclass(frozen=True, slots=True)
class Amount:
    """Number and total size of payloads or cache entries."""

    count: int = 0
    size_bytes: int = 0

    def plus(self, one: StoredPayload | Remembered) -> "Amount":
        """Return the amount plus one item."""
        return Amount(self.count + 1, self.size_bytes + one.size_bytes)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Content of a store: total, oldest payload, and the part before a bound (`None` without a bound)."""

    all: Amount
    oldest: datetime | None
    removable: Amount | None


async def survey(store: PayloadStore, bound: Bound | None) -> Holdings:
    """Measure the payloads of a store.

    Raises:
        StoreUnavailable: the store cannot be read now.
    """
    everything, removable, oldest = Amount(), Amount(), None
    async for payload in store.entries():
        everything = everything.plus(payload)
        oldest = payload.renewed_at if oldest is None else min(oldest, payload.renewed_at)
        if bound is not None and payload.renewed_at < bound.renewed_before:
            removable = removable.plus(payload)
    return Holdings(everything, oldest, None if bound is None else removable)


@dataclass(frozen=True, slots=True)
class Memories:
    """Cache entries of a store: all, and the expired ones."""

    all: Amount
    expired: Amount


async def survey_memories(store: PayloadStore, *, now: datetime) -> Memories:
    """Measure the cache entries of a store.

    Raises:
        StoreUnavailable: the store cannot be read now.
    """
    everything, expired = Amount(), Amount()
    async for one in store.remembered():
        everything = everything.plus(one)
        expired = expired.plus(one) if one.expires_at < now else expired
    return Memories(everything, expired)


async def forget_expired(store: PayloadStore, *, now: datetime) -> Amount:
    """Remove expired cache entries and return the removed amount.

    Raises:
        StoreUnavailable: the store cannot be used now.
    """
    removed = Amount()
    async for one in store.remembered():
        if one.expires_at < now and await store.forget(one.key, expired_before=now):
            removed = removed.plus(one)
    return removed


async def remove(store: PayloadStore, bound: Bound) -> Amount:
    """Remove payloads before the bound that were not renewed meanwhile, and return the removed amount.

    Raises:
        StoreUnavailable: the store cannot be used now; removed payloads stay removed, and another call continues.
    """
    removed = Amount()
    found: list[StoredPayload] = []
    async for payload in store.entries():
        if payload.renewed_at < bound.renewed_before:
            found.append(payload)
        if len(found) == _REMOVED_AT_ONCE:
            removed = await _remove(store, found, bound, so_far=removed)
            found = []
    return await _remove(store, found, bound, so_far=removed)


async def _remove(store: PayloadStore, found: Sequence[StoredPayload], bound: Bound, *, so_far: Amount) -> Amount:
    gone = await asyncio.gather(*(store.delete(payload.ref, renewed_before=bound.renewed_before) for payload in found))
    for payload, is_gone in zip(found, gone, strict=True):
        so_far = so_far.plus(payload) if is_gone else so_far
    return so_far


def _days(duration: timedelta) -> str:
    days = duration / timedelta(days=1)
    return f"{days:g} day{'' if days == 1 else 's'}"
