"""The engine: drives the pure scheduler with the events of one workflow execution.

No asyncio task stands for a node. Every activity's end lands in one list, one loop empties it, and one
`wait_condition` waits for the next. Reaction comes in the workflow task that saw the event.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.contracts import limits
from dagwright.contracts.messages import SubPlanEnd
from dagwright.plan.errors import NodeError
from dagwright.plan.scheduler import Scheduler, Task
from dagwright.plan.states import RunStatus
from dagwright.plan.tools import Effects, ToolDeclaration
from workflows.calls import CallTooLarge, RunScope, encode_call, start_call
from workflows.details import render_details
from workflows.outcomes import ResultInvalid, is_cancellation, read_failure, read_result
from workflows.sub_plans import SubPlans

_UNDECLARED = ToolDeclaration(name="")

Event = Callable[[float], None]
"""Something that happened, as what it does to the scheduler at a time."""


def now_s() -> float:
    """Returns the workflow's own time in seconds since the epoch."""
    return workflow.now().timestamp()


class Engine:
    """Runs one plan inside of a workflow.

    Args:
        scheduler: the plan's scheduler, not begun.
        run: what the keys and ids of the run are made of.
        deadline_s: seconds the run may take from now.
    """

    def __init__(self, scheduler: Scheduler, run: RunScope, *, deadline_s: float | None) -> None:
        self.scheduler = scheduler
        self._run = run
        self._deadline_s = deadline_s
        self._events: list[Event] = []
        self._handles: dict[str, workflow.ActivityHandle[RawValue]] = {}
        self._sub_plans = SubPlans(run, self.sub_plan_ended)

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
        """Runs until every node has ended, whatever way."""
        deadline = self._start_deadline()
        try:
            self.scheduler.begin(now_s())
            while not self.scheduler.is_finished:
                if self.scheduler.is_stopped:
                    await self._stop()
                    break
                await self._dispatch()
                self._show()
                if not self.scheduler.is_finished:
                    await workflow.wait_condition(lambda: bool(self._events))
                self._take_events()
            self._show()
        finally:
            if deadline is not None:
                deadline.cancel()

    async def run_to_stop(self) -> None:
        """Stops what runs, after the workflow itself was told to stop."""
        self._take_events()
        await self._stop()

    def _take_events(self) -> None:
        events, self._events = self._events, []
        at = now_s()
        for event in events:
            event(at)

    def _start_deadline(self) -> "asyncio.Task[None] | None":
        if self._deadline_s is None:
            return None
        message = f"the run took over its deadline of {self._deadline_s:g} s"
        timer = asyncio.create_task(workflow.sleep(self._deadline_s, summary="deadline of the run"))
        error = NodeError("deadline_exceeded", message)

        def passed(task: "asyncio.Task[None]") -> None:
            if not task.cancelled():
                self.push(lambda at: self.scheduler.abort(error, at))

        timer.add_done_callback(passed)
        return timer

    # Starting.

    async def _dispatch(self) -> None:
        """Starts what may start, within what one workflow task and one history can hold."""
        sent_bytes = 0
        while self._history_has_room():
            task = self.scheduler.next_task(now_s())
            if task is None:
                return
            sent_bytes += self._start(task)
            if sent_bytes > limits.TASK_COMMANDS_LIMIT_BYTES:
                # Only a new workflow task empties the batch of commands, and only a timer brings one by itself.
                await workflow.sleep(0.001, summary="sending the rest of a large batch")
                sent_bytes = 0
                self._take_events()
                if self.scheduler.is_stopped:
                    return
        if not self.scheduler.in_flight:
            info = workflow.info()
            size, events = info.get_current_history_size(), info.get_current_history_length()
            message = f"the run's history has {events:,} events and {size / 1e6:.0f} MB, which leaves no room to go on"
            self.scheduler.abort(NodeError("too_large", message), now_s())

    def _history_has_room(self) -> bool:
        info, in_flight = workflow.info(), self.scheduler.in_flight + 1
        size = info.get_current_history_size() + in_flight * limits.RESULT_LIMIT_BYTES
        events = info.get_current_history_length() + in_flight * limits.EVENTS_PER_TASK
        return size < limits.HISTORY_LIMIT_BYTES and events < limits.HISTORY_LIMIT_EVENTS

    def _start(self, task: Task) -> int:
        """Starts a task; returns the bytes of its command. What cannot be sent fails."""
        if task.node.kind == "plan":
            return self._sub_plans.start(task)
        tool = self.scheduler.plan.tools.get(task.node.tool, _UNDECLARED)
        try:
            call = encode_call(task, self._run)
        except CallTooLarge as error:
            self.scheduler.fail(task.id, NodeError("too_large", str(error)), at=now_s())
            return 0
        except ValueError as error:
            self.scheduler.fail(task.id, NodeError("invalid_arguments", str(error)), at=now_s())
            return 0
        handle = start_call(task, call, tool=tool, run=self._run)
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_call, task, tool.effects, done)))
        return len(call.payload.data) + 1_000

    # Ending.

    def _end_call(self, task: Task, effects: Effects, handle: "asyncio.Task[RawValue]", at: float) -> None:
        self._handles.pop(task.id, None)
        error = asyncio.CancelledError() if handle.cancelled() else handle.exception()
        if error is None:
            try:
                value, attempt = read_result(handle.result().payload)
            except ResultInvalid as invalid:
                self.scheduler.fail(
                    task.id, NodeError("invalid_result", f"{task.node.tool}: {invalid}"), at=at
                )
                return
            self.scheduler.complete(task.id, value, at=at, attempt=attempt)
        elif is_cancellation(error):
            self.scheduler.task_cancelled(task.id, at=at)
        else:
            failure, attempt = read_failure(error, task.node, effects)
            workflow.logger.warning("node failed", extra={"node_id": task.id, "code": failure.code})
            self.scheduler.fail(task.id, failure, at=at, attempt=attempt)

    def _end_sub_plan(self, end: SubPlanEnd, at: float) -> None:
        self._sub_plans.forget(end.task)
        if self.scheduler.record_of(end.task) is None:
            workflow.logger.warning("report of an unknown sub-plan", extra={"node_id": end.task})
        elif end.status in (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES):
            is_partial = end.status == RunStatus.COMPLETED_WITH_FAILURES
            self.scheduler.complete(end.task, end.output, at=at, is_partial=is_partial)
        elif end.status == RunStatus.CANCELLED:
            self.scheduler.task_cancelled(end.task, at=at, reason="the sub-plan was cancelled")
        else:
            message = (end.error or {}).get("message") or "it did not say why"
            self.scheduler.fail(
                end.task, NodeError("sub_plan_failed", f"the sub-plan failed: {message}"), at=at
            )

    # Stopping.

    async def _stop(self) -> None:
        """Tells what runs to stop and waits for it, with a deadline."""
        if self.scheduler.is_finished:
            return
        for handle in list(self._handles.values()):
            handle.cancel()
        self._sub_plans.cancel_all("the run above was cancelled")
        grace = asyncio.create_task(
            workflow.sleep(limits.CANCEL_GRACE_S, summary="waiting for running steps to stop")
        )
        while not self.scheduler.is_finished:
            self._show()
            await workflow.wait_condition(lambda: bool(self._events) or grace.done())
            self._take_events()
            if grace.done():
                for task_id in [*self._handles, *self._sub_plans.open_tasks]:
                    self.scheduler.task_cancelled(task_id, at=now_s(), reason="still running outside")
        grace.cancel()

    def _show(self) -> None:
        workflow.set_current_details(render_details(self.scheduler))
