"""Sub-plans: child workflows that outlive their parent and report their end by signal.

A child of the default kind would end with its parent, also at a continue-as-new; an abandoned one does
not, so its end comes as the signal `sub_plan_ended` (engine-findings.md 5). The child's own end is listened
to as well, because a child that was terminated sends nothing; one that an execution before has started is asked for
now and then.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, FailureError

from dagwright.contracts import limits, wire
from dagwright.contracts.chunk_runs import chunk_run_input
from dagwright.contracts.documents import encoded_size, error_json
from dagwright.contracts.messages import (
    MessageInvalid,
    Parent,
    RunInput,
    SubPlanEnd,
    run_input_to_json,
)
from dagwright.contracts.outcomes import ResultInvalid, found_ends, read_sub_plan_end, sub_plan_failure
from dagwright.plan.errors import NodeError
from dagwright.plan.references import Lookup
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import RunStatus
from dagwright.plan.tasks import Task
from dagwright.plan.unfilled import unfilled_to_json
from workflows.calls import RunScope, json_payload

_COMMAND_BYTES = 2_000
"""About what the start of a sub-plan has beside its input."""

NOTHING_COMPLETED = "no node that the plan is for was completed"
"""Why a run failed that has no error of its own."""

EndTaken = Callable[[SubPlanEnd], None]


class SubPlans:
    """The sub-plans of one run.

    Args:
        run: what the ids and keys of the run are made of.
        take_end: takes the end of a sub-plan; the second one for the same task has no effect.
        scheduler: of the run; what a sub-plan is given comes out of it.
    """

    def __init__(self, run: RunScope, take_end: EndTaken, *, scheduler: Scheduler) -> None:
        self._run = run
        self._take_end = take_end
        self._scheduler = scheduler
        self._open: dict[str, asyncio.Task[None] | None] = {}
        """Task id -> what follows its sub-plan; nothing does for one that an execution before has started."""
        self._messages: list[asyncio.Task[None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._stop_reason: str | None = None
        self._handles: dict[str, workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any]] = {}

    @property
    def open_tasks(self) -> list[str]:
        """Ids of the tasks whose sub-plans have not ended, in order of their start."""
        return list(self._open)

    @property
    def is_starting(self) -> bool:
        """Tells whether a sub-plan is about to start: it would be lost if the run went on elsewhere now."""
        return len(self._handles) < len(self._open)

    def adopt(self, task_id: str) -> None:
        """Takes over the sub-plan of a task that an execution before has started; its end comes by its report."""
        child_id = limits.child_workflow_id(workflow.info().workflow_id, task_id)
        self._open[task_id] = None
        self._handles[task_id] = workflow.get_external_workflow_handle(child_id)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_after_adopted())

    def start(self, task: Task) -> int:
        """Starts the child workflow of a task; returns about how many bytes its command has."""
        encoded = pydantic_core.to_json(self._input_of(task))
        self._open[task.id] = asyncio.create_task(self._follow(task, json_payload(encoded)))
        return len(encoded) + _COMMAND_BYTES

    def forget(self, task_id: str) -> None:
        """Drops a sub-plan that has ended."""
        self._open.pop(task_id, None)
        self._handles.pop(task_id, None)

    def cancel_all(self, reason: str) -> None:
        """Tells every open sub-plan to stop; each reports its end as ever."""
        # One that is about to start cannot be stopped yet: it is told as soon as it has started.
        self._stop_reason = reason
        for task_id in self._handles:
            self._messages.append(asyncio.create_task(self._tell_to_stop(task_id, reason)))

    async def _tell_to_stop(self, task_id: str, reason: str) -> None:
        try:
            await self._handles[task_id].signal(wire.SIGNAL_CANCEL, {"reason": reason})
        except FailureError:
            # It has ended meanwhile, and its end is on its way, unless nobody follows it and it was terminated.
            if self._open.get(task_id, self) is None:
                self._take_end(SubPlanEnd(task_id, RunStatus.CANCELLED, None, None))

    async def _follow(self, task: Task, encoded: Payload) -> None:
        """Starts a sub-plan and takes its end, should it come without a report."""
        try:
            handle = await self._start_child(task, encoded)
            self._handles[task.id] = handle
            if self._stop_reason is not None:
                await self._tell_to_stop(task.id, self._stop_reason)
            payload: RawValue = await handle
            self._take_end(read_sub_plan_end(task.id, payload.payload))
        except (FailureError, ResultInvalid, asyncio.CancelledError) as error:
            self._take_end(sub_plan_failure(task.id, error, task.node))
        # The edge of this task: nobody awaits it, so what nobody expected would leave the run waiting for ever.
        except Exception as error:
            workflow.logger.exception("following a sub-plan ended by a defect", extra={"node_id": task.id})
            bug = NodeError(wire.ERROR_BUG, f"{type(error).__name__}: {error}")
            self._take_end(SubPlanEnd(task.id, RunStatus.FAILED, None, bug.to_json()))

    # Sub-plans that an execution before has started.

    async def _look_after_adopted(self) -> None:
        """Asks now and then, ever more seldom, whether one has ended without a report."""
        pause_s = limits.LOOK_S
        while True:
            await workflow.sleep(pause_s, summary=wire.TIMER_LOOK)
            pause_s = min(2 * pause_s, limits.LOOK_MOST_S)
            workflow_id = workflow.info().workflow_id
            adopted = [task_id for task_id, following in self._open.items() if following is None]
            if not adopted:
                return
            for first in range(0, len(adopted), limits.LOOKED_AT):
                together = adopted[first : first + limits.LOOKED_AT]
                tasks = {limits.child_workflow_id(workflow_id, task_id): task_id for task_id in together}
                for end in await self._find_ended(tasks):
                    self._take_end(end)

    @staticmethod
    async def _find_ended(tasks: Mapping[str, str]) -> list[SubPlanEnd]:
        """Returns the ends of those that have ended.

        Args:
            tasks: workflow id -> the task that started it.
        """
        try:
            payload: RawValue = await workflow.execute_activity(
                wire.ACTIVITY_FIND_ENDED,
                list(tasks),
                activity_id=wire.ID_FIND_ENDED,
                start_to_close_timeout=timedelta(minutes=2),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(maximum_attempts=3),
                summary=wire.TIMER_LOOK,
                result_type=RawValue,
            )
            return found_ends(payload.payload, tasks)
        except (ActivityError, MessageInvalid):
            # The next look may do better.
            return []

    def _input_of(self, task: Task) -> dict[str, Any]:
        scope, parent = self._run.scope, Parent(workflow.info().workflow_id, task.id)
        if task.chunk is not None:
            # Its items have the paths that they would have here.
            child_input = replace(chunk_run_input(self._scheduler, task), path=self._run.path)
        else:
            child_input = RunInput(
                compiled=task.node.sub_plan,
                inputs=task.arguments,
                path=(*self._run.path, *((kind, name) for kind, name in task.path)),
                deadline_s=task.node.timeout_s or None,
                lookups=self._lookups_of(task),
            )
        return run_input_to_json(replace(child_input, scope=scope, parent=parent))

    def _lookups_of(self, task: Task) -> dict[Lookup, Any]:
        wanted = task.node.sub_plan.lookups if task.node.sub_plan else ()
        known = self._scheduler.lookups
        return {lookup: known[lookup] for lookup in wanted if lookup in known}

    async def _start_child(self, task: Task, encoded: Payload) -> workflow.ChildWorkflowHandle[Any, Any]:
        info = workflow.info()
        return await workflow.start_child_workflow(
            wire.WORKFLOW_RUN_PLAN,
            RawValue(encoded),
            id=limits.child_workflow_id(info.workflow_id, task.id),
            result_type=RawValue,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            static_summary=limits.summary_of(task.node.title or task.id),
            priority=Priority(priority_key=task.node.priority),
            search_attributes=info.typed_search_attributes if info.typed_search_attributes.search_attributes else None,
        )


def end_of(document: dict[str, Any]) -> dict[str, Any]:
    """Returns what a run tells the one above it; an output that is too large to hand up is a failure there."""
    output = unfilled_to_json(document["output"])
    end = {"status": document["status"], "output": output["value"], "error": document["error"]}
    if "stored" in output:
        end["stored_output"] = output["stored"]
    if end["status"] == RunStatus.FAILED and end["error"] is None:
        end["error"] = error_json("failed", NOTHING_COMPLETED)
    if encoded_size(output) > limits.RESULT_LIMIT_BYTES:
        message = f"its output has over {limits.RESULT_LIMIT_BYTES:,} bytes, which is more than can be handed up"
        return {"status": RunStatus.FAILED.value, "output": None, "error": error_json("too_large", message)}
    return end


async def report_end(parent: Parent, end: dict[str, Any]) -> bool:
    """Tells the run above how this one ended; returns whether it could be told."""
    try:
        above = workflow.get_external_workflow_handle(parent.workflow_id)
        await above.signal(wire.SIGNAL_SUB_PLAN_ENDED, {**end, "task": parent.task})
        return True
    except FailureError as error:
        workflow.logger.info("the run above is gone", extra={"parent": parent.workflow_id, "reason": error.message})
        return False
