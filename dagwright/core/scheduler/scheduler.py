"""The scheduler: a pure state machine that consumes events (a task ended) and yields tasks that may start.

The workflow, the history reader, the region activity and the property tests drive the same class. The scheduler has no
clock: the driver passes the time. All order comes from lists, never from hashes. Features such as budgets and requests
to people are components (`dagwright.core.scheduler.component`); `dagwright.features.run_scheduler` attaches them.

Complexity: O(V + E) over a whole run, O(out-degree) per event; `ComputeBudget` bounds the cost of conditions and
queries.

Replay: the order in which `next_task` yields tasks is the order of commands in history; changing it breaks
running workflows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.references import Scope, UnresolvedReference
from dagwright.core.model.compiled import CompiledPlan, agent_of
from dagwright.core.model.lineage import NO_LINEAGE
from dagwright.core.model.states import (
    NO_USAGE,
    ONE_ATTEMPT,
    Attempt,
    NodeError,
    NodeStatus,
    Phase,
    Record,
    RunStatus,
    Task,
    TaskRef,
)
from dagwright.core.scheduler import map_items
from dagwright.core.scheduler.component import Hooks, RunOptions, SchedulerComponent
from dagwright.core.scheduler.propagation import Propagation, evaluation_error
from dagwright.core.scheduler.rebuild import Rebuild
from dagwright.core.scheduler.run_state import make_task, only_child_runs_are_running, output_of, status_of

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState


Features = TypeVar("Features")


class Scheduler(Generic[Features]):
    """Runs one compiled plan."""

    features: Features
    """Components by name, for drivers; see `attach`."""

    def __init__(self, state: "RunState") -> None:
        self.state = state
        self._hooks = Hooks()
        self.propagation = Propagation(state, self._hooks)
        self.rebuild = Rebuild(self.propagation)
        self._has_marked_tasks = False
        """Whether `mark_running` has marked a task, so the queue may still contain a running task."""

    def attach(self, features: Features, components: Sequence[SchedulerComponent]) -> None:
        """Attach components, in the order in which their hooks are called."""
        self.features = features
        self._hooks.components = components
        self._hooks.update()

    def update_hooks(self) -> None:
        """Update the components that are called at each hook."""
        self._hooks.update()

    def set_options(self, options: RunOptions) -> None:
        """Replace the options, before the run starts."""
        self.state.options = options
        self._hooks.update()

    # State that drivers read most often.

    @property
    def plan(self) -> CompiledPlan:
        """The plan, including added nodes."""
        return self.state.plan

    @property
    def records(self) -> list[Record]:
        """The records of the nodes, in plan order."""
        return self.state.records

    def record_of(self, task_id: str) -> Record | None:
        """Return the record of a node (`id`) or of an item (`id[key]`)."""
        return self.state.record_of(task_id)

    @property
    def is_finished(self) -> bool:
        """Whether every node is in a final state."""
        return self.state.unfinished_count == 0

    @property
    def is_stopped(self) -> bool:
        """Whether no more tasks start, because the run was cancelled or aborted."""
        return self.state.phase.is_stopped

    @property
    def in_flight(self) -> int:
        """Number of tasks that were started and have not ended."""
        return self.propagation.queue.in_flight

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that the tasks in flight may add to the history."""
        return self.propagation.queue.in_flight_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether no task is running, and none can start before a person answers a request or grants budget."""
        queue = self.propagation.queue
        if queue.in_flight or queue.has_ready or self.is_finished:
            return False
        return any(component.is_waiting for component in self._hooks.components)

    def status(self) -> RunStatus:
        """Return the status of the run (docs/reference/states.md)."""
        state = self.state
        if not self.is_finished:
            is_waiting = self.is_waiting or (
                state.paused is not None and only_child_runs_are_running(state.plan, state.records)
            )
            status = RunStatus.WAITING if is_waiting else RunStatus.RUNNING
        elif state.error is not None:
            status = RunStatus.FAILED
        else:
            status = RunStatus.CANCELLED if state.cancelled else status_of(state.plan, state.records)
        for component in self._hooks.components:
            status = component.run_status(status)
        return status

    def output(self) -> tuple[Any, NodeError | None]:
        """Return the output of the run; null and an error if its template cannot be resolved."""
        state = self.state
        if state.phase.forbids_compensation:
            # The run compensates its calls.
            return None, None
        # A new scope with a full compute budget of its own, because the output is evaluated only once.
        return output_of(state.plan, state.records, scope=Scope(state.scope.get_node_value, state.inputs))

    # Events. Each event ends with `propagate`, which updates the dependents of ended nodes.

    def start(self, at: float) -> None:
        """Start the nodes without dependencies."""
        for number, node in enumerate(self.state.plan.nodes):
            # Another node may have failed and ended the run; a person may have ended this node.
            is_pending = self.state.records[number].status is NodeStatus.PENDING
            if not node.dependencies and not self.is_stopped and is_pending:
                self.propagation.become_ready(number, at)
        self.propagate(at)

    def reconcile(self, at: float) -> None:
        """Start all nodes that can start, after `Rebuild.resume` with records of ended nodes."""
        self.rebuild.decide_all(at)
        self.propagate(at)

    def propagate(self, at: float) -> None:
        """Apply all consequences of an event, until no node changes any more."""
        hooks = self._hooks
        for component in hooks.before_propagation:
            component.before_propagation(at)
        self.propagation.update(at)
        for component in hooks.on_quiescent:
            component.on_quiescent(at)

    def next_task(self, at: float) -> Task | None:
        """Return the next task to start, by priority, or `None` if no task may start now.

        The task then counts as running. Queued nodes whose arguments cannot be resolved fail.
        """
        state, hooks = self.state, self._hooks
        if state.paused is None or state.is_stopped:
            state.compute_budget.start(at)
            while (entry := self.propagation.queue.pop()) is not None:
                task = self._start(entry[1], at)
                if task is not None:
                    return task
        for component in hooks.on_idle:
            component.on_idle(at)
        return None

    def _start(self, ref: TaskRef, at: float) -> Task | None:
        """Return the task of a node or item that was removed from the queue; `None` if the task does not start now."""
        state, propagation, hooks = self.state, self.propagation, self._hooks
        number, item = ref
        record = state.records[number] if item is None else state.records[number].items[item].record
        if state.plan.nodes[number].kind == "region" and not state.regions.is_open(number, state.records):
            # All nodes of the region were blocked or skipped.
            propagation.queue.release(number)
            propagation.end(ref, NodeStatus.COMPLETED, at)
            return None
        may_have_ended = (
            state.overrides or state.limits_changed or state.budget_may_end_queued_tasks or self._has_marked_tasks
        )
        if record.status is not NodeStatus.READY and may_have_ended:
            # While the task was queued, a person or the budget ended it, or `mark_running` marked it.
            propagation.queue.release(number)
            return None
        for component in hooks.before_dispatch:
            if component.before_dispatch(ref, at):
                propagation.queue.release(number)
                self.propagate(at)
                return None
        try:
            task = make_task(state, ref)
            for component in hooks.before_start:
                if component.before_start(task, at):
                    return None
        except (UnresolvedReference, ComputeBudgetExceeded) as error:
            propagation.queue.release(number)
            propagation.end_failed_task(ref, evaluation_error(error), at)
            self.propagate(at)
            return None
        record.status = NodeStatus.RUNNING
        record.started_at = at
        if item is not None and state.records[number].started_at is None:
            state.records[number].started_at = at
        return task

    def complete(
        self, task_id: str, value: Any, *, at: float, attempt: Attempt = ONE_ATTEMPT, is_partial: bool = False
    ) -> None:
        """Handle the result of a task. An event for a task that is not running is ignored."""
        ref = self.record_end_of_call(task_id, attempt)
        if ref is None:
            return
        number, item = ref
        record = self.state.records[number] if item is None else self.state.records[number].items[item].record
        for component in self._hooks.on_result:
            if (result := component.on_result(ref, value)) is not None:
                record.partial, record.message = result.is_partial, result.message
                if result.error is not None:
                    self.propagation.end_failed_task(ref, result.error, at)
                    self.propagate(at)
                    return
                value = result.value
        record.result = value
        record.partial = record.partial or is_partial
        self.propagation.end(ref, NodeStatus.COMPLETED, at)
        self.propagate(at)

    def mark_running(self, task_id: str, *, at: float) -> bool:
        """Mark a ready node as running, because its call was made in the same batch as the calls of its dependencies.

        Returns:
            Whether the node was ready. If so, the caller has to report the end of the node.
        """
        ref = self.state.items.ref(task_id)
        record = self.state.record(ref)
        if record.status is not NodeStatus.READY:
            return False
        self._has_marked_tasks = True
        record.status, record.started_at = NodeStatus.RUNNING, at
        self.propagation.queue.occupy(ref.node)
        return True

    def complete_late(self, task_id: str, value: Any, *, attempt: Attempt) -> None:
        """Record the result of a call that ended before the run stopped, but was only reported after the stop."""
        record = self.state.record(self.state.items.ref(task_id))
        record.status, record.result, record.reason = NodeStatus.COMPLETED, value, None
        record.attempts, record.started_at = attempt.count, attempt.started_at
        record.tool_version, record.cached = attempt.tool_version, attempt.cached

    def fail(self, task_id: str, error: NodeError, *, at: float, attempt: Attempt = ONE_ATTEMPT) -> None:
        """Handle the final failure of a task. An event for a task that is not running is ignored."""
        if (ref := self.record_end_of_call(task_id, attempt)) is not None:
            self.propagation.end_failed_task(ref, error, at)
            self.propagate(at)

    def task_cancelled(
        self, task_id: str, *, at: float, attempt: Attempt = ONE_ATTEMPT, reason: str | None = None
    ) -> None:
        """Handle the end of a task that was cancelled. An event for a task that is not running is ignored."""
        if (ref := self.record_end_of_call(task_id, attempt)) is not None:
            record = self.state.record(ref)
            record.reason = reason or record.reason
            self.propagation.end(ref, NodeStatus.CANCELLED, at)
            self.propagate(at)

    def end_map_batch(
        self, task_id: str, end: map_items.MapBatchEnd, *, at: float, attempt: Attempt = ONE_ATTEMPT
    ) -> None:
        """Handle the end of a batch of a large map. An event for a task that is not running is ignored."""
        if (ref := self.record_end_of_call(task_id, attempt)) is not None and ref.item is not None:
            map_items.store_batch_end(self.state.records[ref.node].items[ref.item], end)
            self.propagation.end(ref, end.status, at, error=end.error)
            self.propagate(at)

    def record_store_wait(self, task_id: str, *, at: float, attempt: Attempt) -> int:
        """Record that the call of a running task waits for the payload store and is repeated afterwards.

        Args:
            attempt: usage and lineage of the call; `count` only counts attempts that may have had effects.

        Returns:
            Number of waits of the task, including this one; 0 if the task is not running.
        """
        ref = self.state.items.ref(task_id)
        if self.state.record(ref).status is not NodeStatus.RUNNING:
            return 0
        wait_count, attempt_count = self.state.store_waits.get(task_id, (0, 0))
        self.state.store_waits[task_id] = wait_count + 1, attempt_count + attempt.count
        self._add_totals(task_id, ref, attempt)
        self.propagate(at)
        return wait_count + 1

    def end_tasks(self, refs: Sequence[TaskRef], status: NodeStatus, *, at: float) -> None:
        """End nodes and items that are not running. Their dependents are updated after all tasks have ended."""
        for ref in refs:
            self.propagation.end(ref, status, at)
        self.propagate(at)

    def record_end_of_call(self, task_id: str, attempt: Attempt) -> TaskRef | None:
        """Record the attempts of a running task that has ended, and release its slots.

        Returns:
            The task, or `None` if it is not running.
        """
        state = self.state
        ref = state.items.ref(task_id)
        number, item = ref
        record = state.records[number] if item is None else state.records[number].items[item].record
        if record.status is not NodeStatus.RUNNING:
            return None
        self.propagation.queue.release(number)
        record.attempts = attempt.count
        # After several attempts, keep the time of the dispatch: `attempt.started_at` is the start of the last attempt.
        if attempt.count <= 1 or record.started_at is None:
            record.started_at = attempt.started_at or record.started_at
        if state.overrides and (override := state.overrides.get(task_id)) is not None:
            record.attempts += override.attempts
        if state.store_waits:
            record.attempts += state.store_waits.pop(task_id, (0, 0))[1]
        record.tool_version, record.cached = attempt.tool_version, attempt.cached
        if attempt.usage is not NO_USAGE or attempt.lineage is not NO_LINEAGE:
            self._add_totals(task_id, ref, attempt)
        for component in self._hooks.on_attempt:
            component.on_attempt(task_id, ref, attempt)
        return ref

    def _add_totals(self, task_id: str, ref: TaskRef, attempt: Attempt) -> None:
        """Add the usage and the lineage of an attempt to the totals."""
        if attempt.usage.is_nonzero:
            node = self.state.plan.nodes[ref.node]
            agent = agent_of(node)
            agents = {**attempt.agents, agent: attempt.usage} if agent is not None else attempt.agents
            self.state.totals.usage.add(attempt.usage, tasks=tuple(dict.fromkeys((task_id, node.id))), agents=agents)
        if attempt.lineage:
            self.state.totals.lineage.add(task_id, attempt.lineage)

    # Time.

    @property
    def next_timer(self) -> float | None:
        """Time at which the driver has to call `advance`, in seconds since the epoch."""
        timers = [component.next_timer for component in self._hooks.components]
        return min((timer for timer in timers if timer is not None), default=None)

    def advance(self, at: float) -> None:
        """Handle every deadline and reminder that is due; a driver calls it before each batch of events."""
        for component in self._hooks.components:
            component.on_timer(at)
        self.propagate(at)

    # The end of the run.

    def abort(self, error: NodeError, at: float) -> None:
        """Cancel everything that has not started, and mark the run as failed."""
        self.propagation.abort(error, at)

    def cancel(self, at: float, *, reason: str | None = None) -> None:
        """Cancel everything that has not started. The driver cancels running tasks and reports their ends.

        A stopped run does not change. A compensating run stops at its second cancellation; a run that only compensates
        the calls of another run stops at its first.
        """
        state = self.state
        if state.is_stopped:
            return
        continues_compensation = state.phase is Phase.COMPENSATING and not (
            state.cancelled or state.options.only_compensates
        )
        state.cancelled = True
        if not continues_compensation:
            self.propagation.stop(at, reason)
            self.propagate(at)

    def close(self, at: float, *, reason: str) -> None:
        """Cancel everything that has not started, without compensation."""
        state = self.state
        state.cancelled = True
        if not state.is_stopped:
            self.propagation.stop(at, reason)
        if state.compensates:
            state.phase = Phase.CLOSED
