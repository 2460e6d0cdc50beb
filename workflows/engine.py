"""The engine: drives the pure scheduler with the events of one workflow execution.

No asyncio task stands for a node. Every activity's end lands in one list, one loop empties it, and one
`wait_condition` waits for the next. Reaction comes in the workflow task that saw the event.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.contracts import limits, wire
from dagwright.contracts.call_limits import largest_result_bytes
from dagwright.contracts.messages import SubPlanEnd
from dagwright.contracts.outcomes import next_call, take_failure, take_result, take_sub_plan_end
from dagwright.plan.errors import NodeError
from dagwright.plan.scheduler import Scheduler, Task
from dagwright.plan.tools import ToolDeclaration
from workflows.calls import RunScope, make_call, start_call
from workflows.sub_plans import SubPlans

_COMMAND_BYTES = 1_000
"""About what a command has beside the arguments."""

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
        self._result_bytes = largest_result_bytes(scheduler.plan)
        self._events: list[Event] = []
        self._handles: dict[str, workflow.ActivityHandle[RawValue]] = {}
        self._sub_plans = SubPlans(run, self.sub_plan_ended, lookups=scheduler.lookups)

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
            self._take_events()
            while not self.scheduler.is_finished:
                if self.scheduler.is_stopped:
                    await self._stop()
                    break
                await self._dispatch()
                if self._is_going_on():
                    await workflow.wait_condition(lambda: bool(self._events))
                    self._take_events()
        finally:
            if deadline is not None:
                deadline.cancel()

    async def run_to_stop(self) -> None:
        """Stops what runs, after the workflow itself was told to stop."""
        self._take_events()
        await self._stop()

    def _is_going_on(self) -> bool:
        return not (self.scheduler.is_finished or self.scheduler.is_stopped)

    def _take_events(self) -> None:
        events, self._events = self._events, []
        at = now_s()
        for event in events:
            event(at)

    def _start_deadline(self) -> "asyncio.Task[None] | None":
        if self._deadline_s is None:
            return None
        timer = asyncio.create_task(workflow.sleep(self._deadline_s, summary=wire.TIMER_DEADLINE))
        error = NodeError("deadline_exceeded", "the run took over its deadline")

        def passed(task: "asyncio.Task[None]") -> None:
            if not task.cancelled():
                self.push(lambda at: self.scheduler.abort(error, at))

        timer.add_done_callback(passed)
        return timer

    # Starting.

    async def _dispatch(self) -> None:
        """Starts what may start, within what one workflow task and one history can hold."""
        sent_bytes, most = 0, self._most_in_flight()
        while self.scheduler.in_flight + 1 < most:
            ready = next_call(self.scheduler, now_s())
            if ready is None:
                return
            sent_bytes += self._start(*ready)
            if sent_bytes > limits.TASK_COMMANDS_LIMIT_BYTES:
                # Only a new workflow task empties the batch of commands, and only a timer brings one by itself.
                await workflow.sleep(0.001, summary="sending the rest of a large batch")
                sent_bytes, most = 0, self._most_in_flight()
                self._take_events()
                if self.scheduler.is_stopped:
                    return
        if not self.scheduler.in_flight:
            info = workflow.info()
            size, events = info.get_current_history_size(), info.get_current_history_length()
            message = f"the run's history has {events:,} events and {size / 1e6:.0f} MB, which leaves no room to go on"
            self.scheduler.abort(NodeError("too_large", message), now_s())

    def _start(self, task: Task, encoded: bytes) -> int:
        """Starts a task; returns about how many bytes its command has."""
        if task.node.kind == "plan":
            return self._sub_plans.start(task)
        tool = self.scheduler.plan.tools.get(task.node.tool, _UNDECLARED)
        handle = start_call(task, make_call(task, encoded, self._run), tool=tool, run=self._run)
        self._handles[task.id] = handle
        handle.add_done_callback(lambda done: self.push(partial(self._end_call, task, done)))
        return len(encoded) + _COMMAND_BYTES

    def _most_in_flight(self) -> float:
        """Returns how many tasks in flight the rest of the history could take; it changes with each workflow task."""
        info = workflow.info()
        return limits.most_in_flight(
            history_bytes=info.get_current_history_size(),
            history_events=info.get_current_history_length(),
            result_bytes=self._result_bytes,
        )

    # Ending.

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
