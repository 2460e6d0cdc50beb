"""Cached results for the calls of one region batch. This module must not import workflows."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, wait

from dagwright.activities.cached_results import CachedResult, result_key
from dagwright.activities.result_cache import CacheLookup, ResultCache
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.expressions.value_refs import WorkerBinding
from dagwright.core.model.states import Task
from dagwright.protocol.ready_calls import CallTooLarge, encode_arguments
from dagwright.tools.context import Cancellation
from dagwright.tools.result_json import json_bytes

_POLL_INTERVAL_S = 0.05
"""How often a thread that waits for the store checks for cancellation."""


class BatchCache:
    """Cached results for one batch. Call `flush` on the event loop, and all other methods in the batch's thread.

    Args:
        cache: cache of the worker.
        fingerprints: tool -> fingerprint of its code from `CodeFingerprinter`.
        run_id: ID of the run.
        loop: event loop of the worker.
        cancellation: shows whether the batch was cancelled.
    """

    def __init__(
        self,
        cache: ResultCache,
        fingerprints: Mapping[str, str | None],
        *,
        run_id: str,
        loop: asyncio.AbstractEventLoop,
        cancellation: Cancellation,
    ) -> None:
        self.admission = cache.admission
        self._cache = cache
        self._fingerprints = fingerprints
        self._run_id = run_id
        self._loop = loop
        self._cancellation = cancellation
        self._pending_writes: list[tuple[CacheLookup, CachedResult]] = []

    def find(self, task: Task, bindings: Sequence[WorkerBinding]) -> CachedResult | None:
        """Return the cached result of an equal call, if there is one.

        Raises:
            CancelledError: the batch was cancelled while it waited for the store.
        """
        lookup = self._lookup_of(task, bindings)
        cached_result = self._find_result(lookup) if lookup is not None else None
        self.admission.record_lookup(
            task.node.tool, cached_call_s=cached_result.took_s if cached_result is not None else None
        )
        return cached_result

    def _find_result(self, lookup: CacheLookup) -> CachedResult | None:
        cached_result = self._cache.find_in_memory(lookup)
        if cached_result is not None or not self.admission.should_query_store(lookup.tool):
            return cached_result
        started_s = time.monotonic()
        search = asyncio.run_coroutine_threadsafe(self._cache.find_in_store(lookup), self._loop)
        while not wait([search], timeout=_POLL_INTERVAL_S).done:
            if self._cancellation.is_requested:
                search.cancel()
                raise CancelledError
        cached_result = search.result()
        self.admission.record_store_latency(time.monotonic() - started_s)
        return cached_result

    def put(self, task: Task, bindings: Sequence[WorkerBinding], value: object, *, took_s: float) -> None:
        """Cache the result of a slow call."""
        lookup = self._lookup_of(task, bindings)
        if lookup is None:
            return
        result = CachedResult(json_bytes(value), time.time() - took_s, took_s, self._run_id, task.id)
        if self._cache.put(lookup, result):
            self._pending_writes.append((lookup, result))

    async def flush(self) -> None:
        """Write the new results to the store, and wait briefly for the writes to end."""
        writes, self._pending_writes = self._pending_writes, []
        for lookup, result in writes:
            self._cache.start_write(lookup, result)
        if writes:
            await self._cache.flush({lookup.key for lookup, _ in writes})

    def _lookup_of(self, task: Task, bindings: Sequence[WorkerBinding]) -> CacheLookup | None:
        fingerprint, max_age_s = self._fingerprints.get(task.node.tool), task.node.cache_s
        if fingerprint is None or max_age_s == 0:
            return None
        try:
            # Encode the arguments as for an activity, so that batches and activities share cached results.
            arguments = json_from_bytes(encode_arguments(task.arguments)[0])
        except (CallTooLarge, ValueError):
            return None
        key = result_key(task.node.tool, fingerprint, arguments=arguments, bindings=bindings)
        if key is None:
            return None
        return CacheLookup(key, task.node.tool, max_age_s, is_pure=True, run_id=self._run_id, task_id=task.id)
