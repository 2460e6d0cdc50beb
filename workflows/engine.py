"""The engine: drives the pure scheduler with the events of one workflow execution.

No asyncio task stands for a node. Every activity's end lands in one list, one loop empties it, and one
`wait_condition` waits for the next. Reaction comes in the workflow task that saw the event.

A run whose history has grown long leaves for a new execution, at a moment when no call is in flight: one would be
lost. Sub-plans run on, for they are runs of their own. The child workflow of a node that calls one is a call.
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
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import STILL_OUTSIDE, NodeStatus, Phase
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.scheduler import NO_ATTEMPT
from dagwright.core.scheduler.task_creation import call_of_task
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.budgets import PARENT_LOST, BudgetMessage, apply_budget_message
from dagwright.protocol.command_messages import awaited_assignees
from dagwright.protocol.commands import CommandResult
from dagwright.protocol.history_limits import HistoryLimits, HistoryUse
from dagwright.protocol.messages import SubPlanEnd
from dagwright.protocol.outcomes import (
    ReadyCall,
    StoreWait,
    apply_failure,
    apply_loading_failure,
    apply_result,
    apply_sub_plan_end,
    loading_call,
    needs_loading,
    next_call,
    repeated_call,
    store_wait_message,
    wait_for_store,
)
from dagwright.protocol.scheduler_snapshot import tasks_in_flight
from dagwright.workflows.budget_signals import BudgetSignals
from dagwright.workflows.calls import RunScope, make_call, start_call, start_loading, start_store_wait, start_workflow
from dagwright.workflows.maps import start_join
from dagwright.workflows.notifying import Notifier
from dagwright.workflows.search_attributes import SearchAttributes
from dagwright.workflows.sub_plans import SubPlans
from dagwright.workflows.timers import Timer, now_s

_COMMAND_BYTES = 1_000
"""About what a command has beside the arguments."""

_UNDECLARED = ToolDeclaration(name="")

T = TypeVar("T")

Event = Callable[[float], None]
"""Something that happened, as what it does to the scheduler at a time."""


def _nothing(at: float) -> None:
    """Happens so that the loop of the engine looks again."""


def _raise(error: Exception, at: float) -> None:  # noqa: ARG001 - an event
    raise error


class Engine:
    """Runs one plan inside of a workflow.

    Args:
        scheduler: the plan's scheduler, begun or restored.
        run: what the keys and ids of the run are made of.
        signals: returns how many signals and updates this execution has had.
        attributes: where the run tells what it waits for.
        note: takes code and message of what is worth saying.
    """

    def __init__(
        self,
        scheduler: RunScheduler,
        run: RunScope,
        *,
        signals: Callable[[], int],
        attributes: SearchAttributes,
        note: Callable[[str, str], None],
    ) -> None:
        self.scheduler = scheduler
        self._run = run
        self._info = workflow.info()
        self._attributes, self._note = attributes, note
        self._events: deque[Event] = deque()
        self._handles: dict[str, asyncio.Task[RawValue]] = {}
        """Task id -> its call; one that was given up is not in here any more, and its end is nobody's."""
        self._stopping: dict[str, str] = {}
        """Task that was told to stop while the run goes on -> the id of its call."""
        self._untold: str | None = None
        """Task that failed, was cancelled or asks, and of which no command tells yet."""
        self._ends_seen, self._requests_seen = len(scheduler.state.ended), 0
        self._loaded: deque[ReadyCall] = deque()
        """Calls whose arguments have been loaded."""
        self._sub_plans = SubPlans(run, self.sub_plan_ended, scheduler=scheduler, note=note)
        for task_id in tasks_in_flight(scheduler):
            self._sub_plans.adopt(task_id)
        self._budget_signals = BudgetSignals(scheduler, run.parent, self._sub_plans)
        self._notifier = Notifier(scheduler, run, note=note)
        self._deadline = Timer(wire.TIMER_DEADLINE, lambda: self.push(self.scheduler.features.deadline.expire))
        self._drain = Timer(wire.TIMER_DRAIN, lambda: self.push(self._give_up_drain))
        self._alarm = Timer(wire.TIMER_REQUESTS, lambda: self.push(_nothing))
        """For the earliest deadline or reminder of what people were asked; what is due is done before each batch."""
        self._signals = signals
        self._policy_told, self._width_told = scheduler.features.feedback.child_policy, scheduler.state.max_in_flight
        """What the sub-plans that run know of who has to be asked, and of how much may run at once."""
        self._marks = HistoryLimits(baseline=self._use())
        self._has_moved = False

    def push(self, event: Event) -> None:
        """Adds something that happened; it is taken in the order of arrival."""
        self._events.append(event)

    def sub_plan_ended(self, end: SubPlanEnd) -> None:
        """Takes the end of a sub-plan; the second one for the same task has no effect."""
        self.push(partial(self._end_sub_plan, end))

    def budget_news(self, news: BudgetMessage) -> None:
        """Takes what a run above or below tells of the budget that they share."""
        self.push(lambda at: apply_budget_message(self.scheduler, news, at=at))

    def apply_commands(self, take: Callable[[RunScheduler, float], Sequence[CommandResult]]) -> Sequence[CommandResult]:
        """Does at once what people ask for, behind all that came before; returns what became of it.

        At once, because whoever comes next in the same workflow task has to be told.

        Args:
            take: does it to the scheduler at a time.
        """
        try:
            self._take_events()
        except Exception as error:
            # It is no fault of the message: the loop meets it again, and it ends the run there with its reason.
            self.push(partial(_raise, error))
        found = take(self.scheduler, now_s())
        for sent in filter(None, (result.child_signal for result in found)):
            self._sub_plans.send(sent)
        # The loop has to look at what has changed.
        self.push(_nothing)
        return found

    async def run(self) -> None:
        """Runs until every node has ended, whatever way, or until the run has to go on in a new execution.

        In the second case the scheduler is not finished, no call is in flight and everything that came has been taken.
        """
        self._watch_deadline()
        try:
            at = self._take_events()
            while not self.scheduler.is_finished:
                use = self._use()
                if self.scheduler.is_stopped:
                    if not await self._stop():
                        return
                    self._sub_plans.go_on()
                elif self._may_leave(use):
                    # What is told in this workflow task leaves with it; the next execution takes it for told.
                    self._tell_sub_plans()
                    # What came in this workflow task, and has not been taken, would be lost.
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    if not self._events:
                        return
                elif self._marks.is_last and self._is_full(use):
                    self.scheduler.close(at, reason="the history is full")
                else:
                    self._stop_some()
                    use = await self._dispatch(use, at)
                    if self._is_going_on():
                        self._watch_drain(use)
                        self._watch_deadline()
                        self._watch_requests()
                        self._leave_trace()
                        self._tell(at)
                        await workflow.wait_condition(self._has_to_look)
                at = self._take_events()
        finally:
            for timer in (self._deadline, self._drain, self._alarm):
                timer.stop()
            self._note_refusals()
            self._attributes.rest()

    def end_here(self, error: NodeError) -> None:
        """Ends the run as failed, for no execution can follow this one; what it has to take back it takes back here."""
        self._marks.is_last = True
        self.push(partial(self._abort, error))

    def _abort(self, error: NodeError, at: float) -> None:
        if self.scheduler.state.phase is Phase.ACTIVE:
            self.scheduler.abort(error, at)
            self.scheduler.propagate(at)

    async def run_to_stop(self, reason: str) -> None:
        """Stops what runs, after the workflow itself was told to stop."""
        # What ended in the same workflow task has ended, and its handle has only not told yet.
        await workflow.wait_condition(lambda: True)
        self._take_events()
        self.scheduler.close(now_s(), reason=reason)
        await self._stop()

    async def tell_rest(self) -> None:
        """Tells the hook, after the end, what it has not been told; that takes some seconds at most."""
        await self._notifier.finish()

    async def undisturbed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Does something while the run rests; returns its result, or `None` if something came that must be taken.

        The deadline of the run is such a thing.
        """
        doing = asyncio.create_task(work)
        self._watch_deadline()
        try:
            await workflow.wait_condition(lambda: doing.done() or bool(self._events))
            await workflow.wait_condition(workflow.all_handlers_finished)
        finally:
            self._deadline.stop()
        if self._events:
            doing.cancel()
            return None
        return doing.result()

    def _is_going_on(self) -> bool:
        return not (self.scheduler.is_finished or self.scheduler.is_stopped)

    # A long history.

    def _use(self) -> HistoryUse:
        """Returns what the history has at the beginning of this workflow task."""
        history = self._info
        return HistoryUse(history.get_current_history_length(), history.get_current_history_size(), self._signals())

    @property
    def _is_busy(self) -> bool:
        """Tells whether a call is on its way, whose end would be lost with this execution."""
        return bool(self._handles or self._loaded) or self._sub_plans.is_busy

    def _has_to_look(self) -> bool:
        return bool(self._events) or (not self._is_busy and self._may_leave(self._use()))

    def _may_leave(self, use: HistoryUse) -> bool:
        """Tells whether the run should go on in a new execution, and can: one that has done nothing never leaves."""
        if self._is_busy or self._marks.is_last or not (self._has_moved or self._signals()):
            return False
        is_suggested = self._info.is_continue_as_new_suggested() and self._marks.may_continue_as_new(use)
        return is_suggested or self._marks.is_draining(use)

    def _is_full(self, use: HistoryUse) -> bool:
        """Tells whether nothing runs, and nothing can start any more."""
        return not self.scheduler.in_flight and self._marks.is_at_limit(use)

    def _watch_drain(self, use: HistoryUse) -> None:
        """Limits how long the tasks that are ready wait for those that run."""
        if self._drain.at is None and self._marks.is_draining(use) and not self._marks.is_at_limit(use):
            self._drain.set(now_s() + limits.DRAIN_S)

    def _give_up_drain(self, at: float) -> None:  # noqa: ARG002 - an event
        self._marks.end_drain()

    # Events.

    def _take_events(self) -> float:
        """Takes what has happened; returns what time it is."""
        at = now_s()
        if self._events:
            self._has_moved = True
            self.scheduler.advance(at)
        for _ in range(len(self._events)):
            self._events.popleft()(at)
        return at

    def _watch_requests(self) -> None:
        """Keeps one timer while anything is asked or told to stop, for the earliest time at which something is due.

        One that is too early just finds nothing due. There is one without a deadline too: in the Temporal UI it shows
        the wait, and a workflow task that opens a request and leaves no command may be taken together with the next
        one by a worker that has lost the run, which would then judge an answer before it knows the question.
        """
        next_alarm = self.scheduler.next_timer
        if next_alarm is None and not self.scheduler.features.feedback.requests.open:
            self._alarm.stop()
            return
        alarm_at = next_alarm or now_s() + limits.NO_DEADLINE_TIMER_S
        if self._alarm.at is not None and self._alarm.at <= alarm_at:
            return
        self._alarm.set(alarm_at)
        self._forget_untold()

    def _note_refusals(self) -> None:
        for refusal in self.scheduler.features.feedback.requests.take_refusals():
            self._note("refused", refusal)

    def _tell(self, at: float) -> None:
        self._note_refusals()
        self._notifier.send(wake=lambda: self.push(_nothing))
        self._tell_sub_plans()
        status, names = self.scheduler.status().value, awaited_assignees(self.scheduler)
        self._attributes.tell(status, names, at=at, wake=lambda: self.push(_nothing))

    def _tell_sub_plans(self) -> None:
        """Tells the sub-plans that run what has changed of what they share with this run."""
        policy = self.scheduler.features.feedback.child_policy
        if policy != self._policy_told:
            self._policy_told = policy
            self._sub_plans.tell_all(wire.SET_POLICY, {"policy": policy.to_json()})
        if self.scheduler.state.max_in_flight != self._width_told:
            self._width_told = self.scheduler.state.max_in_flight
            self._sub_plans.tell_widths()
        self._budget_signals.tell(lose_above=lambda: self.budget_news(PARENT_LOST))

    def _watch_deadline(self) -> None:
        """Keeps the timer of the deadline, which people may change."""
        if self.scheduler.features.deadline.deadline.at != self._deadline.at:
            self._deadline.set(self.scheduler.features.deadline.deadline.at)

    # Starting.

    async def _dispatch(self, use: HistoryUse, at: float) -> HistoryUse:
        """Starts what may start, within what one workflow task and one history can hold; returns what that has."""
        sent_bytes = 0
        while (ready := self._next(use, at)) is not None:
            self._forget_untold()
            sent_bytes += self._start(ready)
            if sent_bytes > limits.TASK_COMMANDS_LIMIT_BYTES:
                # Only a new workflow task empties the batch of commands, and only a timer brings one by itself.
                await workflow.sleep(0.001, summary="sending the rest of a large batch")
                sent_bytes, use, at = 0, self._use(), self._take_events()
                if self.scheduler.is_stopped:
                    break
        return use

    def _next(self, use: HistoryUse, at: float) -> ReadyCall | None:
        if self._loaded:
            return self._loaded.popleft()
        return next_call(self.scheduler, at) if self._marks.has_room(use, self.scheduler) else None

    def _start(self, ready: ReadyCall) -> int:
        """Starts a task, or loads its arguments first; returns about how many bytes its command has."""
        task = ready.task
        if task.is_run:
            return self._sub_plans.start(task)
        if task.is_join:
            handle, size = start_join(self.scheduler, task)
            self._follow(task, handle)
            return size + _COMMAND_BYTES
        if needs_loading(self.scheduler, ready):
            message, left = loading_call(ready)
            handle = start_loading(task, message, run=self._run)
            self._handles[task.id] = handle
            handle.add_done_callback(lambda done: self.push(partial(self._end_loading, left, done)))
        else:
            tool = tool_of(task.node, self.scheduler.plan.tools)
            start = start_call if tool.workflow is None else start_workflow
            self._follow(task, start(task, make_call(ready, self._run, tool=tool), tool=tool, run=self._run))
        return ready.size_bytes + _COMMAND_BYTES

    def _follow(self, task: Task, handle: "asyncio.Task[RawValue]") -> None:
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_call, task, done)))

    # Ending.

    def _end_loading(self, ready: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> None:
        if (done := self._end_before_call(ready, handle, at)) is not None:
            self._loaded.append(replace(ready, arguments=done.payload.data))

    def _end_store_wait(self, ready: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> None:
        if self._end_before_call(ready, handle, at) is not None:
            self._loaded.append(ready)

    def _end_before_call(self, ready: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> RawValue | None:
        """Takes the end of what had to happen before a call; returns its result if the call is to be made.

        Not started here: many may end at once, more than one workflow task can send.
        """
        task_id = ready.task.id
        if self._handles.get(task_id) is not handle:
            return None
        del self._handles[task_id]
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None and not self.scheduler.is_stopped and task_id not in self.scheduler.state.cancelling:
            done: RawValue = handle.result()
            return done
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
        if (wait := wait_for_store(self.scheduler, task.id, error, at=at)) is not None:
            self._await_store(task, wait, at)
            return
        failure = apply_failure(self.scheduler, task.id, error, at=at)
        if task.ref.item is not None:
            self._untold = task.id
        if failure is not None:
            workflow.logger.warning("node failed", extra={"node_id": task.id, "code": failure.code})

    def _await_store(self, task: Task, wait: StoreWait, at: float) -> None:
        """Waits for the payload store and then makes a call again; for the scheduler it runs on."""
        if self.scheduler.is_stopped or task.id in self.scheduler.state.cancelling:
            self.scheduler.task_cancelled(task.id, at=at, attempt=NO_ATTEMPT)
            return
        ready = repeated_call(self.scheduler, task)
        handle = start_store_wait(task, store_wait_message(ready, wait), run=self._run)
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_store_wait, ready, done)))

    def _end_sub_plan(self, end: SubPlanEnd, at: float) -> None:
        self._sub_plans.forget(end.task)
        apply_sub_plan_end(self.scheduler, end, at=at)

    def _see_ends(self) -> None:
        """Takes note of what has failed, was cancelled or asks since the last time."""
        ended = self.scheduler.state.ended
        for number in ended[self._ends_seen :]:
            if self.scheduler.records[number].status in (NodeStatus.FAILED, NodeStatus.CANCELLED):
                self._untold = self.scheduler.plan.nodes[number].id
        self._ends_seen = len(ended)
        requests = self.scheduler.features.feedback.requests
        if requests.opened > self._requests_seen and requests.open:
            self._untold = next(reversed(requests.open))
        self._requests_seen = requests.opened

    def _forget_untold(self) -> None:
        """Takes note that a command tells of what has failed, was cancelled or asks."""
        self._see_ends()
        self._untold = None

    def _leave_trace(self) -> None:
        """Leaves a command behind where something failed or asks and nothing started.

        A workflow task that leaves none may be taken together with the next one by a worker that has lost the run. An
        update of the next one would then be judged before the failure or the question is known, and refused for ever.
        """
        self._see_ends()
        if self._untold is not None:
            workflow.upsert_memo({wire.MEMO_CHANGED: self._untold})
            self._untold = None

    # Stopping.

    def _stop_some(self) -> None:
        """Tells what runs of cancelled nodes to stop, and gives up what has not in time."""
        if not (self._stopping or self.scheduler.state.cancelling):
            return
        for task_id, call in [*self._stopping.items()]:
            if task_id not in self.scheduler.state.cancelling:
                del self._stopping[task_id]
                self._give_up(task_id, call)
        for task_id in self.scheduler.state.cancelling:
            call = call_of_task(self.scheduler.state, task_id)
            if self._stopping.get(task_id) != call:
                self._stopping[task_id] = call
                if (handle := self._handles.get(task_id)) is not None:
                    handle.cancel()
                self._sub_plans.cancel(call, "its node was cancelled")

    def _give_up(self, task_id: str, call: str) -> None:
        """Forgets a call that was told to stop, if it has not: nobody waits for its end."""
        record = self.scheduler.record_of(task_id)
        if record is not None and record.reason == STILL_OUTSIDE:
            self._handles.pop(task_id, None)
            self._sub_plans.forget(call)

    async def _stop(self) -> bool:
        """Tells what runs to stop and waits for it, with a deadline; returns whether the run goes on.

        One that is to do all or nothing goes on by taking back what it did.
        """
        if not self.scheduler.in_flight:
            return False
        for ready in self._loaded:
            self.scheduler.task_cancelled(ready.task.id, at=now_s(), attempt=NO_ATTEMPT)
        for handle in list(self._handles.values()):
            handle.cancel()
        error = self.scheduler.state.error
        self._sub_plans.cancel_all(f"the run above ended: {error.message}" if error else "the run above was cancelled")
        grace = asyncio.create_task(workflow.sleep(limits.CANCEL_GRACE_S, summary=wire.TIMER_GRACE))
        grace.add_done_callback(lambda done: None if done.cancelled() else self.push(self._leave_outside))
        # A run that takes back what it did goes on.
        while self.scheduler.is_stopped and not self.scheduler.is_finished:
            await workflow.wait_condition(lambda: bool(self._events))
            self._take_events()
        grace.cancel()
        return not self.scheduler.is_stopped

    def _leave_outside(self, at: float) -> None:
        """Waits no longer for what was told to stop."""
        for task_id in [*self._handles, *self._sub_plans.open_tasks]:
            self.scheduler.task_cancelled(task_id, at=at, reason=STILL_OUTSIDE)
            self._give_up(task_id, call_of_task(self.scheduler.state, task_id))
