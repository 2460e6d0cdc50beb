"""Run a batch of a region in a thread, with a separate scheduler, and call the functions of the tools directly.

A batch starts at least one node, and starts more nodes during its first 0.2 s. It starts no more nodes when its results
reach a size limit or when it is cancelled. If the call of a node exceeds its timeout, the batch ends at once: the call
cannot be stopped, so the thread of the batch is abandoned. This module must not import workflows.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from dagwright.activities.cache_admission import CACHED_CALL_MIN_S, CpuClock
from dagwright.activities.pure_calls import PureCalls, PureOutcome, timeout_error, timeout_of
from dagwright.core.boundary.limits import (
    MAX_INLINE_VALUE_BYTES,
    OFFLOADED_BATCH_STORED_BYTES,
    REGION_BATCH_RESULT_BYTES,
    REGION_BATCH_S,
)
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import ONE_ATTEMPT, Attempt, NodeError, NodeStatus, Record, Task
from dagwright.core.scheduler.propagation import largest_result_bytes
from dagwright.features.regions.batches import BatchInput, end_to_json
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.tools import ToolSpec

StoreResult = Callable[[Any, CompiledNode], Awaitable[Any]]
"""(result, its node) -> the reference that replaces the result in the run."""

StoreFailure = Callable[[Mapping[str, str]], Awaitable[str | None]]
"""Full text of a failure -> its reference."""

_NEEDS_ACTIVITY = NodeError(
    "needs_own_activity",
    "the node calls a model, which the pure nodes of a large plan cannot do; give the node a `heartbeat`, such as "
    "30s, so that it runs as a separate activity",
    retryable=False,
)
_REPORTED_STATUSES = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED})
"""Outcomes that the run receives; the run itself derives which nodes are blocked."""


def start_scheduler(batch_input: BatchInput) -> RunScheduler:
    """Return a scheduler for the input of a batch, after applying the outcomes of the nodes outside the region."""
    scheduler = create_scheduler(batch_input.plan, batch_input.inputs)
    start_with_ended_nodes(scheduler, batch_input.ends)
    return scheduler


def start_with_ended_nodes(scheduler: RunScheduler, node_ends: Iterable[tuple[str, Record]]) -> None:
    """Start the scheduler and apply the outcomes of the nodes outside the region."""
    now = time.time()
    scheduler.start(now)
    for node_id, end in node_ends:
        scheduler.features.regions.handle_node_end(node_id, end, at=now)


class RegionBatch:
    """One batch. Create it and call `run` in a separate thread; the activity calls all other methods.

    Args:
        scheduler: scheduler of the region; it has started.
        tools: every tool that the region's nodes name.
        calls: object that calls the tools.
        inline_nodes: numbers of the nodes whose results are inline in the batch result; `None` for all.
        reported_count: number of ended nodes that earlier batches reported.
    """

    def __init__(
        self,
        scheduler: RunScheduler,
        tools: Mapping[str, ToolSpec],
        *,
        calls: PureCalls,
        inline_nodes: frozenset[int] | None = None,
        reported_count: int = 0,
    ) -> None:
        self._scheduler = scheduler
        self._tools = tools
        self._calls = calls
        self._inline_nodes = inline_nodes
        self._lock = threading.Lock()
        self._current_task: Task | None = None
        self._overdue_at = 0.0
        self._is_stopped = False
        self._remaining_bytes = REGION_BATCH_RESULT_BYTES
        self._remaining_stored_bytes = OFFLOADED_BATCH_STORED_BYTES
        self._reported_count = reported_count
        self._clock = CpuClock()
        self.large_result_nodes: set[int] = set()
        """Numbers of the nodes whose results are too large to be inline."""
        self.long_failures: dict[int, Mapping[str, str]] = {}
        """Full texts of failures with truncated messages, by node."""

    def run(self) -> None:
        """Run nodes until the batch ends."""
        with self._calls.active_context():
            self._run_until(time.time() + REGION_BATCH_S)

    def _run_until(self, until: float) -> None:
        # The clock is read once per node: the time in which the scheduler finds a node counts as time of this node.
        now = time.time()
        self._clock.tick(now)
        while not self._is_stopped and self._remaining_bytes > 0 and self._remaining_stored_bytes > 0:
            task = self._scheduler.next_task(now)
            if task is None:
                return
            if now > self._clock.next_tick_at:
                self._clock.tick(now)
            try:
                outcome = self._calls.load(task)
            except CancelledError:
                return
            if outcome is not None or self._calls.has_queried_store:
                # The response time of the store does not count as time of the node.
                now = time.time()
                self._clock.tick(now)
            if not self._claim(task, now):
                return
            outcome = outcome or self._calls.call(self._tools[task.node.tool], task)
            started_at, now = now, time.time()
            if outcome.needs_activity and self._inline_nodes is None:
                # The node stays open. If a batch returns no outcomes, the run calls the open nodes as activities.
                self.abandon()
                if now > until:
                    return
                continue
            if outcome.needs_activity:
                outcome = PureOutcome(error=_NEEDS_ACTIVITY)
            if not self._apply(task, outcome, started_at, now=now) or now > until:
                return

    def stop(self) -> None:
        """Start no further node."""
        self._is_stopped = True

    def abandon(self) -> bool:
        """Take the running node out of the batch: the node is open again. Return whether a node was running."""
        with self._lock:
            was_running, self._current_task = self._current_task is not None, None
            return was_running

    def fail_overdue(self) -> bool:
        """If the running node exceeds its timeout, fail it and end the batch; return whether a node was failed."""
        with self._lock:
            if self._current_task is None or time.time() <= self._overdue_at:
                return False
            task, self._is_stopped, self._current_task = self._current_task, True, None
            self._scheduler.fail(task.id, timeout_error(task), at=time.time())
            return True

    def ended_node_numbers(self) -> list[int]:
        """Return the numbers of the nodes that the batch has ended, in order."""
        nodes, ended = self._scheduler.plan.nodes, self._scheduler.state.ended_numbers
        return [number for number in ended[self._reported_count :] if nodes[number].kind == "tool"]

    def tool_versions(self, numbers: Sequence[int]) -> dict[str, str]:
        """Return the versions of the nodes' tools, by tool."""
        names = dict.fromkeys(self._scheduler.plan.nodes[number].tool for number in numbers)
        return {name: self._tools[name].version for name in names}

    async def store_large(self, store_result: StoreResult, store_failure: StoreFailure) -> None:
        """Put large results into the payload store; call this method after the end of the batch, before `result`."""
        nodes, records = self._scheduler.plan.nodes, self._scheduler.records
        for number in sorted(self.large_result_nodes):
            if records[number].status is NodeStatus.COMPLETED:
                records[number].result = await store_result(records[number].result, nodes[number])
        for number, full_text in self.long_failures.items():
            error = records[number].error
            if error is not None:
                records[number].error = replace(error, ref=await store_failure(full_text))

    def result(self) -> dict[str, Any]:
        """Return the result of the batch: the outcomes of its nodes in order, and the versions of their tools."""
        nodes, records = self._scheduler.plan.nodes, self._scheduler.records
        reported_numbers = [
            number for number in self.ended_node_numbers() if records[number].status in _REPORTED_STATUSES
        ]
        return {
            "node_ends": [[nodes[number].id, *end_to_json(records[number])] for number in reported_numbers],
            "versions": self.tool_versions(reported_numbers),
        }

    def _claim(self, task: Task, now: float) -> bool:
        """Mark a node as running; return whether the batch may still run it."""
        # Each retry has the whole timeout.
        overdue_at = now + timeout_of(task) * task.node.retry.max_attempts
        with self._lock:
            self._current_task, self._overdue_at = task, overdue_at
            return not self._is_stopped

    def _apply(self, task: Task, outcome: PureOutcome, started_at: float, *, now: float) -> bool:
        """Apply the outcome of a call; return whether the batch still owns the node."""
        with self._lock:
            if self._current_task is None:
                return False
            self._current_task = None
        error = timeout_error(task) if now - started_at > timeout_of(task) * outcome.attempts else outcome.error
        is_plain = outcome.attempts == 1 and outcome.cache_provenance is None
        attempt = ONE_ATTEMPT if is_plain else Attempt(outcome.attempts, cached=outcome.cache_provenance)
        if error is not None:
            if outcome.full_text is not None and error is outcome.error:
                self.long_failures[task.ref.node] = outcome.full_text
            self._scheduler.fail(task.id, error, at=now, attempt=attempt)
        else:
            self._scheduler.complete(task.id, outcome.value, at=now, attempt=attempt)
            if now - started_at > CACHED_CALL_MIN_S:
                self._calls.put(task, outcome, took_s=self._clock.cpu_seconds(started_at, now))
            size = outcome.size_bytes
            if size > MAX_INLINE_VALUE_BYTES:
                self.large_result_nodes.add(task.ref.node)
                # Only projections of a large result are inline in the batch result.
                size = min(size, largest_result_bytes(task.node, None))
            self._remaining_stored_bytes -= outcome.size_bytes
            if self._inline_nodes is None or task.ref.node in self._inline_nodes:
                self._remaining_bytes -= size
        return True
