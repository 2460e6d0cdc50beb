"""Engine: drives the scheduler with the events of one workflow execution.

There is no asyncio task per node. The ends of all activities are queued as events, one loop applies them, and one
`wait_condition` waits for the next event. The engine reacts in the workflow task that received the event.

A run with a long history continues as new only when no call is in flight, because the end of such a call would be lost.
Sub-plans may be in flight, because they are separate runs. A child workflow that a node calls as a tool counts as a
call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import limits, wire
from dagwright.core.model.compiled import tool_of
from dagwright.core.model.states import NO_ATTEMPT, STILL_RUNNING_OUTSIDE, NodeError, NodeStatus, Phase, Task
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.budgets import PARENT_LOST, BudgetMessage, apply_budget_message
from dagwright.protocol.commands import CommandResult
from dagwright.protocol.history_limits import HistoryLimits, HistoryUse
from dagwright.protocol.messages import SubPlanEnd
from dagwright.protocol.outcomes import (
    StoreWait,
    apply_failure,
    apply_loading_failure,
    apply_result,
    apply_store_wait,
    apply_sub_plan_end,
)
from dagwright.protocol.ready_calls import (
    ReadyCall,
    needs_loading,
    next_call,
    prepare_loading,
    repeated_call,
    store_wait_message,
)
from dagwright.protocol.scheduler_snapshot import tasks_in_flight
from dagwright.workflows.activity_calls import (
    RunContext,
    encode_call,
    start_call,
    start_loading,
    start_store_wait,
    start_workflow,
)
from dagwright.workflows.batch_starts import CallBatches, StartedBatch
from dagwright.workflows.budget_signals import BudgetSignals
from dagwright.workflows.maps import start_join
from dagwright.workflows.notifying import Notifier
from dagwright.workflows.search_attributes import SearchAttributes
from dagwright.workflows.sub_plans import SubPlans
from dagwright.workflows.timers import Timer, now_s

_COMMAND_BYTES = 1_000
"""Approximate size of a command besides its arguments."""

T = TypeVar("T")

Event = Callable[[float], None]
"""Function that applies an event to the scheduler; it receives the current time."""


def _wake(at: float) -> None:
    """Change nothing: this event only wakes the loop of the engine."""


def _raise(error: Exception, at: float) -> None:  # noqa: ARG001 - an event
    raise error


class Engine:
    """Execution of one plan inside of a workflow.

    Args:
        scheduler: scheduler of the plan, started or restored.
        run: data that the calls and sub-plans need.
        signal_count: function that returns the number of signals and updates of this execution.
        attributes: search attributes of the run.
        add_note: function that adds a note, with code and message.
    """

    def __init__(
        self,
        scheduler: RunScheduler,
        run: RunContext,
        *,
        signal_count: Callable[[], int],
        attributes: SearchAttributes,
        add_note: Callable[[str, str], None],
    ) -> None:
        self.scheduler = scheduler
        self._run = run
        self._info = workflow.info()
        self._attributes, self._add_note = attributes, add_note
        self._events: deque[Event] = deque()
        self._handles: dict[str, asyncio.Task[RawValue]] = {}
        """Task ID -> handle of its call. An abandoned call is removed, so that its end is ignored."""
        self._cancelling_calls: dict[str, str] = {}
        """Task that is being cancelled while the run continues -> ID of its call."""
        self._unrecorded_task: str | None = None
        """Last task that failed, was cancelled or opened a request, if no Temporal command was issued since then.

        `_record_change` explains why the command is needed.
        """
        self._checked_end_count, self._checked_request_count = len(scheduler.state.ended_numbers), 0
        """Numbers of ends and of requests that `_update_unrecorded_task` has already checked."""
        self._prepared_calls: deque[ReadyCall] = deque()
        """Calls that count as running and have yet to start."""
        self._sub_plans = SubPlans(run, self.receive_sub_plan_end, scheduler=scheduler, add_note=add_note)
        for task_id in tasks_in_flight(scheduler):
            self._sub_plans.adopt(task_id)
        self._call_batches = CallBatches(scheduler, run)
        self._budget_signals = BudgetSignals(scheduler, run.parent, self._sub_plans)
        self._notifier = Notifier(scheduler, run, add_note=add_note)
        self._deadline_timer = Timer(wire.TIMER_DEADLINE, lambda: self.push(self.scheduler.features.deadline.expire))
        self._drain_timer = Timer(wire.TIMER_DRAIN, lambda: self.push(self._end_drain))
        self._request_timer = Timer(wire.TIMER_REQUESTS, lambda: self.push(_wake))
        """Timer of the earliest deadline or reminder of a request."""
        self._signal_count = signal_count
        self._sent_policy, self._sent_concurrency = (
            scheduler.features.feedback.child_policy,
            scheduler.state.max_in_flight,
        )
        """Policy and concurrency that were last sent to the running sub-plans."""
        self._history_limits = HistoryLimits(baseline=self._history_use())
        self._has_progressed = False
        """Whether this execution has applied an event."""

    def push(self, event: Event) -> None:
        """Queue an event; events are applied in the order of arrival."""
        self._events.append(event)

    def receive_sub_plan_end(self, end: SubPlanEnd) -> None:
        """Queue the end of a sub-plan; a second end for the same task has no effect."""
        self.push(partial(self._end_sub_plan, end))

    def receive_budget_message(self, message: BudgetMessage) -> None:
        """Queue a budget message of the parent run or a child run."""
        self.push(lambda at: apply_budget_message(self.scheduler, message, at=at))

    def apply_commands(
        self, apply: Callable[[RunScheduler, float], Sequence[CommandResult]]
    ) -> Sequence[CommandResult]:
        """Apply the queued events and then the commands, without waiting for the loop; return the commands' results.

        The next message in the same workflow task must see the effects of the commands.

        Args:
            apply: function that applies the commands to the scheduler; it receives the scheduler and the current time.
        """
        try:
            self._apply_events()
        except Exception as error:
            # The commands did not cause the error: the loop raises it again, and the run ends with the error.
            self.push(partial(_raise, error))
        results = apply(self.scheduler, now_s())
        for signal in filter(None, (result.child_signal for result in results)):
            self._sub_plans.send(signal)
        # The loop has to handle the changes.
        self.push(_wake)
        return results

    async def run(self) -> None:
        """Run until every node has ended, or until the run has to continue as new.

        If the run has to continue as new, no call is in flight and all events have been applied.
        """
        self._set_deadline_timer()
        try:
            at = self._apply_events()
            while not self.scheduler.is_finished:
                history_use = self._history_use()
                # A stopped scheduler starts no new tasks, but tasks may still be running.
                if self.scheduler.is_stopped:
                    if not await self._cancel_running_tasks():
                        return
                    self._sub_plans.accept_new_sub_plans()
                elif self._should_continue_as_new(history_use):
                    # Send the messages of this workflow task: the next execution assumes that they were sent.
                    self._update_sub_plans()
                    # Events of this workflow task that are not applied would be lost.
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    if not self._events:
                        return
                elif self._history_limits.is_last_execution and self._is_full(history_use):
                    self.scheduler.close(at, reason="the history is full")
                else:
                    self._stop_cancelled_calls()
                    history_use = await self._dispatch(history_use, at)
                    if self._is_active():
                        self._limit_drain(history_use)
                        self._set_deadline_timer()
                        self._set_request_timer()
                        self._record_change()
                        self._publish_changes(at)
                        await workflow.wait_condition(self._has_work)
                at = self._apply_events()
        finally:
            for timer in (self._deadline_timer, self._drain_timer, self._request_timer):
                timer.stop()
            self._note_rejections()
            self._attributes.cancel_pending()

    @property
    def is_last_execution(self) -> bool:
        """Whether no other execution can follow.

        Nodes that a run adds are in the input of its next execution. Without a next execution, only the result of the
        run has the nodes that were added last.
        """
        return self._history_limits.is_last_execution

    def end_in_this_execution(self, error: NodeError) -> None:
        """End the run as failed, because no other execution can follow; the run also compensates in this execution."""
        self._history_limits.is_last_execution = True
        self.push(partial(self._abort, error))

    def _abort(self, error: NodeError, at: float) -> None:
        if self.scheduler.state.phase is Phase.ACTIVE:
            self.scheduler.abort(error, at)
            self.scheduler.propagate(at)

    async def stop_after_cancellation(self, reason: str) -> None:
        """Cancel running tasks after the run was cancelled through Temporal."""
        # Wait until the handles of calls that ended in the same workflow task are resolved.
        await workflow.wait_condition(lambda: True)
        self._apply_events()
        self.scheduler.close(now_s(), reason=reason)
        await self._cancel_running_tasks()

    async def finish_notifications(self) -> None:
        """Send the remaining notifications to the webhook after the end; this takes a few seconds at most."""
        await self._notifier.finish()

    async def run_while_idle(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run a coroutine while the run is idle; return its result, or `None` if an event arrived that must be applied.

        The deadline of the run is such an event.
        """
        task = asyncio.create_task(work)
        self._set_deadline_timer()
        try:
            await workflow.wait_condition(lambda: task.done() or bool(self._events))
            await workflow.wait_condition(workflow.all_handlers_finished)
        finally:
            self._deadline_timer.stop()
        if self._events:
            task.cancel()
            return None
        return task.result()

    def _is_active(self) -> bool:
        return not (self.scheduler.is_finished or self.scheduler.is_stopped)

    # Long histories.

    def _history_use(self) -> HistoryUse:
        """Return how much of the history limits was used at the start of this workflow task."""
        return HistoryUse(
            self._info.get_current_history_length(), self._info.get_current_history_size(), self._signal_count()
        )

    @property
    def _is_busy(self) -> bool:
        """Whether a call is in flight. Its end would be lost at continue-as-new."""
        return bool(self._handles or self._prepared_calls) or self._sub_plans.is_busy

    def _has_work(self) -> bool:
        return bool(self._events) or (not self._is_busy and self._should_continue_as_new(self._history_use()))

    def _should_continue_as_new(self, history_use: HistoryUse) -> bool:
        """Return whether the run should and can continue as new; an execution without progress never does."""
        if (
            self._is_busy
            or self._history_limits.is_last_execution
            or not (self._has_progressed or self._signal_count())
        ):
            return False
        is_suggested = self._info.is_continue_as_new_suggested() and self._history_limits.may_continue_as_new(
            history_use
        )
        return is_suggested or self._history_limits.is_draining(history_use)

    def _is_full(self, history_use: HistoryUse) -> bool:
        """Return whether nothing is running, and nothing can start any more."""
        return not self.scheduler.in_flight and self._history_limits.is_at_limit(history_use)

    def _limit_drain(self, history_use: HistoryUse) -> None:
        """Limit the time of a drain, in which ready tasks wait for running tasks before the run continues as new."""
        if (
            self._drain_timer.at is None
            and self._history_limits.is_draining(history_use)
            and not self._history_limits.is_at_limit(history_use)
        ):
            self._drain_timer.set(now_s() + limits.HISTORY_DRAIN_S)

    def _end_drain(self, at: float) -> None:  # noqa: ARG002 - an event
        self._history_limits.end_drain()

    # Events.

    def _apply_events(self) -> float:
        """Apply the queued events and return the current time."""
        at = now_s()
        if self._events:
            self._has_progressed = True
            self.scheduler.advance(at)
        for _ in range(len(self._events)):
            self._events.popleft()(at)
        return at

    def _set_request_timer(self) -> None:
        """Keep one timer for the earliest due time, while a request is open or a task is being cancelled.

        A timer that fires too early finds nothing due. A timer is also kept if nothing has a due time, for two reasons.
        The timer shows the wait in the Temporal UI. And the timer is a Temporal command: a worker that has evicted the
        run may merge a workflow task that has no commands into the next workflow task. The worker would then validate
        an answer before the request is known.
        """
        due_at = self.scheduler.next_timer
        if due_at is None and not self.scheduler.features.feedback.requests.open:
            self._request_timer.stop()
            return
        timer_at = due_at or now_s() + limits.NO_DEADLINE_TIMER_S
        if self._request_timer.at is not None and self._request_timer.at <= timer_at:
            return
        self._request_timer.set(timer_at)
        self._clear_unrecorded_task()

    def _note_rejections(self) -> None:
        for rejection in self.scheduler.features.feedback.requests.take_rejections():
            self._add_note("message_rejected", rejection)

    def _publish_changes(self, at: float) -> None:
        self._note_rejections()
        self._notifier.send(wake=lambda: self.push(_wake))
        self._update_sub_plans()
        status, title = self.scheduler.status().value, self.scheduler.plan.title
        self._attributes.publish(status, self.scheduler, title=title, at=at, wake=lambda: self.push(_wake))

    def _update_sub_plans(self) -> None:
        """Send changes of the shared state to the running sub-plans."""
        policy = self.scheduler.features.feedback.child_policy
        if policy != self._sent_policy:
            self._sent_policy = policy
            self._sub_plans.signal_all(wire.SET_POLICY, {"policy": policy.to_json()})
        if self.scheduler.state.max_in_flight != self._sent_concurrency:
            self._sent_concurrency = self.scheduler.state.max_in_flight
            self._sub_plans.signal_concurrency()
        self._budget_signals.send_changes(on_parent_lost=lambda: self.receive_budget_message(PARENT_LOST))

    def _set_deadline_timer(self) -> None:
        """Update the timer of the deadline; users can change the deadline."""
        if self.scheduler.features.deadline.deadline.at != self._deadline_timer.at:
            self._deadline_timer.set(self.scheduler.features.deadline.deadline.at)

    # Starting.

    async def _dispatch(self, history_use: HistoryUse, at: float) -> HistoryUse:
        """Start the tasks that may start, within the limits of one workflow task and one history.

        Returns:
            The history use at the start of the current workflow task.
        """
        sent_bytes = 0
        while (ready_call := self._next_call(history_use, at)) is not None or self._call_batches.has_added_calls:
            self._clear_unrecorded_task()
            if ready_call is None:
                sent_bytes += self._start_batch(at)
            elif not self._call_batches.add(ready_call, at=at):
                sent_bytes += self._start(ready_call)
            if sent_bytes > limits.TASK_COMMANDS_LIMIT_BYTES:
                # Temporal commands are only sent when the workflow task ends. The timer ends this workflow task, and
                # starts another immediately.
                await workflow.sleep(0.001, summary="sending the rest of a large batch")
                sent_bytes, history_use, at = 0, self._history_use(), self._apply_events()
                self._prepared_calls += self._call_batches.pop_added_calls()
                if self.scheduler.is_stopped:
                    break
        return history_use

    def _next_call(self, history_use: HistoryUse, at: float) -> ReadyCall | None:
        while self._prepared_calls:
            ready_call = self._prepared_calls.popleft()
            if ready_call.task.id not in self.scheduler.state.cancel_deadlines:
                return ready_call
            self.scheduler.task_cancelled(ready_call.task.id, at=at, attempt=NO_ATTEMPT)
        return next_call(self.scheduler, at) if self._history_limits.has_room(history_use, self.scheduler) else None

    def _start(self, ready_call: ReadyCall) -> int:
        """Start a task, or first load its arguments; return the approximate size of its command."""
        task = ready_call.task
        if task.is_child_run:
            return self._sub_plans.start(task)
        if task.is_join:
            handle, size = start_join(self.scheduler, task)
            self._follow(task, handle)
            return size + _COMMAND_BYTES
        if needs_loading(self.scheduler, ready_call):
            message, prepared_call = prepare_loading(ready_call)
            handle = start_loading(task, message, run=self._run)
            self._handles[task.id] = handle
            handle.add_done_callback(lambda done: self.push(partial(self._end_loading, prepared_call, done)))
        else:
            tool = tool_of(task.node, self.scheduler.plan.tools)
            start = start_call if tool.workflow is None else start_workflow
            call = encode_call(ready_call, self._run, tool=tool, failure=self._call_batches.take_failure(task))
            self._follow(task, start(task, call, tool=tool, run=self._run))
        return ready_call.size_bytes + _COMMAND_BYTES

    def _follow(self, task: Task, handle: "asyncio.Task[RawValue]") -> None:
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_call, task, done)))

    def _start_batch(self, at: float) -> int:
        """Start the next calls that share an activity; return the approximate size of the commands."""
        sent_bytes = 0
        for batch_or_call in self._call_batches.start_next(at):
            sent_bytes += (
                self._follow_batch(batch_or_call)
                if isinstance(batch_or_call, StartedBatch)
                else self._start(batch_or_call)
            )
        return sent_bytes

    def _follow_batch(self, batch: StartedBatch) -> int:
        self._handles |= {ready_call.task.id: batch.handle for ready_call in batch.calls}
        batch.handle.add_done_callback(lambda _: self.push(partial(self._end_batch, batch)))
        return batch.size_bytes + _COMMAND_BYTES

    # Ending.

    def _end_batch(self, batch: StartedBatch, at: float) -> None:
        """Apply the result of a call batch. Calls without a result start again, outside the batch."""
        handle = batch.handle
        calls = [ready_call for ready_call in batch.calls if self._handles.get(ready_call.task.id) is handle]
        for ready_call in calls:
            del self._handles[ready_call.task.id]
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        self._prepared_calls += self._call_batches.end(calls, handle.result() if error is None else None, at=at)

    def _end_loading(self, ready_call: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> None:
        if (loaded_arguments := self._end_preparation(ready_call, handle, at)) is not None:
            self._prepared_calls.append(replace(ready_call, arguments=loaded_arguments.payload.data))

    def _end_store_wait(self, ready_call: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> None:
        if self._end_preparation(ready_call, handle, at) is not None:
            self._prepared_calls.append(ready_call)

    def _end_preparation(self, ready_call: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> RawValue | None:
        """Handle the end of an activity that prepares a call; return the activity's result if the call is to be made.

        The call is not started here: if many activities end at once, one workflow task cannot start all of their calls.
        """
        task_id = ready_call.task.id
        if self._handles.get(task_id) is not handle:
            return None
        del self._handles[task_id]
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None and not self.scheduler.is_stopped and task_id not in self.scheduler.state.cancel_deadlines:
            result: RawValue = handle.result()
            return result
        apply_loading_failure(self.scheduler, task_id, error or asyncio.CancelledError(), at=at)
        return None

    def _end_call(self, task: Task, handle: "asyncio.Task[RawValue]", at: float) -> None:
        if self._handles.get(task.id) is not handle:
            return
        del self._handles[task.id]
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None:
            apply_result(self.scheduler, task.id, handle.result().payload, at=at)
            return
        if (wait := apply_store_wait(self.scheduler, task.id, error, at=at)) is not None:
            self._start_store_wait(task, wait, at)
            return
        failure = apply_failure(self.scheduler, task.id, error, at=at)
        if task.ref.item is not None:
            # `_update_unrecorded_task` finds failed nodes, but not failed items.
            self._unrecorded_task = task.id
        if failure is not None:
            workflow.logger.warning("node failed", extra={"node_id": task.id, "code": failure.code})

    def _start_store_wait(self, task: Task, wait: StoreWait, at: float) -> None:
        """Start the wait for the payload store, after which a call is repeated.

        During the wait, the call counts as running.
        """
        if self.scheduler.is_stopped or task.id in self.scheduler.state.cancel_deadlines:
            self.scheduler.task_cancelled(task.id, at=at, attempt=NO_ATTEMPT)
            return
        ready_call = repeated_call(self.scheduler, task)
        handle = start_store_wait(task, store_wait_message(ready_call, wait), run=self._run)
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_store_wait, ready_call, done)))

    def _end_sub_plan(self, end: SubPlanEnd, at: float) -> None:
        self._sub_plans.forget(end.call_id)
        apply_sub_plan_end(self.scheduler, end, at=at)

    def _update_unrecorded_task(self) -> None:
        """Store the last task that has failed, was cancelled or opened a request since this method was last called."""
        ended_numbers = self.scheduler.state.ended_numbers
        for number in ended_numbers[self._checked_end_count :]:
            if self.scheduler.records[number].status in (NodeStatus.FAILED, NodeStatus.CANCELLED):
                self._unrecorded_task = self.scheduler.plan.nodes[number].id
        self._checked_end_count = len(ended_numbers)
        requests = self.scheduler.features.feedback.requests
        if requests.opened_count > self._checked_request_count and requests.open:
            self._unrecorded_task = next(reversed(requests.open))
        self._checked_request_count = requests.opened_count

    def _clear_unrecorded_task(self) -> None:
        """Set `_unrecorded_task` to `None`, because the caller issues a Temporal command."""
        self._update_unrecorded_task()
        self._unrecorded_task = None

    def _record_change(self) -> None:
        """Issue a Temporal command if a task failed or opened a request and nothing started.

        A worker that has evicted the run may merge a workflow task that has no commands into the next workflow task. An
        update in the next workflow task would then be validated before the failure or the request is known, and
        rejected permanently.
        """
        self._update_unrecorded_task()
        if self._unrecorded_task is not None:
            workflow.upsert_memo({wire.MEMO_LAST_NODE_CHANGE: self._unrecorded_task})
            self._unrecorded_task = None

    # Stopping.

    def _stop_cancelled_calls(self) -> None:
        """Cancel the running calls of cancelled nodes, and abandon the calls that have not ended in time."""
        if not (self._cancelling_calls or self.scheduler.state.cancel_deadlines):
            return
        for task_id, call_id in [*self._cancelling_calls.items()]:
            if task_id not in self.scheduler.state.cancel_deadlines:
                del self._cancelling_calls[task_id]
                self._abandon(task_id, call_id)
        for task_id in self.scheduler.state.cancel_deadlines:
            call_id = last_call_id(self.scheduler.state, task_id)
            if self._cancelling_calls.get(task_id) != call_id:
                self._cancelling_calls[task_id] = call_id
                if (handle := self._handles.get(task_id)) is not None:
                    handle.cancel()
                self._sub_plans.cancel(call_id, "its node was cancelled")

    def _abandon(self, task_id: str, call_id: str) -> None:
        """Abandon a cancelled call, if its record shows that the call has not ended."""
        record = self.scheduler.record_of(task_id)
        if record is not None and record.reason == STILL_RUNNING_OUTSIDE:
            self._handles.pop(task_id, None)
            self._sub_plans.forget(call_id)

    async def _cancel_running_tasks(self) -> bool:
        """Cancel running tasks and wait for them, up to a deadline; return whether the run continues.

        A run with compensation continues by compensating its calls.
        """
        if not self.scheduler.in_flight:
            return False
        while self._prepared_calls:
            self.scheduler.task_cancelled(self._prepared_calls.popleft().task.id, at=now_s(), attempt=NO_ATTEMPT)
        for handle in list(self._handles.values()):
            handle.cancel()
        error = self.scheduler.state.error
        self._sub_plans.cancel_all(
            f"the parent run ended: {error.message}" if error else "the parent run was cancelled"
        )
        grace_timer = asyncio.create_task(workflow.sleep(limits.CANCEL_GRACE_S, summary=wire.TIMER_GRACE))
        grace_timer.add_done_callback(lambda done: None if done.cancelled() else self.push(self._abandon_rest))
        while self.scheduler.is_stopped and not self.scheduler.is_finished:
            await workflow.wait_condition(lambda: bool(self._events))
            self._apply_events()
        grace_timer.cancel()
        return not self.scheduler.is_stopped

    def _abandon_rest(self, at: float) -> None:
        """Stop waiting for cancelled tasks."""
        for task_id in [*self._handles, *self._sub_plans.open_tasks]:
            self.scheduler.task_cancelled(task_id, at=at, reason=STILL_RUNNING_OUTSIDE)
            self._abandon(task_id, last_call_id(self.scheduler.state, task_id))
