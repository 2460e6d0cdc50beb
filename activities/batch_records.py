"""Records of a call batch: the results so far, from which the next attempt of the activity continues.

A record must survive the death of the worker, and cost much less than an activity. Writing a file takes 0.2 ms, a
heartbeat that the server acknowledges takes 1 to 2 ms, and a request to a bucket may take longer than an activity. So
the records are in the payload store if the store is a folder, otherwise in heartbeats. Records are not synced to disk:
if a record is lost, its calls are only repeated, with their idempotency keys. This module must not import workflows.
"""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pydantic_core
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.protocol.call_batches import CallBatchResult, call_batch_result_from_json
from dagwright.store import PayloadStore, StoreUnavailable
from dagwright.store.folder import FolderStore

_RPC_TIMEOUT = timedelta(seconds=2)
_LIFETIME = timedelta(days=1)
"""Lifetime of a record whose batch could not delete it, because the worker died."""
_DELETE_AFTER_S = 30.0
"""Time from the first record of a batch to the deletion of its records; the server has the batch's result by then."""


class Records(Protocol):
    """Records of one batch."""

    async def read_earlier_results(self) -> CallBatchResult:
        """Return the results that earlier attempts recorded."""
        ...

    async def record(self, result: CallBatchResult) -> bool:
        """Record all results so far; return whether this succeeded. If not, the batch must not continue."""
        ...


class RecordsFactory:
    """Creates the `Records` of each batch of a worker, and later deletes records in the payload store.

    Args:
        store: payload store of the worker.
        client: client of the worker.
    """

    def __init__(self, store: PayloadStore, client: Client) -> None:
        self._store, self._client = store, client
        self._deletions: set[asyncio.Task[None]] = set()

    def records_of(self, info: activity.Info) -> Records:
        """Return the records of the batch of an activity."""
        if isinstance(self._store, FolderStore):
            return StoreRecords(self._store, info, delete_later=self._delete_later)
        return HeartbeatRecords(self._client, info)

    def _delete_later(self, key: str) -> None:
        asyncio.get_running_loop().call_later(_DELETE_AFTER_S, self._start_deletion, key)

    def _start_deletion(self, key: str) -> None:
        task = asyncio.ensure_future(self._delete(key))
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _delete(self, key: str) -> None:
        with suppress(StoreUnavailable):
            # The time is after the expiry of the entry, so that the entry is deleted although it has not expired yet.
            await self._store.delete_cache_entry(key, expired_before=datetime.now(UTC) + 2 * _LIFETIME)


class HeartbeatRecords:
    """Records in the details of heartbeats that the server has acknowledged."""

    def __init__(self, client: Client, info: activity.Info) -> None:
        self._handle = client.get_async_activity_handle(task_token=info.task_token)
        self._details = info.heartbeat_details

    async def read_earlier_results(self) -> CallBatchResult:
        """Return the results that earlier attempts recorded."""
        return _decode_result(self._details[0]) if self._details else CallBatchResult()

    async def record(self, result: CallBatchResult) -> bool:
        """Record all results so far; see `Records`."""
        try:
            await self._handle.heartbeat(result.to_json(), rpc_timeout=_RPC_TIMEOUT)
        except (AsyncActivityCancelledError, RPCError):
            return False
        return True


class StoreRecords:
    """Records in one cache entry of the payload store. The key of the entry is derived from the activity."""

    def __init__(self, store: PayloadStore, info: activity.Info, *, delete_later: Callable[[str], None]) -> None:
        self._store, self._attempt, self._delete_later = store, info.attempt, delete_later
        # Two batches of a run that start from the same call have the same activity ID, but different scheduled times.
        identity = [info.namespace, info.workflow_run_id, info.activity_id, info.scheduled_time.isoformat()]
        self._key = hashlib.sha256(pydantic_core.to_json(["call batch", *identity])).hexdigest()
        self._is_deletion_scheduled = False

    async def read_earlier_results(self) -> CallBatchResult:
        """Return the results that earlier attempts recorded."""
        content = None
        if self._attempt > 1:
            with suppress(StoreUnavailable):
                content = await self._store.get_cache_entry(self._key)
        with suppress(ValueError):
            return _decode_result(json_from_bytes(content or b"null"))
        return CallBatchResult()

    async def record(self, result: CallBatchResult) -> bool:
        """Record all results so far; see `Records`."""
        try:
            content = pydantic_core.to_json(result.to_json())
            await self._store.put_cache_entry(self._key, content, expires_at=datetime.now(UTC) + _LIFETIME)
        except StoreUnavailable:
            return False
        if not self._is_deletion_scheduled:
            self._is_deletion_scheduled = True
            self._delete_later(self._key)
        return True


def _decode_result(encoded: Any) -> CallBatchResult:
    with suppress(ValueError):
        return call_batch_result_from_json(encoded)
    return CallBatchResult()
