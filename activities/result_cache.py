"""Results of `pure` and `read` tools that equal calls use again: in the memory of a process, and in the payload store.

One `ResultCache` serves all calls of a worker. It never stands in the way: a store that does not answer is asked again
after a while, what cannot be read is not there, and then the tool is called as ever. This module must not import
workflows.
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

from dagwright.activities.cached_results import CachedResult, from_stored_form, to_stored_form
from dagwright.activities.look_worth import SLOW_S, LookWorth, call_seconds
from dagwright.activities.tool_runs import Outcome
from dagwright.core.boundary.limits import INLINE_VALUE_BYTES
from dagwright.core.model.times import LONGEST
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreUnavailable
from dagwright.tools.code import CodeReader

T = TypeVar("T")

MEMORY_BYTES = 64 * 1024 * 1024
_LARGEST_IN_MEMORY = MEMORY_BYTES // 8
_ENTRY_BYTES = 600
"""What a result takes in memory beside its content."""
KEPT_FOR_S = 30 * 86_400.0
"""How long the store remembers a result that names no time to live itself: older ones are rarely asked for again."""
_PATIENCE_S = 2.0
"""How long the store may take to find something; to call the tool is better than to wait longer."""
_PATIENCE_FOR_LARGE_S = 30.0
_WRITING_S = 1.0
"""How long a call waits until its result is written: a run that is over has left what it found to the next one."""
_REST_S = 30.0
"""How long a store that failed is left alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call whose result may be used again.

    Args:
        key: of `result_key`.
        max_age_s: how old a result may be; `None` for any age.
        is_pure: a pure tool, which may be quicker than the store.
        workflow_id: the run that asks.
        node: id of the task in that run.
    """

    key: str
    tool: str
    max_age_s: float | None
    is_pure: bool
    workflow_id: str
    node: str


class ResultCache:
    """The results that the calls of a worker use again; belongs to one event loop but for `in_memory` and `keep`.

    Args:
        store: the payload store.
        clock: tells the seconds since the epoch.
    """

    def __init__(self, store: PayloadStore, *, clock: Callable[[], float] = time.time) -> None:
        self.worth = LookWorth()
        self.codes = CodeReader()
        """Reads the code behind tools; to be asked when a worker starts, as long as files are as they were imported."""
        self._store = store
        self._clock = clock
        self._memory: OrderedDict[str, CachedResult] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._flights: dict[str, asyncio.Future[CachedResult | None]] = {}
        self._writing: dict[asyncio.Task[None], str] = {}
        """Task that writes -> the key it writes to."""
        self._rests_until = 0.0

    async def answer(self, asked: Asked, call: Callable[[], Awaitable[Outcome]]) -> tuple[Outcome, CachedResult | None]:
        """Returns how a call ended, and which earlier call made the result if this one was not made.

        While an equal call is under way, others wait for it; if it fails, each of them makes its own.
        """
        flight = self._flights.get(asked.key)
        if flight is not None:
            found = await asyncio.shield(flight)
            if found is not None and self._is_fresh(found, asked):
                return Outcome(found.content), found
            return (await self._called(asked, call))[0], None
        flight = self._flights[asked.key] = asyncio.get_running_loop().create_future()
        result: CachedResult | None = None
        try:
            result = await self.find(asked)
            if result is not None:
                return Outcome(result.content), result
            outcome, result = await self._called(asked, call)
            return outcome, None
        finally:
            del self._flights[asked.key]
            flight.set_result(result)

    async def _called(
        self, asked: Asked, call: Callable[[], Awaitable[Outcome]]
    ) -> tuple[Outcome, CachedResult | None]:
        made_at, began_s = self._clock(), time.monotonic()
        outcome = await call()
        took_s = time.monotonic() - began_s
        if outcome.error is not None or (outcome.asked_model and asked.max_age_s is None):
            return outcome, None
        if asked.is_pure and outcome.worked_s is not None and not outcome.asked_model:
            took_s = call_seconds(took_s, worked_s=outcome.worked_s)
        result = CachedResult(outcome.result, made_at, took_s, asked.workflow_id, asked.node)
        if self.keep(asked, result):
            self.write(asked, result)
        return outcome, result

    async def find(self, asked: Asked) -> CachedResult | None:
        """Returns the result of an equal call that is not too old, if there is one."""
        found = self.in_memory(asked)
        if found is not None:
            return found
        if not asked.is_pure:
            return await self.in_store(asked)
        if not self.worth.of(asked.tool) or not self.worth.of_store(asked.tool):
            return None
        began_s = time.monotonic()
        found = await self.in_store(asked)
        self.worth.asked_store(time.monotonic() - began_s)
        self.worth.looked(asked.tool, found_s=found.took_s if found is not None else None)
        return found

    def in_memory(self, asked: Asked) -> CachedResult | None:
        """Returns the same from the memory of the process alone; safe across threads."""
        with self._lock:
            found = self._memory.get(asked.key)
            if found is None or not self._is_fresh(found, asked):
                return None
            self._memory.move_to_end(asked.key)
            return found

    def keep(self, asked: Asked, result: CachedResult) -> bool:
        """Keeps the result of a call in memory unless to call again is quicker, and returns whether it was kept.

        Safe across threads; `write` puts it into the store.
        """
        if asked.is_pure:
            if result.took_s <= SLOW_S:
                return False
            self.worth.called(asked.tool, result.took_s)
        self._take_into_memory(asked.key, result)
        return True

    def write(self, asked: Asked, result: CachedResult) -> None:
        """Starts to put a result into the store; `written` waits until it is there."""
        task = asyncio.create_task(self._write(asked, result))
        self._writing[task] = asked.key
        task.add_done_callback(self._writing.pop)

    async def written(self, keys: Collection[str]) -> None:
        """Waits a moment until what was kept under `keys` is in the store, so that whoever comes next finds it."""
        own = [task for task, key in self._writing.items() if key in keys]
        if own:
            await asyncio.wait(own, timeout=_WRITING_S)

    async def in_store(self, asked: Asked) -> CachedResult | None:
        """Returns the same from the store alone, and takes it into memory."""
        remembered = await self._asked(lambda: self._store.recall(asked.key), patience_s=_PATIENCE_S)
        form = from_stored_form(remembered) if remembered is not None else None
        if form is None or not self._is_fresh(form.result, asked):
            return None
        result = form.result
        if form.ref is not None:
            content = await self._content_of(form.ref)
            if content is None:
                return None
            result = replace(result, content=content)
        self._take_into_memory(asked.key, result)
        return result

    async def _content_of(self, ref: str) -> bytes | None:
        try:
            return await self._asked(lambda: self._store.get(ref), patience_s=_PATIENCE_FOR_LARGE_S)
        except (PayloadMissing, PayloadDamaged):
            return None

    async def _write(self, asked: Asked, result: CachedResult) -> None:
        # To hash a hundred megabytes takes a while.
        is_large = len(result.content) > INLINE_VALUE_BYTES
        content = await asyncio.to_thread(to_stored_form, result) if is_large else to_stored_form(result)
        lasts_s = KEPT_FOR_S if asked.max_age_s is None else min(asked.max_age_s, LONGEST.total_seconds())
        expires_at = datetime.fromtimestamp(result.made_at, UTC) + timedelta(seconds=lasts_s)
        await self._asked(
            lambda: self._store.remember(asked.key, content, expires_at=expires_at), patience_s=_PATIENCE_FOR_LARGE_S
        )

    async def _asked(self, ask: Callable[[], Awaitable[T]], *, patience_s: float) -> T | None:
        """Asks the store; `None` if it does not answer, which is told once, and then it is left alone for a while."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(patience_s):
                return await ask()
        except (StoreUnavailable, TimeoutError) as error:
            if time.monotonic() >= self._rests_until:
                self._rests_until = time.monotonic() + _REST_S
                reason = str(error) or f"the payload store did not answer within {patience_s:g} s"
                structlog.get_logger("dagwright.activities").warning(
                    "results are not used again for now", reason=reason
                )
            return None

    def _is_fresh(self, result: CachedResult, asked: Asked) -> bool:
        return asked.max_age_s is None or self._clock() < result.made_at + asked.max_age_s

    def _take_into_memory(self, key: str, result: CachedResult) -> None:
        if len(result.content) > _LARGEST_IN_MEMORY:
            return
        with self._lock:
            before = self._memory.pop(key, None)
            self._memory[key] = result
            self._memory_bytes += _size_of(result) - (_size_of(before) if before is not None else 0)
            while self._memory_bytes > MEMORY_BYTES:
                _, oldest = self._memory.popitem(last=False)
                self._memory_bytes -= _size_of(oldest)


def _size_of(result: CachedResult) -> int:
    return len(result.content) + _ENTRY_BYTES
