"""Drives a part of a region in a thread: the same scheduler as the run's, and the tools' functions called directly.

A slice starts nodes for a fifth of a second, at least one. It ends as well when its results are many bytes, when it is
told to stop, or when a node takes over its own timeout: such a call cannot be ended, so its thread is left alone. This
module must not import workflows.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from activities.pure_calls import PureCalls, PureEnd, timeout_error, timeout_of
from dagwright.contracts.limits import SLICE_RESULT_BYTES, SLICE_S
from dagwright.contracts.slices import SliceInput, end_to_json
from dagwright.plan.scheduler import Scheduler, Task
from dagwright.plan.states import Attempt, NodeStatus
from dagwright.tools import ToolSpec

_TOLD = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED})
"""Ends that the run hears of; what is blocked it works out by itself."""


class RegionSlice:
    """One slice; `run` belongs into a thread of its own, everything else to the activity.

    Args:
        given: what the slice was given.
        tools: every tool that its nodes name.
        calls: calls the tools.
    """

    def __init__(self, given: SliceInput, tools: Mapping[str, ToolSpec], *, calls: PureCalls) -> None:
        self._scheduler = Scheduler(given.plan, given.inputs, lookups=given.lookups)
        self._given = given
        self._tools = tools
        self._calls = calls
        self._lock = threading.Lock()
        self._current: Task | None = None
        self._overdue_at = 0.0
        self._is_stopped = False
        self._left_bytes = SLICE_RESULT_BYTES

    def run(self) -> None:
        """Runs nodes until the slice ends."""
        with self._calls.entered():
            self._run_until(time.time() + SLICE_S)

    def _run_until(self, until: float) -> None:
        # One look at the clock for each node: what the scheduler does counts as time of the node that it found.
        now = time.time()
        self._begin(now)
        while not self._is_stopped and self._left_bytes > 0:
            task = self._scheduler.next_task(now)
            if task is None or not self._take_up(task, now):
                return
            end = self._calls.call(self._tools[task.node.tool], task)
            started_at, now = now, time.time()
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

    def answer(self) -> dict[str, Any]:
        """Returns what the slice answers: the ends of its nodes in order, and the versions of their tools."""
        nodes, records = self._scheduler.plan.nodes, self._scheduler.records
        own = [number for number in self._scheduler.ended if nodes[number].kind == "tool"]
        told = [number for number in own if records[number].status in _TOLD]
        names = dict.fromkeys(nodes[number].tool for number in told)
        return {
            "ended": [[nodes[number].id, *end_to_json(records[number])] for number in told],
            "versions": {name: self._tools[name].version for name in names},
        }

    def _begin(self, now: float) -> None:
        self._scheduler.begin(now)
        for node_id, end in self._given.ended:
            self._scheduler.report(node_id, end, at=now)

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
        attempt = Attempt(end.attempts, started_at)
        if error is not None:
            self._scheduler.fail(task.id, error, at=now, attempt=attempt)
        else:
            self._scheduler.complete(task.id, end.value, at=now, attempt=attempt)
            self._left_bytes -= end.size_bytes
        return True
