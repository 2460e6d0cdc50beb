"""Clean-up of the store: the time before which payloads are removed, and the conditions that stop the clean-up."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.store import ref_of
from dagwright.store.clean_up import (
    MARGIN,
    Amount,
    CacheUsage,
    ListedRun,
    NamespaceRetention,
    RemovalCutoff,
    RetentionUnknown,
    StoreUsage,
    measure_cache,
    measure_payloads,
    removal_cutoff,
    remove_expired_entries,
    remove_payloads,
)
from dagwright.store.folder import FolderStore

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=300)
RETENTION = timedelta(days=90)
CUTOFF_BY_RETENTION = RemovalCutoff(
    NOW - RETENTION - MARGIN, "the namespace default retains runs for 90 days, and a day is added"
)


def _removal_cutoff(
    *runs: ListedRun, retention: timedelta = RETENTION, owner_namespaces: tuple[str, ...] = ("me",)
) -> RemovalCutoff:
    return removal_cutoff(
        NamespaceRetention("default", "me", retention, runs), owner_namespaces=owner_namespaces, now=NOW
    )


OLDEST_RUN = ListedRun("a", "1", "1", LONG_AGO)
CUTOFF_BY_OLDEST_RUN = RemovalCutoff(
    LONG_AGO - MARGIN, "the run 'a', which started one day after this time, is still listed"
)


@pytest.mark.parametrize(
    ("runs", "cutoff"),
    [
        ([], CUTOFF_BY_RETENTION),
        ([ListedRun("a", "1", "1", NOW - timedelta(days=5))], CUTOFF_BY_RETENTION),
        ([ListedRun("a", "1", "1", NOW - RETENTION)], CUTOFF_BY_RETENTION),
        ([ListedRun("b", "2", "2", NOW), OLDEST_RUN], CUTOFF_BY_OLDEST_RUN),
        # A continued run counts from the start of its first execution, and a sub-plan from the start of its root run.
        ([ListedRun("a", "2", "1", NOW, chain_started_at=LONG_AGO)], CUTOFF_BY_OLDEST_RUN),
        ([OLDEST_RUN, ListedRun("a", "2", "1", NOW)], CUTOFF_BY_OLDEST_RUN),
        ([ListedRun("a/b", "2", "2", NOW, root_id="a"), OLDEST_RUN], CUTOFF_BY_OLDEST_RUN),
    ],
)
def test_cutoff_follows_from_the_retention_or_the_start_of_the_oldest_run(
    runs: list[ListedRun], cutoff: RemovalCutoff
) -> None:
    assert _removal_cutoff(*runs) == cutoff


UNKNOWN_CHAIN_START = (
    "the run 'a' continues a run that is no longer listed, and does not report when that run started; 'a' has to end "
    "and leave the list first"
)
UNKNOWN_ROOT_START = (
    "the run 'a/b' is a sub-plan of 'a', which is no longer listed, so the start of the root run is unknown; "
    "the sub-plan has to end and leave the list first"
)


@pytest.mark.parametrize(
    ("runs", "options", "reason"),
    [
        ([ListedRun("a", "2", "1", NOW)], {}, UNKNOWN_CHAIN_START),
        ([ListedRun("a/b", "2", "2", NOW, root_id="a")], {}, UNKNOWN_ROOT_START),
        # The listed run `a` started after the sub-plan, so `a` is not the root run.
        ([ListedRun("a/b", "2", "2", LONG_AGO, root_id="a"), ListedRun("a", "3", "3", NOW)], {}, UNKNOWN_ROOT_START),
        (
            [],
            {"owner_namespaces": ("me", "other")},
            "workers of other namespaces use the store too (other; this namespace is me); give each namespace its "
            "own store, or, if the other namespaces no longer exist, remove their files in owners/ of the store",
        ),
        (
            [],
            {"owner_namespaces": ()},
            "no worker of the namespace default (me) has used the store; start a worker with this store, or check "
            "which Temporal server and store the command uses",
        ),
    ],
)
def test_unknown_start_of_a_run_or_unexpected_owner_namespaces_stop_the_clean_up(
    runs: list[ListedRun], options: Any, reason: str
) -> None:
    with pytest.raises(RetentionUnknown) as error:
        _removal_cutoff(*runs, **options)
    assert str(error.value) == reason


def test_unknown_retention_stops_the_clean_up() -> None:
    with pytest.raises(RetentionUnknown, match="the namespace default does not report its retention period"):
        _removal_cutoff(retention=timedelta(0))


def test_workflows_with_payloads_are_all_workflows_except_sessions_limits_and_notes() -> None:
    workflows = {value for name, value in vars(wire).items() if name.startswith("WORKFLOW_")}
    # Sessions, limits and notes do not reference payloads of the store. Runs do.
    assert workflows - {wire.WORKFLOW_SESSION, wire.WORKFLOW_CALL_LIMIT} - wire.NOTE_WORKFLOWS == wire.WORKFLOWS


async def test_only_payloads_before_the_cutoff_are_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    contents = [b"x" * number for number in range(100)]
    for number, content in enumerate(contents):
        ref = await store.put(content)
        (path,) = tmp_path.rglob(ref)
        os.utime(path, (0, LONG_AGO.timestamp() + number))
    cutoff = RemovalCutoff(LONG_AGO + timedelta(seconds=80), "the cutoff of a test")
    assert await measure_payloads(store, cutoff) == StoreUsage(Amount(100, 4950), LONG_AGO, Amount(80, 3160))
    assert await measure_payloads(store, None) == StoreUsage(Amount(100, 4950), LONG_AGO, None)
    assert await remove_payloads(store, cutoff) == Amount(80, 3160)
    assert sorted([entry.ref async for entry in store.list_payloads()]) == sorted(map(ref_of, contents[80:]))
    assert await remove_payloads(store, cutoff) == Amount()
    assert await measure_payloads(FolderStore(tmp_path / "none"), cutoff) == StoreUsage(Amount(), None, Amount())


async def test_only_expired_cache_entries_are_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    payload_ref = await store.put(b"a payload")
    keys = [f"{number:064x}" for number in range(20)]
    for number, key in enumerate(keys):
        await store.put_cache_entry(key, b"x" * number, expires_at=NOW + timedelta(seconds=number - 5))
    assert await measure_cache(store, now=NOW) == CacheUsage(Amount(20, 190), Amount(5, 10))
    assert await remove_expired_entries(store, now=NOW) == Amount(5, 10)
    assert sorted([entry.key async for entry in store.cache_entries()]) == keys[5:]
    assert await remove_expired_entries(store, now=NOW) == Amount()
    assert await store.get(payload_ref) == b"a payload"
    assert await measure_cache(FolderStore(tmp_path / "none"), now=NOW) == CacheUsage(Amount(), Amount())
