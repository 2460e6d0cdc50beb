"""What may be removed from a payload store: a rule that needs no look into any run, and the removal by it.

A payload may go when nothing that the namespace still shows can refer to it. Whoever gives a reference to a run puts or
renews the payload after that run began; so what was put last before the beginning of the oldest run in sight belongs
to runs that are gone. The retention is asked for as well: a run that was deleted by hand may be brought back from an
archive, and the list of runs may lag. What is not known is never guessed: then nothing is removed. What a store only
remembers goes when it has expired: no run hangs on it.
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
    """It can not be said what is still needed; the text is a part of a sentence that says why and what to do."""


@dataclass(frozen=True, slots=True)
class RetainedRun:
    """A run that the namespace still shows, open or closed.

    Args:
        first_run_id: the run that its chain of continuations and resets began with; its own id if it is the first.
        started_at: when this run started; after a continuation that is the moment of the continuation.
        began_at: when the first run of its chain began, if the run says so itself.
        root_id: workflow id of the run whose sub-plan it is, at the top; None if it is nobody's.
    """

    workflow_id: str
    run_id: str
    first_run_id: str
    started_at: datetime
    began_at: datetime | None = None
    root_id: str | None = None

    @property
    def known_beginning(self) -> datetime:
        """Returns the earliest beginning that the run itself tells."""
        return self.started_at if self.began_at is None else min(self.began_at, self.started_at)


@dataclass(frozen=True, slots=True)
class Retained:
    """Everything that the rule asks about a namespace.

    Args:
        namespace: its name, for people.
        namespace_id: its id, which never belongs to another one.
        retention: how long it shows a closed run.
        runs: all runs that it shows, in any order.
    """

    namespace: str
    namespace_id: str
    retention: timedelta
    runs: Collection[RetainedRun]


@dataclass(frozen=True, slots=True)
class Bound:
    """What was put or renewed before `renewed_before` may go; `reason` is a clause that says why not more."""

    renewed_before: datetime
    reason: str


def bound_of(retained: Retained, *, owners: Collection[str], now: datetime) -> Bound:
    """Returns up to which age payloads are still needed.

    Args:
        owners: who has claimed the store.
        now: the present, aware.

    Raises:
        NeedUnknown: the store has other users, or the beginning of a run is not known.

    Complexity: O(runs).
    """
    _refuse_other_owners(retained, owners)
    if retained.retention <= timedelta(0):
        raise NeedUnknown(f"the namespace {retained.namespace} does not say how long it keeps closed runs")
    kept_since = now - retained.retention - MARGIN
    by_age = Bound(
        kept_since,
        f"the namespace {retained.namespace} keeps runs for {_days(retained.retention)}, and a day is added",
    )
    began = _beginnings(retained.runs)
    oldest = min(began, key=lambda workflow_id: (began[workflow_id], workflow_id), default=None)
    if oldest is None or began[oldest] - MARGIN >= kept_since:
        return by_age
    return Bound(began[oldest] - MARGIN, f"the run {oldest!r}, which began then, is still kept, and a day is added")


def _refuse_other_owners(retained: Retained, owners: Collection[str]) -> None:
    others = sorted(set(owners) - {retained.namespace_id})
    if others:
        raise NeedUnknown(
            f"workers of other namespaces use the store too ({', '.join(others[:5])}; this one is "
            f"{retained.namespace_id}); give each a store of its own, or, if the others are gone for good, remove "
            f"their notes in {OWNERS}/ of the store"
        )
    if retained.namespace_id not in owners:
        raise NeedUnknown(
            f"no worker of the namespace {retained.namespace} ({retained.namespace_id}) has used the store; start one "
            "with this store, or check which server and which store the command was given"
        )


def _beginnings(runs: Collection[RetainedRun]) -> dict[str, datetime]:
    """Returns the earliest beginning of each workflow id.

    Raises:
        NeedUnknown: a run is continued from one, or the sub-plan of one, whose beginning nobody tells.
    """
    began: dict[str, datetime] = {}
    for run in runs:
        began[run.workflow_id] = min(run.known_beginning, began.get(run.workflow_id, run.known_beginning))
    run_ids = {run.run_id for run in runs}
    for run in runs:
        if run.began_at is None and run.first_run_id not in run_ids:
            raise NeedUnknown(
                f"the run {run.workflow_id!r} goes on with one that is not shown any more, and does not say when that "
                "began; it has to end and leave the list first"
            )
        # A sub-plan may hold references of its root, however much later it started itself.
        if run.root_id is not None and not (run.root_id in began and began[run.root_id] <= run.known_beginning):
            raise NeedUnknown(
                f"the run {run.workflow_id!r} is a sub-plan of {run.root_id!r}, which is not shown any more, so it is "
                "not known when that began; it has to end and leave the list first"
            )
    return began


@dataclass(frozen=True, slots=True)
class Amount:
    """Payloads, or what is remembered, counted."""

    count: int = 0
    size_bytes: int = 0

    def plus(self, one: StoredPayload | Remembered) -> "Amount":
        """Returns the amount with one more."""
        return Amount(self.count + 1, self.size_bytes + one.size_bytes)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a store holds: all of it, its oldest, and what of it lies before a bound (None without a bound)."""

    all: Amount
    oldest: datetime | None
    removable: Amount | None


async def survey(store: PayloadStore, bound: Bound | None) -> Holdings:
    """Counts what a store holds.

    Raises:
        StoreUnavailable: the store can not be read now.
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
    """What a store remembers: all of it, and what of it has expired."""

    all: Amount
    expired: Amount


async def survey_memories(store: PayloadStore, *, now: datetime) -> Memories:
    """Counts what a store remembers.

    Raises:
        StoreUnavailable: the store can not be read now.
    """
    everything, expired = Amount(), Amount()
    async for one in store.remembered():
        everything = everything.plus(one)
        expired = expired.plus(one) if one.expires_at < now else expired
    return Memories(everything, expired)


async def forget_expired(store: PayloadStore, *, now: datetime) -> Amount:
    """Removes what has expired of what a store remembers; returns what it removed.

    Raises:
        StoreUnavailable: the store can not be used now.
    """
    removed = Amount()
    async for one in store.remembered():
        if one.expires_at < now and await store.forget(one.key, expired_before=now):
            removed = removed.plus(one)
    return removed


async def remove(store: PayloadStore, bound: Bound) -> Amount:
    """Removes what lies before the bound and was not renewed meanwhile; returns what it removed.

    Raises:
        StoreUnavailable: the store can not be used now; what is removed by then stays removed, calling again goes on.
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
