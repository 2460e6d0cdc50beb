"""The engine: drives the pure scheduler with the events of one workflow execution.

No asyncio task stands for a node. Every activity's end lands in one list, one loop empties it, and one
`wait_condition` waits for the next. Reaction comes in the workflow task that saw the event.

A run whose history has grown long leaves for a new execution, at a moment when no call is in flight: one would be
lost. Sub-plans run on, for they are runs of their own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.contracts import limits, wire
from dagwright.contracts.marks import HistoryUse, Marks
from dagwright.contracts.messages import SubPlanEnd
from dagwright.contracts.outcomes import (
    ReadyCall,
    loading_of,
    needs_loading,
    next_call,
    take_failure,
    take_loading_failure,
    take_result,
    take_sub_plan_end,
)
from dagwright.plan.carry import tasks_in_flight
from dagwright.plan.errors import NodeError
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.tasks import Task
from dagwright.plan.tools import ToolDeclaration
from workflows.calls import RunScope, make_call, start_call, start_loading
from workflows.maps import start_join
from workflows.sub_plans import SubPlans

_COMMAND_BYTES = 1_000
"""About what a command has beside the arguments."""

_UNDECLARED = ToolDeclaration(name="")

T = TypeVar("T")

Event = Callable[[float], None]
"""Something that happened, as what it does to the scheduler at a time."""


def now_s() -> float:
    """Returns the workflow's own time in seconds since the epoch."""
    return workflow.now().timestamp()


class Engine:
    """Runs one plan inside of a workflow.

    Args:
        scheduler: the plan's scheduler, begun or restored.
        run: what the keys and ids of the run are made of.
        deadline_at: when the run may take no longer, in seconds since the epoch.
        signals: returns how many signals this execution has had.
    """

    def __init__(
        self, scheduler: Scheduler, run: RunScope, *, deadline_at: float | None, signals: Callable[[], int]
    ) -> None:
        self.scheduler = scheduler
        self._run = run
        self._deadline_at = deadline_at
        self._events: list[Event] = []
        self._handles: dict[str, workflow.ActivityHandle[RawValue]] = {}
        self._loaded: deque[ReadyCall] = deque()
        """Calls whose arguments have been loaded."""
        self._sub_plans = SubPlans(run, self.sub_plan_ended, scheduler=scheduler)
        for task_id in tasks_in_flight(scheduler):
            self._sub_plans.adopt(task_id)
        self._drain: asyncio.Task[None] | None = None
        self._signals = signals
        self._marks = Marks(begun=self._use())
        self._has_moved = False

    def push(self, event: Event) -> None:
        """Adds something that happened; it is taken in the order of arrival."""
        self._events.append(event)

    def sub_plan_ended(self, end: SubPlanEnd) -> None:
        """Takes the end of a sub-plan; the second one for the same task has no effect."""
        self.push(partial(self._end_sub_plan, end))

    def request_cancel(self, reason: str | None) -> None:
        """Asks the run to stop: nothing new starts, what runs is told."""
        self.push(lambda at: self.scheduler.cancel(at, reason=reason))

    async def run(self) -> None:
        """Runs until every node has ended, whatever way, or until the run has to go on in a new execution.

        In the second case the scheduler is not finished, no call is in flight and everything that came has been taken.
        """
        deadline = self._start_deadline()
        try:
            self._take_events()
            while not self.scheduler.is_finished:
                if self.scheduler.is_stopped:
                    await self._stop()
                    return
                if self._may_leave():
                    # What came in this workflow task, and has not been taken, would be lost.
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    if not self._events:
                        return
                else:
                    await self._dispatch()
                    if self._is_going_on():
                        self._watch_drain()
                        await workflow.wait_condition(lambda: bool(self._events) or self._may_leave())
                self._take_events()
        finally:
            for timer in (deadline, self._drain):
                if timer is not None:
                    timer.cancel()

    async def run_to_stop(self, reason: str) -> None:
        """Stops what runs, after the workflow itself was told to stop."""
        # What ended in the same workflow task has ended, and its handle has only not told yet.
        await workflow.wait_condition(lambda: True)
        self._take_events()
        self.request_cancel(reason)
        self._take_events()
        await self._stop()

    async def undisturbed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Does something while the run rests; returns its result, or `None` if something came that must be taken.

        The deadline of the run is such a thing.
        """
        doing = asyncio.create_task(work)
        deadline = self._start_deadline()
        try:
            await workflow.wait_condition(lambda: doing.done() or bool(self._events))
            await workflow.wait_condition(workflow.all_handlers_finished)
        finally:
            if deadline is not None:
                deadline.cancel()
        if self._events:
            doing.cancel()
            return None
        return doing.result()

    def _is_going_on(self) -> bool:
        return not (self.scheduler.is_finished or self.scheduler.is_stopped)

    # A long history.

    def _use(self) -> HistoryUse:
        info = workflow.info()
        return HistoryUse(info.get_current_history_length(), info.get_current_history_size(), self._signals())

    def _may_leave(self) -> bool:
        """Tells whether the run should go on in a new execution, and can: one that has done nothing never leaves."""
        if self._handles or self._loaded or self._sub_plans.is_starting or not (self._has_moved or self._signals()):
            return False
        use = self._use()
        is_suggested = workflow.info().is_continue_as_new_suggested() and self._marks.is_worth_leaving(use)
        return is_suggested or self._marks.is_draining(use)

    def _watch_drain(self) -> None:
        """Limits how long the tasks that are ready wait for those that run."""
        use = self._use()
        if self._drain is not None or not self._marks.is_draining(use) or self._marks.is_at_limit(use):
            return
        timer = asyncio.create_task(workflow.sleep(limits.DRAIN_S, summary=wire.TIMER_DRAIN))
        timer.add_done_callback(lambda done: None if done.cancelled() else self.push(self._give_up_drain))
        self._drain = timer

    def _give_up_drain(self, at: float) -> None:  # noqa: ARG002 - an event
        self._drain = None
        self._marks.give_up_drain()

    # Events.

    def _take_events(self) -> None:
        events, self._events = self._events, []
        self._has_moved = self._has_moved or bool(events)
        at = now_s()
        for event in events:
            event(at)

    def _start_deadline(self) -> "asyncio.Task[None] | None":
        if self._deadline_at is None:
            return None
        left_s = max(self._deadline_at - now_s(), 0.001)
        timer = asyncio.create_task(workflow.sleep(left_s, summary=wire.TIMER_DEADLINE))
        error = NodeError("deadline_exceeded", "the run took over its deadline")

        def passed(task: "asyncio.Task[None]") -> None:
            if not task.cancelled():
                self.push(lambda at: self.scheduler.abort(error, at))

        timer.add_done_callback(passed)
        return timer

    # Starting.

    async def _dispatch(self) -> None:
        """Starts what may start, within what one workflow task and one history can hold."""
        sent_bytes, use = 0, self._use()
        while (ready := self._next(use)) is not None:
            sent_bytes += self._start(ready)
            if sent_bytes > limits.TASK_COMMANDS_LIMIT_BYTES:
                # Only a new workflow task empties the batch of commands, and only a timer brings one by itself.
                await workflow.sleep(0.001, summary="sending the rest of a large batch")
                sent_bytes, use = 0, self._use()
                self._take_events()
                if self.scheduler.is_stopped:
                    return

    def _next(self, use: HistoryUse) -> ReadyCall | None:
        if self._loaded:
            return self._loaded.popleft()
        return next_call(self.scheduler, now_s()) if self._marks.has_room(use, self.scheduler) else None

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
            message, left = loading_of(ready)
            handle = start_loading(task, message, run=self._run)
            self._handles[task.id] = handle
            handle.add_done_callback(lambda done: self.push(partial(self._end_loading, left, done)))
        else:
            tool = self.scheduler.plan.tools.get(task.node.tool, _UNDECLARED)
            self._follow(task, start_call(task, make_call(ready, self._run), tool=tool, run=self._run))
        return ready.size_bytes + _COMMAND_BYTES

    def _follow(self, task: Task, handle: workflow.ActivityHandle[RawValue]) -> None:
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_call, task, done)))

    # Ending.

    def _end_loading(self, ready: ReadyCall, handle: "asyncio.Task[RawValue]", at: float) -> None:
        self._handles.pop(ready.task.id, None)
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None and not self.scheduler.is_stopped:
            # Not started here: many may have been loaded at once, more than one workflow task can send.
            self._loaded.append(replace(ready, arguments=handle.result().payload.data))
        else:
            take_loading_failure(self.scheduler, ready.task.id, error or asyncio.CancelledError(), at=at)

    def _end_call(self, task: Task, handle: "asyncio.Task[RawValue]", at: float) -> None:
        self._handles.pop(task.id, None)
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None:
            take_result(self.scheduler, task.id, handle.result().payload, at=at)
            return
        failure = take_failure(self.scheduler, task.id, error, at=at)
        if failure is not None:
            workflow.logger.warning("node failed", extra={"node_id": task.id, "code": failure.code})

    def _end_sub_plan(self, end: SubPlanEnd, at: float) -> None:
        self._sub_plans.forget(end.task)
        take_sub_plan_end(self.scheduler, end, at=at)

    # Stopping.

    async def _stop(self) -> None:
        """Tells what runs to stop and waits for it, with a deadline."""
        if not self.scheduler.in_flight:
            return
        for ready in self._loaded:
            self.scheduler.task_cancelled(ready.task.id, at=now_s())
        for handle in list(self._handles.values()):
            handle.cancel()
        error = self.scheduler.error
        self._sub_plans.cancel_all(f"the run above ended: {error.message}" if error else "the run above was cancelled")
        grace = asyncio.create_task(workflow.sleep(limits.CANCEL_GRACE_S, summary=wire.TIMER_GRACE))
        grace.add_done_callback(lambda done: None if done.cancelled() else self.push(self._leave_outside))
        while not self.scheduler.is_finished:
            await workflow.wait_condition(lambda: bool(self._events))
            self._take_events()
        grace.cancel()

    def _leave_outside(self, at: float) -> None:
        """Waits no longer for what was told to stop."""
        for task_id in [*self._handles, *self._sub_plans.open_tasks]:
            self.scheduler.task_cancelled(task_id, at=at, reason=wire.REASON_STILL_OUTSIDE)
