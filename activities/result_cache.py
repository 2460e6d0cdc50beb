"""Cache of `pure` and `read` tool results for equal calls: in the memory of a process and in the payload store.

One `ResultCache` serves all calls of a worker. The cache never makes a call fail. A store that does not respond is
skipped for a while. An unreadable entry counts as missing. In both cases the tool is called. This module must not
import workflows.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog

from dagwright.activities.cache_admission import CACHED_CALL_MIN_S, CacheAdmission, seconds_without_waiting
from dagwright.activities.cached_results import CachedResult, decode_stored_result, encode_stored_result
from dagwright.activities.tool_runs import Outcome
from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES
from dagwright.core.model.times import MAX_DURATION
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreUnavailable
from dagwright.tools.code_fingerprint import CodeFingerprinter

T = TypeVar("T")

MAX_MEMORY_BYTES = 64 * 1024 * 1024
_MAX_ENTRY_BYTES = MAX_MEMORY_BYTES // 8
_ENTRY_OVERHEAD_BYTES = 600
"""Memory of an entry besides its content."""
RETENTION_S = 30 * 86_400.0
"""How long the store keeps a result without a maximum age; older results are rarely requested."""
_LOOKUP_TIMEOUT_S = 2.0
"""Timeout of a lookup in the store; calling the tool is better than a longer wait."""
_TRANSFER_TIMEOUT_S = 30.0
"""Timeout of a write, and of loading large content."""
_FLUSH_TIMEOUT_S = 1.0
"""How long a call waits for its result to be written, so that results of ended runs are available to later runs."""
_SKIP_STORE_S = 30.0
"""How long a failed store is skipped."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """A cache lookup for a call.

    Args:
        key: key from `result_key`.
        max_age_s: maximum age of the result; `None` for any age.
        is_pure: whether the tool is pure; such a tool may be faster than the store.
        run_id: ID of the run that makes the call.
        task_id: ID of the call's task in that run.
    """

    key: str
    tool: str
    max_age_s: float | None
    is_pure: bool
    run_id: str
    task_id: str


class ResultCache:
    """Cached results for the calls of a worker. Only `find_in_memory` and `put` may be called outside its event loop.

    Args:
        store: the payload store.
        clock: returns the seconds since the epoch.
    """

    def __init__(self, store: PayloadStore, *, clock: Callable[[], float] = time.time) -> None:
        self.admission = CacheAdmission()
        self.fingerprints = CodeFingerprinter()
        """Fingerprints of tool code. Compute them when a worker starts, before the files differ from the imported
        code."""
        self._store = store
        self._clock = clock
        self._memory: OrderedDict[str, CachedResult] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._pending_results: dict[str, asyncio.Future[CachedResult | None]] = {}
        """Cache key -> result of the call in flight; `None` if the call fails."""
        self._writes: dict[asyncio.Task[None], str] = {}
        """Write task -> its key."""
        self._skip_store_until = 0.0

    async def get_or_call(
        self, lookup: CacheLookup, call: Callable[[], Awaitable[Outcome]]
    ) -> tuple[Outcome, CachedResult | None]:
        """Return the outcome of a call and, if a cached result replaces the call, that result.

        If an equal call is in flight, wait for its result; if that call fails, make this call.
        """
        pending_result = self._pending_results.get(lookup.key)
        if pending_result is not None:
            shared_result = await asyncio.shield(pending_result)
            if shared_result is not None and self._is_fresh(shared_result, lookup):
                return Outcome(shared_result.content), shared_result
            return (await self._call_and_cache(lookup, call))[0], None
        pending_result = self._pending_results[lookup.key] = asyncio.get_running_loop().create_future()
        result: CachedResult | None = None
        try:
            result = await self.find(lookup)
            if result is not None:
                return Outcome(result.content), result
            outcome, result = await self._call_and_cache(lookup, call)
            return outcome, None
        finally:
            del self._pending_results[lookup.key]
            pending_result.set_result(result)

    async def _call_and_cache(
        self, lookup: CacheLookup, call: Callable[[], Awaitable[Outcome]]
    ) -> tuple[Outcome, CachedResult | None]:
        made_at, started_s = self._clock(), time.monotonic()
        outcome = await call()
        took_s = time.monotonic() - started_s
        if outcome.error is not None or (outcome.used_model and lookup.max_age_s is None):
            return outcome, None
        if lookup.is_pure and outcome.cpu_s is not None and not outcome.used_model:
            took_s = seconds_without_waiting(took_s, cpu_s=outcome.cpu_s)
        result = CachedResult(outcome.result, made_at, took_s, lookup.run_id, lookup.task_id)
        if self.put(lookup, result):
            self.start_write(lookup, result)
        return outcome, result

    async def find(self, lookup: CacheLookup) -> CachedResult | None:
        """Return the cached result of an equal call, if there is a fresh result."""
        cached_result = self.find_in_memory(lookup)
        if cached_result is not None:
            return cached_result
        if not lookup.is_pure:
            return await self.find_in_store(lookup)
        if not self.admission.should_look_up(lookup.tool) or not self.admission.should_query_store(lookup.tool):
            return None
        started_s = time.monotonic()
        cached_result = await self.find_in_store(lookup)
        self.admission.record_store_latency(time.monotonic() - started_s)
        self.admission.record_lookup(
            lookup.tool, cached_call_s=cached_result.took_s if cached_result is not None else None
        )
        return cached_result

    def find_in_memory(self, lookup: CacheLookup) -> CachedResult | None:
        """Return a fresh result from the memory of the process; thread-safe."""
        with self._lock:
            cached_result = self._memory.get(lookup.key)
            if cached_result is None or not self._is_fresh(cached_result, lookup):
                return None
            self._memory.move_to_end(lookup.key)
            return cached_result

    def put(self, lookup: CacheLookup, result: CachedResult) -> bool:
        """Cache a result in memory unless its call is faster than the cache; return whether the result was cached.

        Thread-safe; `start_write` puts the result into the store.
        """
        if lookup.is_pure:
            if result.took_s <= CACHED_CALL_MIN_S:
                return False
            self.admission.record_slow_call(lookup.tool, result.took_s)
        self._put_in_memory(lookup.key, result)
        return True

    def start_write(self, lookup: CacheLookup, result: CachedResult) -> None:
        """Start writing a result to the store; `flush` waits for the end."""
        task = asyncio.create_task(self._write_entry(lookup, result))
        self._writes[task] = lookup.key
        task.add_done_callback(self._writes.pop)

    async def flush(self, keys: Collection[str]) -> None:
        """Wait a moment for the pending writes of `keys`, so that later calls find the results."""
        writes = [task for task, key in self._writes.items() if key in keys]
        if writes:
            await asyncio.wait(writes, timeout=_FLUSH_TIMEOUT_S)

    async def find_in_store(self, lookup: CacheLookup) -> CachedResult | None:
        """Return a fresh result from the store, and cache the result in memory."""
        encoded = await self._query_store(lambda: self._store.get_cache_entry(lookup.key), timeout_s=_LOOKUP_TIMEOUT_S)
        stored_result = decode_stored_result(encoded) if encoded is not None else None
        if stored_result is None or not self._is_fresh(stored_result.result, lookup):
            return None
        result = stored_result.result
        if stored_result.ref is not None:
            content = await self._load_content(stored_result.ref)
            if content is None:
                return None
            result = replace(result, content=content)
        self._put_in_memory(lookup.key, result)
        return result

    async def _load_content(self, ref: str) -> bytes | None:
        try:
            return await self._query_store(lambda: self._store.get(ref), timeout_s=_TRANSFER_TIMEOUT_S)
        except (PayloadMissing, PayloadDamaged):
            return None

    async def _write_entry(self, lookup: CacheLookup, result: CachedResult) -> None:
        # Hashing 100 MB takes long, so a large result is converted in a thread.
        is_large = len(result.content) > MAX_INLINE_VALUE_BYTES
        content = await asyncio.to_thread(encode_stored_result, result) if is_large else encode_stored_result(result)
        lifetime_s = RETENTION_S if lookup.max_age_s is None else min(lookup.max_age_s, MAX_DURATION.total_seconds())
        expires_at = datetime.fromtimestamp(result.made_at, UTC) + timedelta(seconds=lifetime_s)
        await self._query_store(
            lambda: self._store.put_cache_entry(lookup.key, content, expires_at=expires_at),
            timeout_s=_TRANSFER_TIMEOUT_S,
        )

    async def _query_store(self, query: Callable[[], Awaitable[T]], *, timeout_s: float) -> T | None:
        """Query the store. If the store does not respond, log this once, skip the store for a while, return `None`."""
        if time.monotonic() < self._skip_store_until:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await query()
        except (StoreUnavailable, TimeoutError) as error:
            if time.monotonic() >= self._skip_store_until:
                self._skip_store_until = time.monotonic() + _SKIP_STORE_S
                reason = str(error) or f"the payload store did not answer within {timeout_s:g} s"
                structlog.get_logger("dagwright.activities").warning(
                    "the result cache skips the payload store for now", reason=reason
                )
            return None

    def _is_fresh(self, result: CachedResult, lookup: CacheLookup) -> bool:
        return lookup.max_age_s is None or self._clock() < result.made_at + lookup.max_age_s

    def _put_in_memory(self, key: str, result: CachedResult) -> None:
        if len(result.content) > _MAX_ENTRY_BYTES:
            return
        with self._lock:
            replaced_result = self._memory.pop(key, None)
            self._memory[key] = result
            self._memory_bytes += _size_of(result) - (_size_of(replaced_result) if replaced_result is not None else 0)
            while self._memory_bytes > MAX_MEMORY_BYTES:
                _, evicted_result = self._memory.popitem(last=False)
                self._memory_bytes -= _size_of(evicted_result)


def _size_of(result: CachedResult) -> int:
    return len(result.content) + _ENTRY_OVERHEAD_BYTES
