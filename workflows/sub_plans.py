"""Sub-plans: child workflows that outlive their parent and report their end by signal.

A child of the default kind would end with its parent, also at a continue-as-new; an abandoned one does
not, so its end comes as the signal `sub_plan_ended` (docs/guards.md F5). The child's own end is listened
to as well, because a child that was terminated sends nothing; one that an execution before has started is asked for
now and then.
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
    Priority,
    RawValue,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)
from temporalio.exceptions import ActivityError, FailureError

from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import value_to_json
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import RunStatus
from dagwright.core.model.tasks import Task
from dagwright.core.scheduler.task_creation import call_of_task, task_of_call
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.extenders import workflow_type_of
from dagwright.protocol.budgets import shared_budget
from dagwright.protocol.commands import ChildSignal
from dagwright.protocol.documents import encoded_size, error_json
from dagwright.protocol.failures import NOTHING_COMPLETED_MESSAGE
from dagwright.protocol.map_batch_inputs import next_map_batch_input
from dagwright.protocol.map_batch_runs import map_batch_run_input, width_message, width_of_map_batch
from dagwright.protocol.messages import (
    MessageInvalid,
    Parent,
    ParentSession,
    RunInput,
    SubPlanEnd,
    run_input_to_json,
)
from dagwright.protocol.outcomes import ResultInvalid, found_sub_plan_ends, read_sub_plan_end, sub_plan_failure
from dagwright.protocol.run_attributes import identifying_pairs
from dagwright.protocol.run_labels import keyword, task_summary
from dagwright.protocol.run_snapshot import snapshot_from_json
from dagwright.protocol.run_start import inherited_input
from dagwright.protocol.turns import TurnEnd
from dagwright.workflows.calls import RunScope, json_payload, owner_of_run
from dagwright.workflows.retries import FIND_ENDED
from dagwright.workflows.timers import now_s

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
_TITLE = SearchAttributeKey.for_keyword(wire.SEARCH_TITLE)

_COMMAND_BYTES = 2_000
"""About what the start of a sub-plan has beside its input."""

EndTaken = Callable[[SubPlanEnd], None]


class SubPlans:
    """The sub-plans of one run.

    Args:
        run: what the ids and keys of the run are made of.
        take_end: takes the end of a sub-plan; the second one for the same task has no effect.
        scheduler: of the run; what a sub-plan is given comes out of it.
        note: takes code and message of what is worth saying.
    """

    def __init__(
        self, run: RunScope, take_end: EndTaken, *, scheduler: RunScheduler, note: Callable[[str, str], None]
    ) -> None:
        self._run = run
        self._take_end = take_end
        self._scheduler = scheduler
        self._open: dict[str, asyncio.Task[None] | None] = {}
        """Id of a call -> what follows its sub-plan; nothing does for one that an execution before has started."""
        self._messages: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        self._note = note
        self._looking: asyncio.Task[None] | None = None
        self._stop_reason: str | None = None
        self._stopping: dict[str, str] = {}
        """Calls that are to stop as soon as their sub-plan has started -> why."""
        self._handles: dict[str, workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any]] = {}

    @property
    def open_tasks(self) -> list[str]:
        """Ids of the tasks whose sub-plans have not ended, in order of their start."""
        return [task_id for call in self._open if (task_id := task_of_call(self._scheduler.state, call)) is not None]

    @property
    def is_busy(self) -> bool:
        """Tells whether a sub-plan is about to start or to be told something: it would be lost if the run went on
        elsewhere now.
        """
        return len(self._handles) < len(self._open) or bool(self._sending)

    def send(self, sent: ChildSignal) -> None:
        """Sends a signal on to the sub-plan that it belongs to, or to all that have started."""
        if sent.task is None:
            self.tell_all(sent.signal, sent.message)
            return
        sending = asyncio.create_task(self._send_on(sent, sent.task))
        self._sending.append(sending)
        sending.add_done_callback(self._sending.remove)

    async def _send_on(self, message: ChildSignal, task_id: str) -> None:
        """Sends a message on to a sub-plan, as soon as it has started; one that has ended takes none."""
        call = call_of_task(self._scheduler.state, task_id)
        await workflow.wait_condition(lambda: call in self._handles or call not in self._open)
        handle = self._handles.get(call)
        if handle is None:
            self._refuse(message, "it has ended")
            return
        try:
            await handle.signal(message.signal, dict(message.message))
        except FailureError as error:
            self._refuse(message, error.message)

    def _refuse(self, message: ChildSignal, reason: str) -> None:
        self._note("refused", f"{message.signal}: the sub-plan {message.task!r} cannot be told: {reason}")

    def adopt(self, task_id: str) -> None:
        """Takes over the sub-plan of a task that an execution before has started; its end comes by its report."""
        call = call_of_task(self._scheduler.state, task_id)
        child_id = limits.child_workflow_id(workflow.info().workflow_id, call)
        self._open[call] = None
        self._handles[call] = workflow.get_external_workflow_handle(child_id)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_after_adopted())

    def start(self, task: Task) -> int:
        """Starts the child workflow of a task; returns about how many bytes its command has."""
        encoded = pydantic_core.to_json(self._input_of(task))
        self._open[task.call_id] = asyncio.create_task(self._follow(task, json_payload(encoded)))
        return len(encoded) + _COMMAND_BYTES

    def forget(self, call: str) -> None:
        """Drops a sub-plan that has ended, or is waited for no longer."""
        self._open.pop(call, None)
        self._handles.pop(call, None)
        self._stopping.pop(call, None)

    def cancel(self, call: str, reason: str) -> None:
        """Tells one sub-plan to stop; it reports its end as ever."""
        if call in self._handles:
            self._messages.append(asyncio.create_task(self._tell_to_stop(call, reason)))
        elif call in self._open:
            self._stopping[call] = reason

    def cancel_all(self, reason: str) -> None:
        """Tells every open sub-plan to stop; each reports its end as ever."""
        # One that is about to start cannot be stopped yet: it is told as soon as it has started.
        self._stop_reason = reason
        for call in self._handles:
            self._messages.append(asyncio.create_task(self._tell_to_stop(call, reason)))

    def go_on(self) -> None:
        """Takes back that all are to stop: the run goes on, and starts others."""
        self._stop_reason = None

    def tell_all(self, signal: str, message: Mapping[str, Any]) -> None:
        """Sends a signal to every open sub-plan that has started."""
        for call in self._handles:
            self._messages.append(asyncio.create_task(self._tell(call, signal, message)))

    def tell_widths(self) -> None:
        """Tells the runs of the chunks of large maps how many of their items may run at once now."""
        for call in self._handles:
            width = width_of_map_batch(self._scheduler, call)
            if width is not None:
                self._messages.append(asyncio.create_task(self._tell(call, wire.SET_LIMITS, width_message(width))))

    async def _tell(self, call: str, signal: str, message: Mapping[str, Any]) -> None:
        # One that has ended meanwhile needs to know nothing more.
        with suppress(FailureError, KeyError):
            await self._handles[call].signal(signal, message)

    async def _tell_to_stop(self, call: str, reason: str) -> None:
        try:
            await self._handles[call].signal(wire.CANCEL, {"reason": reason})
        except KeyError:
            # Its end was taken in the same moment.
            return
        except FailureError:
            # It has ended meanwhile, and its end is on its way, unless nobody follows it and it was terminated.
            if self._open.get(call, self) is None:
                self._take_end(SubPlanEnd(call, RunStatus.CANCELLED, None, None))

    async def _follow(self, task: Task, encoded: Payload) -> None:
        """Starts a sub-plan and takes its end, should it come without a report."""
        call, policy, shared = (
            task.call_id,
            self._scheduler.features.feedback.child_policy,
            shared_budget(self._scheduler),
        )
        width = width_of_map_batch(self._scheduler, call)
        try:
            handle = await self._start_child(task, encoded)
            self._handles[call] = handle
            if (reason := self._stop_reason or self._stopping.pop(call, None)) is not None:
                await self._tell_to_stop(call, reason)
            elif (paused := self._scheduler.state.paused) is not None:
                await self._tell(call, wire.PAUSE, {"reason": paused.reason, "by": paused.by})
            if (changed := self._scheduler.features.feedback.child_policy) != policy:
                await self._tell(call, wire.SET_POLICY, {"policy": changed.to_json()})
            if (changed_budget := shared_budget(self._scheduler)) and changed_budget != shared:
                await self._tell(call, wire.SIGNAL_BUDGET_GRANT, changed_budget)
            if (now := width_of_map_batch(self._scheduler, call)) is not None and now != width:
                await self._tell(call, wire.SET_LIMITS, width_message(now))
            payload: RawValue = await handle
            self._take_end(read_sub_plan_end(call, payload.payload))
        except (FailureError, ResultInvalid, asyncio.CancelledError) as error:
            self._take_end(sub_plan_failure(call, error, task.node))
        # The edge of this task: nobody awaits it, so what nobody expected would leave the run waiting for ever.
        except Exception as error:
            workflow.logger.exception("following a sub-plan ended by a defect", extra={"node_id": task.id})
            bug = NodeError(wire.ERROR_BUG, f"{type(error).__name__}: {error}")
            self._take_end(SubPlanEnd(call, RunStatus.FAILED, None, bug.to_json()))

    # Sub-plans that an execution before has started.

    async def _look_after_adopted(self) -> None:
        """Asks now and then, ever more seldom, whether one has ended without a report."""
        pause_s = limits.SUB_PLAN_CHECK_S
        while True:
            await workflow.sleep(pause_s, summary=wire.TIMER_CHECK_SUB_PLANS)
            pause_s = min(2 * pause_s, limits.SUB_PLAN_CHECK_MAX_S)
            workflow_id = workflow.info().workflow_id
            adopted = [call for call, following in self._open.items() if following is None]
            if not adopted:
                return
            for first in range(0, len(adopted), limits.SUB_PLANS_PER_CHECK):
                together = adopted[first : first + limits.SUB_PLANS_PER_CHECK]
                calls = {limits.child_workflow_id(workflow_id, call): call for call in together}
                for end in await self._find_ended(calls):
                    self._take_end(end)

    @staticmethod
    async def _find_ended(calls: Mapping[str, str]) -> list[SubPlanEnd]:
        """Returns the ends of those that have ended.

        Args:
            calls: workflow id -> the call that started it.
        """
        try:
            payload = await find_ended(list(calls))
            return found_sub_plan_ends(payload.payload, calls)
        except (ActivityError, MessageInvalid):
            # The next look may do better.
            return []

    def _input_of(self, task: Task) -> dict[str, Any]:
        if task.undoes is None:
            child_input = self._given_to(task)
        else:
            given = self._given_to(task.undoes)
            map_batch = next_map_batch_input(given.map_batch) if given.map_batch is not None else None
            snapshot = replace(snapshot_from_json(task.child_snapshot), began_at=now_s())
            child_input = replace(given, deadline_s=None, map_batch=map_batch, snapshot=snapshot, only_compensates=True)
        scope = (task.undoes or task).scope or self._run.scope
        parent = Parent(workflow.info().workflow_id, task.call_id)
        run = self._run
        child_input = replace(child_input, scope=scope, parent=parent, notifies=run.notifies, model=run.model)
        return run_input_to_json(inherited_input(child_input, self._scheduler, number=task.ref.node))

    def _given_to(self, task: Task) -> RunInput:
        """Returns what the run of a task is given, without what all are."""
        if task.map_batch is not None:
            # Its items have the paths that they would have here.
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
            workflow_type_of((task.undoes or task).node.sub_plan),
            RawValue(encoded),
            id=limits.child_workflow_id(info.workflow_id, task.call_id),
            result_type=RawValue,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            task_timeout=info.task_timeout,
            static_summary=task_summary(task),
            priority=Priority(priority_key=task.node.priority),
            search_attributes=given_on(info.typed_search_attributes, title=_title_of_child(task)),
            memo=_memo_of_child() or None,
        )


def _memo_of_child() -> dict[str, Any]:
    owner, own = owner_of_run(), workflow.info().raw_memo
    is_called = wire.MEMO_CALLER in own or wire.MEMO_CALLED in own
    return {
        **({wire.MEMO_OWNER: owner} if owner is not None else {}),
        **({wire.MEMO_CALLED: True} if is_called else {}),
    }


def _title_of_child(task: Task) -> str | None:
    sub_plan = (task.undoes or task).node.sub_plan
    return sub_plan.title if sub_plan is not None else None


async def find_ended(workflow_ids: Sequence[str]) -> RawValue:
    """Returns what is found of the runs that have ended, of those with these ids.

    Raises:
        ActivityError: nothing is found out; the next look may do better.
    """
    found: RawValue = await workflow.execute_activity(
        wire.ACTIVITY_FIND_ENDED,
        list(workflow_ids),
        activity_id=wire.ID_FIND_ENDED,
        # 500 sub-plans are looked at in 2 s; a server that takes longer is asked again at the next look.
        start_to_close_timeout=timedelta(minutes=2),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=FIND_ENDED,
        summary=wire.TIMER_CHECK_SUB_PLANS,
        result_type=RawValue,
    )
    return found


def attributes_of_turn(own: TypedSearchAttributes, memo: Mapping[str, Any]) -> TypedSearchAttributes | None:
    """Return the search attributes of the run of a turn.

    Args:
        own: of the session; it has a title only if the namespace has all attributes of `identifying_pairs`.
        memo: of the run.
    """
    pairs = identifying_pairs(memo) if own.get(_TITLE) is not None else []
    given = given_on(own)
    found = [*(given.search_attributes if given is not None else ()), *pairs]
    return TypedSearchAttributes(found) if found else None


def given_on(own: TypedSearchAttributes, *, title: str | None = None) -> TypedSearchAttributes | None:
    """Return the search attributes with which a child run starts: those that its parent does not write of itself.

    Args:
        own: of the parent.
        title: of the child; without one it has none.
    """
    own_names = (wire.SEARCH_STATE, wire.SEARCH_AWAITING, wire.SEARCH_TITLE, wire.SEARCH_TEMPLATE)
    kept = [pair for pair in own.search_attributes if pair.key.name not in own_names]
    if own.get(_STATE) is not None:
        kept.append(SearchAttributePair(_STATE, RunStatus.RUNNING.value))
    if title and own.get(_TITLE) is not None:
        kept.append(SearchAttributePair(_TITLE, keyword(title)))
    return TypedSearchAttributes(kept) if kept else None


def end_of(document: dict[str, Any]) -> dict[str, Any]:
    """Returns what a run tells the one above it; an output that is too large to hand up is a failure there."""
    output = value_to_json(document["output"])
    end = {"status": document["status"], "output": output["value"], "error": document["error"]}
    if "stored" in output:
        end["stored_output"] = output["stored"]
    told = {"usage": document["usage"]} if document["usage"] else {}
    if wire.DETAIL_LINEAGE in document:
        told[wire.DETAIL_LINEAGE] = document[wire.DETAIL_LINEAGE]
    end |= told
    if end["status"] == RunStatus.FAILED and end["error"] is None:
        end["error"] = error_json("failed", NOTHING_COMPLETED_MESSAGE)
    if encoded_size(output) > limits.RESULT_LIMIT_BYTES:
        message = f"its output has over {limits.RESULT_LIMIT_BYTES:,} bytes, which is more than can be handed up"
        return {"status": RunStatus.FAILED.value, "output": None, "error": error_json("too_large", message), **told}
    return end


async def report_end(parent: Parent, end: dict[str, Any]) -> bool:
    """Tells the run above how this one ended; returns whether it could be told."""
    return await _report(parent.workflow_id, wire.SIGNAL_SUB_PLAN_ENDED, {**end, "task": parent.task})


async def report_turn(place: ParentSession, end: TurnEnd) -> bool:
    """Tells the session whose turn this run is what it has come to; returns whether it could be told."""
    return await _report(place.workflow_id, wire.SIGNAL_TURN_ENDED, {**end.to_json(), "turn": place.turn})


async def _report(workflow_id: str, signal: str, message: Mapping[str, Any]) -> bool:
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, message)
        return True
    except FailureError as error:
        workflow.logger.info("the run above is gone", extra={"parent": workflow_id, "reason": error.message})
        return False
