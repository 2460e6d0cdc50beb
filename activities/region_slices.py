"""Drives a part of a region in a thread: the same scheduler as the run's, and the tools' functions called directly.

A slice starts nodes for a fifth of a second, at least one. It ends as well when its results are many bytes, when it is
told to stop, or when a node takes over its own timeout: such a call cannot be ended, so its thread is left alone. This
module must not import workflows.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from dagwright.activities.look_worth import SLOW_S, WorkClock
from dagwright.activities.pure_calls import PureCalls, PureEnd, timeout_error, timeout_of
from dagwright.core.boundary.limits import (
    INLINE_VALUE_BYTES,
    OFFLOADED_BATCH_BYTES,
    REGION_BATCH_RESULT_BYTES,
    REGION_BATCH_S,
)
from dagwright.core.expressions.projection import largest_result_bytes
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import Attempt, NodeStatus, Record
from dagwright.core.model.tasks import Task
from dagwright.core.scheduler.scheduler import ONE_ATTEMPT
from dagwright.features.regions.batches import BatchInput, end_to_json
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.tools import ToolSpec

Keep = Callable[[Any, CompiledNode], Awaitable[Any]]
"""(result, its node) -> what stands for it in the run."""

KeepFailure = Callable[[Mapping[str, str]], Awaitable[str | None]]
"""The whole text of a failure -> its reference."""

_CANNOT_BE_LEFT = NodeError(
    "needs_own_call",
    "the step has to ask a model, and among the pure steps of a large plan it cannot; give it a `heartbeat`, such as "
    "30s, which makes it a call of its own",
    retryable=False,
)
_TOLD = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED})
"""Ends that the run hears of; what is blocked it works out by itself."""


def begun(given: BatchInput) -> RunScheduler:
    """Returns the scheduler of what a slice was given, to which the ends from outside have been told."""
    scheduler = create_scheduler(given.plan, given.inputs)
    tell_outside(scheduler, given.ended)
    return scheduler


def tell_outside(scheduler: RunScheduler, ended: Iterable[tuple[str, Record]]) -> None:
    """Begins with the ends of the nodes outside."""
    now = time.time()
    scheduler.begin(now)
    for node_id, end in ended:
        scheduler.features.regions.report(node_id, end, at=now)


class RegionSlice:
    """One slice; it is made and `run` in a thread of its own, everything else belongs to the activity.

    Args:
        scheduler: of the region; it has begun.
        tools: every tool that its nodes name.
        calls: calls the tools.
        answered: numbers of the nodes whose results stand in the answer itself; `None` for all.
        told: how many of the nodes that the scheduler has ended were told by slices before.
    """

    def __init__(
        self,
        scheduler: RunScheduler,
        tools: Mapping[str, ToolSpec],
        *,
        calls: PureCalls,
        answered: frozenset[int] | None = None,
        told: int = 0,
    ) -> None:
        self._scheduler = scheduler
        self._tools = tools
        self._calls = calls
        self._answered = answered
        self._lock = threading.Lock()
        self._current: Task | None = None
        self._overdue_at = 0.0
        self._is_stopped = False
        self._left_bytes = REGION_BATCH_RESULT_BYTES
        self._left_stored_bytes = OFFLOADED_BATCH_BYTES
        self._told = told
        self._clock = WorkClock()
        self.large: set[int] = set()
        """Numbers of the nodes whose results do not travel inline."""
        self.long_failures: dict[int, Mapping[str, str]] = {}
        """Whole texts of failures whose messages were cut, by node."""

    def run(self) -> None:
        """Runs nodes until the slice ends."""
        with self._calls.entered():
            self._run_until(time.time() + REGION_BATCH_S)

    def _run_until(self, until: float) -> None:
        # One look at the clock for each node: what the scheduler does counts as time of the node that it found.
        now = time.time()
        self._clock.tick(now)
        while not self._is_stopped and self._left_bytes > 0 and self._left_stored_bytes > 0:
            task = self._scheduler.next_task(now)
            if task is None:
                return
            if now > self._clock.due:
                self._clock.tick(now)
            try:
                end = self._calls.load(task)
            except CancelledError:
                return
            if end is not None or self._calls.has_loaded:
                # What the store takes to answer is no time of the node.
                now = time.time()
                self._clock.tick(now)
            if not self._take_up(task, now):
                return
            end = end or self._calls.call(self._tools[task.node.tool], task)
            started_at, now = now, time.time()
            if end.is_left and self._answered is None:
                # It stays open: when slices end no other node any more, the run calls those that are by themselves.
                self.leave()
                if now > until:
                    return
                continue
            if end.is_left:
                end = PureEnd(error=_CANNOT_BE_LEFT)
            if not self._put_down(task, end, started_at, now=now) or now > until:
                return

    def stop(self) -> None:
        """Starts no further node."""
        self._is_stopped = True

    def leave(self) -> bool:
        """Ends the slice without the node that runs, which is open again; returns whether one ran."""
        with self._lock:
            was_running, self._current = self._current is not None, None
            return was_running

    def end_overdue(self) -> bool:
        """Fails the node that runs if it is over its timeout, which ends the slice; returns whether it was."""
        with self._lock:
            if self._current is None or time.time() <= self._overdue_at:
                return False
            task, self._is_stopped, self._current = self._current, True, None
            self._scheduler.fail(task.id, timeout_error(task), at=time.time())
            return True

    def ended(self) -> list[int]:
        """Returns the numbers of the nodes that the slice has ended, in order."""
        nodes, ended = self._scheduler.plan.nodes, self._scheduler.state.ended
        return [number for number in ended[self._told :] if nodes[number].kind == "tool"]

    def versions(self, numbers: Sequence[int]) -> dict[str, str]:
        """Returns the versions of the tools of nodes."""
        names = dict.fromkeys(self._scheduler.plan.nodes[number].tool for number in numbers)
        return {name: self._tools[name].version for name in names}

    async def keep_large(self, keep: Keep, keep_failure: KeepFailure) -> None:
        """Puts what is large into the payload store; to be called when the slice has ended, before it answers."""
        nodes, records = self._scheduler.plan.nodes, self._scheduler.records
        for number in sorted(self.large):
            if records[number].status is NodeStatus.COMPLETED:
                records[number].result = await keep(records[number].result, nodes[number])
        for number, told in self.long_failures.items():
            error = records[number].error
            if error is not None:
                records[number].error = replace(error, ref=await keep_failure(told))

    def answer(self) -> dict[str, Any]:
        """Returns what the slice answers: the ends of its nodes in order, and the versions of their tools."""
        nodes, records = self._scheduler.plan.nodes, self._scheduler.records
        told = [number for number in self.ended() if records[number].status in _TOLD]
        return {
            "ended": [[nodes[number].id, *end_to_json(records[number])] for number in told],
            "versions": self.versions(told),
        }

    def _take_up(self, task: Task, now: float) -> bool:
        # Retries come on top: each of them has the whole time.
        overdue_at = now + timeout_of(task) * task.node.retry.max_attempts
        with self._lock:
            self._current, self._overdue_at = task, overdue_at
            return not self._is_stopped

    def _put_down(self, task: Task, end: PureEnd, started_at: float, *, now: float) -> bool:
        """Takes the end of a call; returns whether the slice still is in charge of it."""
        with self._lock:
            if self._current is None:
                return False
            self._current = None
        error = timeout_error(task) if now - started_at > timeout_of(task) * end.attempts else end.error
        is_plain = end.attempts == 1 and end.cached is None
        attempt = ONE_ATTEMPT if is_plain else Attempt(end.attempts, cached=end.cached)
        if error is not None:
            if end.whole is not None and error is end.error:
                self.long_failures[task.ref.node] = end.whole
            self._scheduler.fail(task.id, error, at=now, attempt=attempt)
        else:
            self._scheduler.complete(task.id, end.value, at=now, attempt=attempt)
            if now - started_at > SLOW_S:
                self._calls.keep(task, end, took_s=self._clock.worked(started_at, now))
            size = end.size_bytes
            if size > INLINE_VALUE_BYTES:
                self.large.add(task.ref.node)
                # Parts of it stand in the answer.
                size = min(size, largest_result_bytes(task.node, None))
            self._left_stored_bytes -= end.size_bytes
            if self._answered is None or task.ref.node in self._answered:
                self._left_bytes -= size
        return True
