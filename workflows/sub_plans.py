"""Sub-plans: child workflows that survive the continue-as-new of their parent and report their end by signal.

With Temporal's default parent close policy, a child would end with its parent, also at continue-as-new. An abandoned
child continues, so its end arrives as the signal `sub_plan_ended` (docs/contributing/guards.md F5). The parent also
awaits the child workflow, because a terminated child sends no signal. The parent polls children that a previous
execution has started.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import (
    RawValue,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)
from temporalio.exceptions import ActivityError, FailureError

from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import encoded_size, value_to_json
from dagwright.core.model.states import NodeError, RunStatus, Task
from dagwright.core.scheduler.run_state import last_call_id, task_of_call
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.extender_specs import workflow_type_of
from dagwright.protocol.budgets import shared_budget
from dagwright.protocol.commands import ChildSignal
from dagwright.protocol.documents import error_json
from dagwright.protocol.failures import NOTHING_COMPLETED_MESSAGE
from dagwright.protocol.map_batch_messages import next_map_batch_input
from dagwright.protocol.map_batch_runs import concurrency_message, map_batch_concurrency, map_batch_run_input
from dagwright.protocol.messages import MessageInvalid, Parent, ParentSession, SubPlanEnd
from dagwright.protocol.outcomes import ResultInvalid, read_sub_plan_end, sub_plan_ends_from_payload, sub_plan_failure
from dagwright.protocol.run_attributes import STATE, TITLE, attributes_at_start
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.protocol.run_labels import keyword, task_summary
from dagwright.protocol.run_snapshot import snapshot_from_json
from dagwright.protocol.run_start import inherited_input
from dagwright.protocol.turns import TurnEnd
from dagwright.workflows.activity_calls import RunContext, json_payload, memo_of_run, owner_of_run, priority_of
from dagwright.workflows.retries import FIND_ENDED_RETRIES
from dagwright.workflows.timers import now_s

_ROOT = SearchAttributeKey.for_keyword(wire.SEARCH_ROOT)
_INHERITED_ATTRIBUTES = frozenset({wire.SEARCH_SESSION, wire.SEARCH_OWNER, wire.SEARCH_TAGS})

_COMMAND_BYTES = 2_000
"""Approximate size of the start of a sub-plan besides its input."""

EndHandler = Callable[[SubPlanEnd], None]


class SubPlans:
    """Sub-plans of one run.

    Args:
        run: data that the sub-plans need.
        handle_end: function that handles the end of a sub-plan; a second end for the same task has no effect.
        scheduler: scheduler of the run, from which the inputs of sub-plans are derived.
        add_note: function that adds a note, with code and message.
    """

    def __init__(
        self, run: RunContext, handle_end: EndHandler, *, scheduler: RunScheduler, add_note: Callable[[str, str], None]
    ) -> None:
        self._run = run
        self._handle_end = handle_end
        self._scheduler = scheduler
        self._open_calls: dict[str, asyncio.Task[None] | None] = {}
        """ID of a call -> task that awaits its sub-plan; `None` if a previous execution has started the sub-plan."""
        self._signal_tasks: list[asyncio.Task[None]] = []
        self._forward_tasks: list[asyncio.Task[None]] = []
        self._add_note = add_note
        self._poll_task: asyncio.Task[None] | None = None
        self._stop_reason: str | None = None
        """Why all sub-plans are cancelled, also those that are being started; `None` if they are not cancelled."""
        self._cancel_reasons: dict[str, str] = {}
        """ID of a call to cancel as soon as its sub-plan has started -> reason."""
        self._handles: dict[str, workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any]] = {}
        """ID of a call whose sub-plan has started -> handle of the sub-plan."""

    @property
    def open_tasks(self) -> list[str]:
        """Ids of the tasks whose sub-plans have not ended, in the order of their start."""
        return [
            task_id
            for call_id in self._open_calls
            if (task_id := task_of_call(self._scheduler.state, call_id)) is not None
        ]

    @property
    def is_busy(self) -> bool:
        """Whether a sub-plan is being started or signalled: start and signal would be lost at continue-as-new."""
        return len(self._handles) < len(self._open_calls) or bool(self._forward_tasks)

    def send(self, signal: ChildSignal) -> None:
        """Send a signal to a sub-plan, or to every sub-plan that has started."""
        if signal.task is None:
            self.signal_all(signal.signal, signal.message)
            return
        forward_task = asyncio.create_task(self._forward(signal, signal.task))
        self._forward_tasks.append(forward_task)
        forward_task.add_done_callback(self._forward_tasks.remove)

    async def _forward(self, message: ChildSignal, task_id: str) -> None:
        """Send a signal to a sub-plan as soon as it has started; a sub-plan that has ended rejects the signal."""
        call_id = last_call_id(self._scheduler.state, task_id)
        await workflow.wait_condition(lambda: call_id in self._handles or call_id not in self._open_calls)
        handle = self._handles.get(call_id)
        if handle is None:
            self._note_unsent(message, "it has ended")
            return
        try:
            await handle.signal(message.signal, dict(message.message))
        except FailureError as error:
            self._note_unsent(message, error.message)

    def _note_unsent(self, message: ChildSignal, reason: str) -> None:
        self._add_note(
            "message_rejected", f"{message.signal}: the sub-plan {message.task!r} cannot be signalled: {reason}"
        )

    def adopt(self, task_id: str) -> None:
        """Take over a sub-plan that a previous execution has started; the report of the sub-plan announces its end."""
        call_id = last_call_id(self._scheduler.state, task_id)
        child_id = limits.child_workflow_id(workflow.info().workflow_id, call_id)
        self._open_calls[call_id] = None
        self._handles[call_id] = workflow.get_external_workflow_handle(child_id)
        if self._poll_task is None:
            self._poll_task = asyncio.create_task(self._poll_adopted_sub_plans())

    def start(self, task: Task) -> int:
        """Start the child workflow of a task; return the approximate size of its command."""
        encoded = pydantic_core.to_json(self._input_of(task))
        self._open_calls[task.call_id] = asyncio.create_task(self._start_and_await(task, json_payload(encoded)))
        return len(encoded) + _COMMAND_BYTES

    def forget(self, call_id: str) -> None:
        """Drop a sub-plan that has ended or was abandoned."""
        self._open_calls.pop(call_id, None)
        self._handles.pop(call_id, None)
        self._cancel_reasons.pop(call_id, None)

    def cancel(self, call_id: str, reason: str) -> None:
        """Cancel one sub-plan; it reports its end as usual."""
        if call_id in self._handles:
            self._signal_tasks.append(asyncio.create_task(self._signal_cancel(call_id, reason)))
        elif call_id in self._open_calls:
            self._cancel_reasons[call_id] = reason

    def cancel_all(self, reason: str) -> None:
        """Cancel every open sub-plan; each reports its end as usual."""
        # A sub-plan that is being started cannot be cancelled yet: it is cancelled as soon as it has started.
        self._stop_reason = reason
        for call_id in self._handles:
            self._signal_tasks.append(asyncio.create_task(self._signal_cancel(call_id, reason)))

    def accept_new_sub_plans(self) -> None:
        """Do not cancel new sub-plans any more, because the run continues."""
        self._stop_reason = None

    def signal_all(self, signal: str, message: Mapping[str, Any]) -> None:
        """Send a signal to every open sub-plan that has started."""
        for call_id in self._handles:
            self._signal_tasks.append(asyncio.create_task(self._signal(call_id, signal, message)))

    def signal_concurrency(self) -> None:
        """Send the current concurrency to the runs of map batches."""
        for call_id in self._handles:
            concurrency = map_batch_concurrency(self._scheduler, call_id)
            if concurrency is not None:
                self._signal_tasks.append(
                    asyncio.create_task(self._signal(call_id, wire.SET_LIMITS, concurrency_message(concurrency)))
                )

    async def _signal(self, call_id: str, signal: str, message: Mapping[str, Any]) -> None:
        # A sub-plan that has ended needs no signal.
        with suppress(FailureError, KeyError):
            await self._handles[call_id].signal(signal, message)

    async def _signal_cancel(self, call_id: str, reason: str) -> None:
        try:
            await self._handles[call_id].signal(wire.CANCEL, {"reason": reason})
        except KeyError:
            # The end of the sub-plan was handled in the meantime.
            return
        except FailureError:
            # The sub-plan has ended, and its report will arrive. But a terminated sub-plan sends no report, and this
            # execution does not await a sub-plan that a previous execution has started.
            if self._open_calls.get(call_id, self) is None:
                self._handle_end(SubPlanEnd(call_id, RunStatus.CANCELLED, None, None))

    async def _start_and_await(self, task: Task, encoded: Payload) -> None:
        """Start a sub-plan, and handle its end in case it sends no report."""
        call_id, sent_policy, sent_budget = (
            task.call_id,
            self._scheduler.features.feedback.child_policy,
            shared_budget(self._scheduler),
        )
        sent_concurrency = map_batch_concurrency(self._scheduler, call_id)
        try:
            handle = await self._start_child(task, encoded)
            self._handles[call_id] = handle
            if (reason := self._stop_reason or self._cancel_reasons.pop(call_id, None)) is not None:
                await self._signal_cancel(call_id, reason)
            elif (pause := self._scheduler.state.paused) is not None:
                await self._signal(call_id, wire.PAUSE, {"reason": pause.reason, "by": pause.by})
            if (new_policy := self._scheduler.features.feedback.child_policy) != sent_policy:
                await self._signal(call_id, wire.SET_POLICY, {"policy": new_policy.to_json()})
            if (new_budget := shared_budget(self._scheduler)) and new_budget != sent_budget:
                await self._signal(call_id, wire.SIGNAL_BUDGET_GRANT, new_budget)
            if (
                new_concurrency := map_batch_concurrency(self._scheduler, call_id)
            ) is not None and new_concurrency != sent_concurrency:
                await self._signal(call_id, wire.SET_LIMITS, concurrency_message(new_concurrency))
            payload: RawValue = await handle
            self._handle_end(read_sub_plan_end(call_id, payload.payload))
        except (FailureError, ResultInvalid, asyncio.CancelledError) as error:
            self._handle_end(sub_plan_failure(call_id, error, task.node))
        # Catch all exceptions: the task is not awaited, so after an exception the run would wait without end.
        except Exception as error:
            workflow.logger.exception("following a sub-plan failed because of a bug", extra={"node_id": task.id})
            bug_error = NodeError(wire.ERROR_INTERNAL, f"{type(error).__name__}: {error}")
            self._handle_end(SubPlanEnd(call_id, RunStatus.FAILED, None, bug_error.to_json()))

    # Sub-plans of previous executions.

    async def _poll_adopted_sub_plans(self) -> None:
        """Poll, with increasing pauses, whether an adopted sub-plan has ended without a report."""
        pause_s = limits.SUB_PLAN_CHECK_S
        while True:
            await workflow.sleep(pause_s, summary=wire.TIMER_CHECK_SUB_PLANS)
            pause_s = min(2 * pause_s, limits.MAX_SUB_PLAN_CHECK_S)
            run_id = workflow.info().workflow_id
            adopted_calls = [call_id for call_id, follow_task in self._open_calls.items() if follow_task is None]
            if not adopted_calls:
                return
            for start in range(0, len(adopted_calls), limits.MAX_SUB_PLANS_PER_CHECK):
                batch = adopted_calls[start : start + limits.MAX_SUB_PLANS_PER_CHECK]
                calls = {limits.child_workflow_id(run_id, call_id): call_id for call_id in batch}
                for end in await self._find_ended_sub_plans(calls):
                    self._handle_end(end)

    @staticmethod
    async def _find_ended_sub_plans(calls: Mapping[str, str]) -> list[SubPlanEnd]:
        """Return the ends of the sub-plans that have ended.

        Args:
            calls: run ID of a sub-plan -> the call that started the sub-plan.
        """
        try:
            payload = await find_ended_runs(list(calls))
            return sub_plan_ends_from_payload(payload.payload, calls)
        except (ActivityError, MessageInvalid):
            # The next poll may succeed.
            return []

    def _input_of(self, task: Task) -> dict[str, Any]:
        if task.compensated_task is None:
            child_input = self._input_of_task(task)
        else:
            compensated_input = self._input_of_task(task.compensated_task)
            map_batch = (
                next_map_batch_input(compensated_input.map_batch) if compensated_input.map_batch is not None else None
            )
            snapshot = replace(snapshot_from_json(task.child_snapshot), started_at=now_s())
            child_input = replace(
                compensated_input, deadline_s=None, map_batch=map_batch, snapshot=snapshot, only_compensates=True
            )
        scope = (task.compensated_task or task).scope or self._run.scope
        parent = Parent(workflow.info().workflow_id, task.call_id)
        run = self._run
        child_input = replace(child_input, scope=scope, parent=parent, notifies=run.notifies, model=run.model)
        return run_input_to_json(inherited_input(child_input, self._scheduler, number=task.ref.node))

    def _input_of_task(self, task: Task) -> RunInput:
        """Return the input of the run of a task, without the fields that are the same for all sub-plans of this run."""
        if task.map_batch is not None:
            # The items of a map batch have the same paths as in this run.
            return replace(map_batch_run_input(self._scheduler, task), path=self._run.path)
        return RunInput(
            compiled=task.node.sub_plan,
            inputs=task.arguments,
            path=(*self._run.path, *((kind, name) for kind, name in task.path)),
            deadline_s=task.node.timeout_s or None,
            snapshot=snapshot_from_json(task.child_snapshot) if task.child_snapshot is not None else None,
        )

    async def _start_child(self, task: Task, encoded: Payload) -> workflow.ChildWorkflowHandle[Any, Any]:
        info = workflow.info()
        return await workflow.start_child_workflow(
            workflow_type_of((task.compensated_task or task).node.sub_plan),
            RawValue(encoded),
            id=limits.child_workflow_id(info.workflow_id, task.call_id),
            result_type=RawValue,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            task_timeout=info.task_timeout,
            static_summary=task_summary(task),
            priority=priority_of(task.node.priority),
            search_attributes=_attributes_of_child(task),
            memo=_memo_of_child(task),
        )


def _root_of_run() -> str:
    """Return the ID of the root run of this run."""
    root = memo_of_run().get(wire.MEMO_ROOT)
    return root if isinstance(root, str) else workflow.info().workflow_id


def _memo_of_child(task: Task) -> dict[str, Any]:
    owner, path = owner_of_run(), memo_of_run().get(wire.MEMO_PATH)
    return {
        wire.MEMO_ROOT: _root_of_run(),
        wire.MEMO_PATH: [*(path if isinstance(path, list) else ()), task.id],
        **({wire.MEMO_OWNER: owner} if owner is not None else {}),
    }


def _title_of_child(task: Task) -> str | None:
    sub_plan = (task.compensated_task or task).node.sub_plan
    return sub_plan.title if sub_plan is not None else None


async def find_ended_runs(run_ids: Sequence[str]) -> RawValue:
    """Return the ends of the runs that have ended.

    Raises:
        ActivityError: the activity failed; the next poll may succeed.
    """
    payload: RawValue = await workflow.execute_activity(
        wire.ACTIVITY_FIND_ENDED,
        list(run_ids),
        activity_id=wire.ID_FIND_ENDED,
        # 500 sub-plans are checked in 2 s; a slower server is polled again later.
        start_to_close_timeout=timedelta(minutes=2),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=FIND_ENDED_RETRIES,
        summary=wire.TIMER_CHECK_SUB_PLANS,
        result_type=RawValue,
    )
    return payload


def attributes_of_turn(
    session_attributes: TypedSearchAttributes, memo: Mapping[str, Any]
) -> TypedSearchAttributes | None:
    """Return the search attributes of the run of a turn.

    Args:
        session_attributes: search attributes of the session.
        memo: memo of the run.
    """
    if session_attributes.get(STATE) is None:
        return None
    session = [pair for pair in session_attributes.search_attributes if pair.key.name == wire.SEARCH_SESSION]
    return TypedSearchAttributes([*session, *attributes_at_start(memo, missing_attributes=()).search_attributes])


def _attributes_of_child(task: Task) -> TypedSearchAttributes | None:
    """Return the search attributes with which a sub-plan starts: inherited attributes, its state, root and title."""
    attributes = workflow.info().typed_search_attributes
    if attributes.get(STATE) is None:
        return None
    inherited_pairs = [pair for pair in attributes.search_attributes if pair.key.name in _INHERITED_ATTRIBUTES]
    title = _title_of_child(task)
    return TypedSearchAttributes(
        [
            *inherited_pairs,
            SearchAttributePair(STATE, RunStatus.RUNNING.value),
            SearchAttributePair(_ROOT, keyword(_root_of_run())),
            *([SearchAttributePair(TITLE, keyword(title))] if title else []),
        ]
    )


def end_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a run for its parent; an output that is too large becomes a failure."""
    output = value_to_json(document["output"])
    end = {"status": document["status"], "output": output["value"], "error": document["error"]}
    if "stored" in output:
        end["stored_output"] = output["stored"]
    details = {"usage": document["usage"]} if document["usage"] else {}
    if wire.DETAIL_LINEAGE in document:
        details[wire.DETAIL_LINEAGE] = document[wire.DETAIL_LINEAGE]
    end |= details
    if end["status"] == RunStatus.FAILED and end["error"] is None:
        end["error"] = error_json("failed", NOTHING_COMPLETED_MESSAGE)
    if encoded_size(output) > limits.RESULT_LIMIT_BYTES:
        message = f"its output has over {limits.RESULT_LIMIT_BYTES:,} bytes, the limit for the output of a sub-plan"
        return {"status": RunStatus.FAILED.value, "output": None, "error": error_json("too_large", message), **details}
    return end


async def report_end(parent: Parent, end: dict[str, Any]) -> bool:
    """Report the end of this run to its parent; return whether the parent exists."""
    return await _report(parent.run_id, wire.SIGNAL_SUB_PLAN_ENDED, {**end, "task": parent.task})


async def report_turn(session: ParentSession, end: TurnEnd) -> bool:
    """Report the end of this run to its session; return whether the session exists."""
    return await _report(session.workflow_id, wire.SIGNAL_TURN_ENDED, {**end.to_json(), "turn": session.turn})


async def _report(workflow_id: str, signal: str, message: Mapping[str, Any]) -> bool:
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, message)
        return True
    except FailureError as error:
        workflow.logger.info(
            "the parent run or session no longer exists", extra={"parent": workflow_id, "reason": error.message}
        )
        return False
