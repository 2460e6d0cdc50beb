"""Results that the calls of one slice of a region use again. This module must not import workflows."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, wait

from dagwright.activities.cached_results import CachedResult, result_key
from dagwright.activities.result_cache import Asked, ResultCache
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.expressions.value_refs import WorkerBinding
from dagwright.core.model.tasks import Task
from dagwright.protocol.outcomes import CallTooLarge, encode_arguments
from dagwright.tools.context import Cancellation
from dagwright.tools.results import json_bytes

_LOOK_S = 0.05
"""How often a thread that waits for the store looks whether it shall stop."""


class PureResults:
    """Results for one slice; `written` belongs to the event loop, all else to the thread of the slice.

    Args:
        cache: of the worker.
        codes: tool -> what `CodeReader` says of it.
        workflow_id: of the run.
        loop: of the worker.
        cancellation: tells that the slice shall stop.
    """

    def __init__(
        self,
        cache: ResultCache,
        codes: Mapping[str, str | None],
        *,
        workflow_id: str,
        loop: asyncio.AbstractEventLoop,
        cancellation: Cancellation,
    ) -> None:
        self.worth = cache.worth
        self._cache = cache
        self._codes = codes
        self._workflow_id = workflow_id
        self._loop = loop
        self._cancellation = cancellation
        self._kept: list[tuple[Asked, CachedResult]] = []

    def find(self, task: Task, bindings: Sequence[WorkerBinding]) -> CachedResult | None:
        """Returns the result of an equal call, if there is one; to be asked if it is worth it.

        Raises:
            CancelledError: the slice was told to stop while the store did not answer.
        """
        asked = self._asked(task, bindings)
        found = self._in_memory_or_store(asked) if asked is not None else None
        self.worth.looked(task.node.tool, found_s=found.took_s if found is not None else None)
        return found

    def _in_memory_or_store(self, asked: Asked) -> CachedResult | None:
        found = self._cache.in_memory(asked)
        if found is not None or not self.worth.of_store(asked.tool):
            return found
        began_s = time.monotonic()
        looking = asyncio.run_coroutine_threadsafe(self._cache.in_store(asked), self._loop)
        while not wait([looking], timeout=_LOOK_S).done:
            if self._cancellation.is_requested:
                looking.cancel()
                raise CancelledError
        found = looking.result()
        self.worth.asked_store(time.monotonic() - began_s)
        return found

    def keep(self, task: Task, bindings: Sequence[WorkerBinding], value: object, *, took_s: float) -> None:
        """Keeps the result of a call that took long."""
        asked = self._asked(task, bindings)
        if asked is None:
            return
        result = CachedResult(json_bytes(value), time.time() - took_s, took_s, self._workflow_id, task.id)
        if self._cache.keep(asked, result):
            self._kept.append((asked, result))

    async def written(self) -> None:
        """Waits a moment until what was kept is in the store."""
        kept, self._kept = self._kept, []
        for asked, result in kept:
            self._cache.write(asked, result)
        if kept:
            await self._cache.written({asked.key for asked, _ in kept})

    def _asked(self, task: Task, bindings: Sequence[WorkerBinding]) -> Asked | None:
        code, max_age_s = self._codes.get(task.node.tool), task.node.cache_s
        if code is None or max_age_s == 0:
            return None
        try:
            # As a run sends them to a tool by itself, so that both find the same results.
            arguments = json_from_bytes(encode_arguments(task.arguments)[0])
        except (CallTooLarge, ValueError):
            return None
        key = result_key(task.node.tool, code, arguments=arguments, bindings=bindings)
        if key is None:
            return None
        return Asked(key, task.node.tool, max_age_s, is_pure=True, workflow_id=self._workflow_id, node=task.id)
