"""The scheduler: a pure state machine. Events go in (a task ended), tasks that may start come out.

The workflow, the feed, the region activity and the property tests all drive this one class. It has no clock:
whoever drives it says what time it is. It never looks at a hash order: all order comes from lists.

Cost: O(V + E) over a whole run, O(out-degree) for each event; `WorkBudget` bounds what conditions and queries add.

Replay: the order in which `next_task` yields tasks is the order of commands in history; changing it breaks
running workflows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.model.compiled import agent_of
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import STILL_OUTSIDE, Attempt, NodeStatus, Phase, Record
from dagwright.core.model.tasks import Task
from dagwright.core.model.usage import NONE
from dagwright.core.model.worker_results import unwrap_worker_result
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.item_book import Place
from dagwright.core.scheduler.region_members import InnerState
from dagwright.core.scheduler.run_end import unreadable
from dagwright.core.scheduler.timeout_report import held_up_words
from dagwright.core.validation.workers import prepared_call
from dagwright.features.budgets.admission import Rationing
from dagwright.features.forks.fingerprint import content_of
from dagwright.features.lookups.lookups import BIND_PARTIES, FIND_PARTY, why_unbound

ONE_ATTEMPT = Attempt()
"""What is assumed where a driver knows nothing of the attempts."""
NO_ATTEMPT = Attempt(0)
"""Of a call that was given out and never sent."""


class Scheduler(Rationing):
    """Runs one compiled plan: takes the events of its tasks, and tells which tasks may start."""

    # Events. Each tells the dependents in its end what became of the nodes that they wait for.

    def begin(self, at: float) -> None:
        """Makes the nodes ready that wait for nothing."""
        for number, node in enumerate(self.plan.nodes):
            # A node before it that failed may have ended the run; somebody may have ended this one.
            if not node.dependencies and not self.is_stopped and self.records[number].status is NodeStatus.PENDING:
                self._become_ready(number, at)
        self.settle(at)

    def next_task(self, at: float) -> Task | None:
        """Returns the next task to start, the most urgent first, or `None` if none may start now.

        The task counts as running from here on. Nodes whose arguments cannot be resolved, and workers that lack a slot
        which they require, fail on the way.
        """
        if self.paused is not None and not self.is_stopped:
            self._rest(at)
            return None
        self._budget.start(at)
        while (entry := self._queue.pop()) is not None:
            _, number, item = entry
            if self.plan.nodes[number].kind == "region" and not self._membership.is_open(number, self.records):
                # All of them hung on what failed or was skipped.
                self._queue.release(number)
                self._end(number, -1, NodeStatus.COMPLETED, at)
                continue
            record = self.records[number] if item < 0 else self.records[number].items[item].record
            is_untouched = not (self.by_hand or self.changes.has_new_limits or self.changes.budget is not None)
            if not is_untouched and record.status is not NodeStatus.READY:
                # Somebody cancelled it, or gave its result, while it waited for its turn; it was left out as the run is
                # to finish; or it is known to run.
                self._queue.release(number)
                continue
            if self.policy_changed and self._asks_first(number, item, at):
                self._queue.release(number)
                self.settle(at)
                continue
            try:
                task = prepared_call(self._make_task(number, item), self.plan.tools)
            except (MissingData, TooMuchWork) as error:
                self._queue.release(number)
                self._end_failed(number, item, unreadable(error), at)
                self.settle(at)
                continue
            if not self.changes.asks and task.node.tool == FIND_PARTY:
                task.arguments = {**task.arguments, "asks": False}
            if self.changes.budget is not None and self._has_to_wait(task, at):
                continue
            if self.changes.kept is not None:
                self._keep_key(task)
            record.status = NodeStatus.RUNNING
            record.started_at = at
            if item >= 0 and self.records[number].started_at is None:
                self.records[number].started_at = at
            return task
        self._tell_waiting()
        self._rest(at)
        return None

    def _keep_key(self, task: Task) -> None:
        """Gives a task of a fork the key that it has in the other run, and its sub-plan what that did there."""
        assert self.changes.kept is not None
        kept = self.changes.kept.key_of(task.id, task.node.id)
        if kept is None:
            return
        task.below = kept.below
        is_run = task.is_run or task.chunk is not None
        if kept.scope is None or (is_run and kept.content):
            return
        same = not kept.content or content_of(self, task.number, -1 if task.item is None else task.item) == kept.content
        task.scope = self._record(task.number, -1 if task.item is None else task.item).scope = (
            kept.scope if same else None
        )

    def complete(
        self, task_id: str, value: Any, *, at: float, attempt: Attempt = ONE_ATTEMPT, is_partial: bool = False
    ) -> None:
        """Takes the result of a task; an event for a task that is not running is ignored."""
        ended = self._take_attempt(task_id, attempt)
        if ended is None:
            return
        number, item, record = ended
        error = None
        if self.plan.nodes[number].is_worker and self._chunk(number, item) is None:
            declared = self.plan.tools.get(self.plan.nodes[number].tool)
            told = unwrap_worker_result(value, declared.worker if declared is not None else None)
            value, record.partial, record.message, error = told.outputs, told.is_partial, told.message, told.error
        elif self.plan.nodes[number].tool == BIND_PARTIES:
            record.result, error = value, why_unbound(value)
        if error is not None:
            self._end_failed(number, item, error, at)
        else:
            record.result = value
            record.partial = record.partial or is_partial
            self._end(number, item, NodeStatus.COMPLETED, at)
        self.settle(at)

    def fail(self, task_id: str, error: NodeError, *, at: float, attempt: Attempt = ONE_ATTEMPT) -> None:
        """Takes the final failure of a task; an event for a task that is not running is ignored."""
        ended = self._take_attempt(task_id, attempt)
        if ended is None:
            return
        number, item, _ = ended
        self._end_failed(number, item, error, at)
        self.settle(at)

    def task_cancelled(
        self, task_id: str, *, at: float, attempt: Attempt = ONE_ATTEMPT, reason: str | None = None
    ) -> None:
        """Takes the end of a task that was told to stop; an event for a task that is not running is ignored."""
        ended = self._take_attempt(task_id, attempt)
        if ended is None:
            return
        number, item, record = ended
        record.reason = reason or record.reason
        self._end(number, item, NodeStatus.CANCELLED, at)
        self.settle(at)

    def end_chunk(self, task_id: str, end: map_batches.ChunkEnd, *, at: float, attempt: Attempt = ONE_ATTEMPT) -> None:
        """Takes the end of a chunk of a large map; an event for a task that is not running is ignored."""
        ended = self._take_attempt(task_id, attempt)
        if ended is None:
            return
        number, item, _ = ended
        map_batches.take_end(self.records[number].items[item], end)
        self._end(number, item, end.status, at, error=end.error)
        self.settle(at)

    def await_store(self, task_id: str, *, at: float, attempt: Attempt) -> int:
        """Record that the call of a running task waits for the payload store and is repeated after that.

        Args:
            attempt: what the call has used and read; its count is of those that may have changed something.

        Returns:
            How often the task has waited, this time included; 0 if it is not running.
        """
        number, item = self._items.place(task_id)
        if self._record(number, item).status is not NodeStatus.RUNNING:
            return 0
        waits, attempts = self.changes.store_waits.get(task_id, (0, 0))
        self.changes.store_waits[task_id] = waits + 1, attempts + attempt.count
        self._add_reported(task_id, number, attempt)
        self.settle(at)
        return waits + 1

    # Regions.

    def report(self, node_id: str, end: Record, *, at: float) -> bool:
        """Takes the end of a node that somebody else has run; returns whether it was awaited.

        Args:
            end: its record, in a final state.
        """
        number = self._numbers.get(node_id)
        if number is None or not self._membership.is_told(number, self.records) or self.records[number].status.is_final:
            return False
        record = self.records[number]
        record.result, record.partial, record.blocked_by = end.result, end.partial, end.blocked_by
        record.cached, record.message = end.cached, end.message
        record.attempts, record.started_at, record.tool_version = end.attempts, end.started_at, end.tool_version
        self._end(number, -1, end.status, at if end.ended_at is None else end.ended_at, error=end.error)
        self.settle(at)
        return True

    def end_slice(self, task_id: str, *, at: float, goes_on: bool, error: NodeError | None = None) -> None:
        """Takes the end of one call of a region, after the ends of the nodes that it told.

        The region is ready again if some of its nodes are open.

        Args:
            goes_on: whether another call is of use; if not, the open nodes are run one by one, without a region.
            error: why the nodes fail of a region that is of no use and whose inside is not in the plan.
        """
        calls = self.records[self._numbers[task_id]].attempts + 1
        ended = self._take_attempt(task_id, Attempt(calls))
        if ended is None:
            return
        number, _, record = ended
        if self.is_stopped:
            self._end(number, -1, NodeStatus.CANCELLED, at)
        elif not self._membership.is_open(number, self.records):
            self._end(number, -1, NodeStatus.COMPLETED, at)
        elif goes_on:
            record.status = NodeStatus.READY
            self._queue.push((self.plan.nodes[number].priority, number, -1))
        elif self.plan.nodes[number].inner is None:
            self._end(number, -1, NodeStatus.SUPERSEDED, at)
        else:
            self._end(number, -1, NodeStatus.FAILED, at, error=error)
        self.settle(at)

    def tell_inside(self, task_id: str, state: InnerState) -> None:
        """Takes what a slice told of the inside of its region as a whole."""
        self.records[self._numbers[task_id]].result = state

    # By hand.

    @property
    def next_alarm(self) -> float | None:
        """When `advance` is needed next, in seconds since the epoch."""
        if not self.cancelling:
            return super().next_alarm
        alarms = [alarm for alarm in (super().next_alarm, *self.cancelling.values()) if alarm is not None]
        return min(alarms, default=None)

    def advance(self, at: float) -> None:
        """Deals with every deadline and reminder that is due, and gives up what was told to stop and has not."""
        super().advance(at)
        if self.cancelling:
            for task_id in [task_id for task_id, until in self.cancelling.items() if until <= at]:
                self.task_cancelled(task_id, at=at, reason=STILL_OUTSIDE)

    def set_deadline(self, limit_s: float, *, by: str | None) -> None:
        """Changes how long the run may take, from its start; infinite is as long as it takes."""
        self.changes.has_new_limits = True
        self.changes.deadline = self.deadline.set_by(by, limit_s=limit_s)

    def expire(self, at: float) -> None:
        """Ends the run as failed, if it has gone on for as long as it may."""
        if self.deadline.is_due(at):
            held_up = held_up_words(self.plan, self.records, is_paused=self.paused is not None)
            error = self.deadline.error
            self.abort(error, at)
            if self.error is error and held_up:
                self.error = replace(error, message=f"{error.message}; {held_up}")
            self.settle(at)

    def end_by_hand(self, places: Sequence[Place], status: NodeStatus, *, at: float) -> None:
        """Ends nodes and items that do not run, all of them before their dependents hear of it."""
        for number, item in places:
            self._end(number, item, status, at)
        self.settle(at)

    # The end of all.

    def cancel(self, at: float, *, reason: str | None = None) -> None:
        """Cancels everything that has not started; the driver stops what is running and tells how it ended.

        The first stop counts: a run that is cancelled or aborted already stays what it is. One that takes back what it
        did goes on with that, until it is cancelled once more.
        """
        if self.is_stopped:
            return
        goes_on = self.phase is Phase.UNDOING and not (self.cancelled or self.changes.takes_back)
        self.cancelled = True
        if not goes_on:
            self._stop(at, reason)
            self.settle(at)

    def close(self, at: float, *, reason: str) -> None:
        """Cancels everything at once, and leaves what was done as it is."""
        self.cancelled = True
        if not self.is_stopped:
            self._stop(at, reason)
        if self.takes_back:
            self.phase = Phase.CLOSED

    def _take_attempt(self, task_id: str, attempt: Attempt) -> tuple[int, int, Record] | None:
        """Takes what is told of the attempts of a running task, and gives back its slots.

        Returns:
            Its place and record, or `None` if it is not running.
        """
        number, item = self._items.place(task_id)
        record = self._record(number, item)
        if record.status is not NodeStatus.RUNNING:
            return None
        self._queue.release(number)
        record.attempts = attempt.count
        if attempt.count <= 1 or record.started_at is None:
            # Of several attempts the last is known; the first began when the task was handed out.
            record.started_at = attempt.started_at or record.started_at
        if self.by_hand and (hand := self.by_hand.get(task_id)) is not None:
            record.attempts += hand.attempts
        if self.changes.store_waits:
            record.attempts += self.changes.store_waits.pop(task_id, (0, 0))[1]
        record.tool_version, record.cached = attempt.tool_version, attempt.cached
        self._add_reported(task_id, number, attempt)
        if self.changes.budget is not None:
            self._settle_claim(task_id, (number, item), attempt)
        return number, item, record

    def _add_reported(self, task_id: str, number: int, attempt: Attempt) -> None:
        """Add the usage and the lineage that an attempt reports."""
        if attempt.usage is not NONE and attempt.usage.is_something:
            self._add_usage(task_id, number, attempt)
        if attempt.seen:
            self.changes.seen.add(task_id, attempt.seen)

    def _add_usage(self, task_id: str, number: int, attempt: Attempt) -> None:
        node = self.plan.nodes[number]
        agent = agent_of(node)
        agents = {**attempt.agents, agent: attempt.usage} if agent is not None else attempt.agents
        self.usage.add(attempt.usage, tasks=tuple(dict.fromkeys((task_id, node.id))), agents=agents)
