"""`Session`: a session of several requests. It starts the run of each turn, and keeps what the next one has to know.

What may happen to it is decided in `dagwright.protocol.sessions`. The state lies in the memo: whoever looks needs no
worker, and the next execution begins with it, whatever its input says. Runs are abandoned children that report their
end as sub-plans do; handlers never await, so that a session may always go on in a new execution.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
)

from dagwright.core.boundary import limits, wire
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.model.states import RunStatus
from dagwright.protocol.command_handler import bug_message
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.sessions import Session, TurnRefused, input_problem, name_of_session, session_from_json
from dagwright.protocol.turns import (
    OUTCOME_BYTES,
    TurnEnd,
    TurnStart,
    end_of_turn,
    turn_end_from_json,
    turn_start_from_json,
)
from dagwright.workflows.calls import json_payload
from dagwright.workflows.sub_plans import attributes_of_turn, find_ended
from dagwright.workflows.timers import now_s

_CHECKED_INPUT = "session-input-checked"
"""Patch marker of sessions that end because their input is invalid."""


@workflow.defn(name=wire.WORKFLOW_SESSION, sandboxed=False)
class SessionWorkflow:
    """Takes turns one after the other until it is ended, and returns what it knows then."""

    def __init__(self) -> None:
        name = name_of_session(workflow.info().workflow_id)
        self._unreadable: str | None = None
        try:
            state = workflow.memo().get(wire.MEMO_SESSION_STATE)
            self._session = Session(name) if state is None else session_from_json(state, name=name)
        # The process edge: anybody may start a workflow with any memo, and an exception here would wedge it.
        except Exception as error:
            self._unreadable, self._session = f"the memo of the session cannot be read: {error}", Session(name)
        self._told = self._session.version
        self._starting: TurnStart | None = None
        """A turn whose run has not been started; it is in no state, so nothing goes on elsewhere until it has."""
        self._following: list[asyncio.Task[None]] = []
        self._signals = 0

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Takes turns until it is ended.

        Raises:
            ApplicationError: `Refused` if its input or its memo is invalid; `Bug` if Dagwright fails.
        """
        try:
            if (problem := self._input_problem(message)) is not None and workflow.patched(_CHECKED_INPUT):
                # Sessions that an older version started with such an input stay open: their histories have no marker.
                raise ApplicationError(problem, type=wire.ERROR_REFUSED, non_retryable=True)
            if self._unreadable is not None:
                raise ApplicationError(self._unreadable, type=wire.ERROR_REFUSED, non_retryable=True)
            return await self._converse()
        except ApplicationError:
            raise
        # The process edge, as for a run.
        except Exception as error:
            workflow.logger.exception("the session ended by a defect")
            raise ApplicationError(bug_message(error), type=wire.ERROR_BUG, non_retryable=True) from error

    def _input_problem(self, message: RawValue) -> str | None:
        """Check the input; returns the problem, or `None`."""
        try:
            return input_problem(read_message(message.payload), workflow_id=workflow.info().workflow_id)
        except MessageInvalid as error:
            return f"the input of a session is invalid: {error}"

    async def _converse(self) -> dict[str, Any]:
        if (running := self._session.running) is not None and self._starting is None:
            self._follow(self._look_after(running.run))
        while not self._session.has_ended:
            await workflow.wait_condition(self._has_news)
            self._tell()
            if self._starting is not None:
                start, self._starting = self._starting, None
                await self._start(start)
            elif self._is_full():
                self._go_on_in_new_execution()
        self._tell()
        return self._session.to_json()

    def _has_news(self) -> bool:
        return self._starting is not None or self._session.version != self._told or self._is_full()

    def _tell(self) -> None:
        """Writes what the session knows where others look, if it has changed."""
        if self._session.version != self._told:
            self._told = self._session.version
            workflow.upsert_memo({wire.MEMO_SESSION_STATE: self._session.to_json()})

    # The run of a turn.

    async def _start(self, start: TurnStart) -> None:
        info = workflow.info()
        encoded = pydantic_core.to_json(self._session.input_of_turn(start, workflow_id=info.workflow_id))
        title = start.memo.get(wire.MEMO_TITLE) or start.request
        try:
            handle = await workflow.start_child_workflow(
                start.workflow,
                RawValue(json_payload(encoded)),
                id=start.run,
                task_queue=start.task_queue,
                result_type=RawValue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                task_timeout=info.task_timeout,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                memo={**start.memo, wire.MEMO_SESSION: self._session.name},
                static_summary=limits.summary_of(str(title)),
                search_attributes=attributes_of_turn(info.typed_search_attributes, start.memo),
            )
        except WorkflowAlreadyStartedError:
            # A run of somebody else: whoever steers the turn would steer that one.
            self._session.drop_turn(start.run)
            return
        except FailureError as error:
            self._end_turn(start.run, _failed(f"the run {start.run!r} cannot be started: {error.message}"))
            return
        self._follow(self._await_end(start.run, handle))

    def _follow(self, following: Any) -> None:
        # A task that nobody holds may be collected.
        self._following = [asyncio.create_task(following)]

    async def _await_end(self, run: str, handle: workflow.ChildWorkflowHandle[Any, Any]) -> None:
        """Takes the end of a run that sends no report: one that was terminated, or could not read its input."""
        try:
            payload: RawValue = await handle
            end = _end_from(read_message(payload.payload))
        except ChildWorkflowError as error:
            end = _end_of_failure(error)
        # The edge of this task: nobody awaits it, so the session would wait for ever.
        except Exception as error:
            end = _failed(bug_message(error))
        self._end_turn(run, end)

    async def _look_after(self, run: str) -> None:
        """Asks now and then, ever more seldom, whether a run that an execution before has started ended unheard."""
        pause_s = limits.SUB_PLAN_CHECK_S
        while not self._has_ended(run):
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._has_ended(run), timeout=pause_s, timeout_summary=wire.TIMER_CHECK_SUB_PLANS
                )
                return
            pause_s = min(2 * pause_s, limits.SUB_PLAN_CHECK_MAX_S)
            # The next look may do better.
            with suppress(ActivityError, MessageInvalid):
                found = read_message((await find_ended([run])).payload)
                if isinstance(found, Mapping) and run in found:
                    self._end_turn(run, _end_from(found[run]))

    def _has_ended(self, run: str) -> bool:
        turn = self._session.running
        return turn is None or turn.run != run

    def _end_turn(self, run: str, end: TurnEnd) -> None:
        self._session.end_turn(run, end, at=now_s())

    # Going on elsewhere.

    def _is_full(self) -> bool:
        """Tells whether the session goes on in a new execution: between two turns, or wherever signals flood it."""
        if self._session.running is None:
            return workflow.info().is_continue_as_new_suggested() or self._is_at_mark()
        return self._is_at_mark()

    def _is_at_mark(self) -> bool:
        is_long = workflow.info().get_current_history_length() >= limits.DRAIN_AT_EVENTS
        return is_long or self._signals >= limits.DRAIN_AT_SIGNALS

    def _go_on_in_new_execution(self) -> None:
        encoded = pydantic_core.to_json({"session_id": self._session.name})
        workflow.continue_as_new(RawValue(json_payload(encoded)), memo=dict(workflow.memo()))

    # What others send.

    @workflow.update(name=wire.UPDATE_START_TURN)
    def start_turn(self, message: RawValue) -> Mapping[str, Any]:
        """Starts the run of a turn; the same one again changes nothing."""
        start = self._turn_from(message)
        if self._session.begin_turn(start, at=now_s()):
            self._starting = start
        return {"ok": True, "run_id": start.run, "version": self._session.version}

    @start_turn.validator
    def _check_turn(self, message: RawValue) -> None:
        self._turn_from(message)

    def _turn_from(self, message: RawValue) -> TurnStart:
        """Returns the turn that a message wants to start.

        Raises:
            ApplicationError: `Refused`, with what is wrong and its code.
        """
        try:
            start = turn_start_from_json(read_message(message.payload))
            refusal = self._session.refusal_of(start)
        except MessageInvalid as error:
            refusal = TurnRefused(error.code, str(error))
        # The process edge: an exception in a validator would be tried again for ever.
        except Exception as error:
            refusal = TurnRefused("invalid", bug_message(error))
        if refusal is None:
            return start
        told = {"code": refusal.code, "run_id": refusal.run, "version": self._session.version}
        raise ApplicationError(refusal.message, told, type=wire.ERROR_REFUSED, non_retryable=True)

    @workflow.signal(name=wire.SIGNAL_TURN_ENDED)
    def turn_ended(self, message: RawValue) -> None:
        """Takes the report of the run of a turn."""
        try:
            told = read_message(message.payload)
            self._end_turn(told["turn"], turn_end_from_json(told))
        # The process edge: anybody may send anything, and the run that is waited for is followed too.
        except Exception as error:
            workflow.logger.warning("a report was refused", extra={"reason": str(error)})

    @workflow.signal(name=wire.SIGNAL_END_SESSION)
    def end_session(self, _message: RawValue) -> None:
        """Takes no more turns, and ends as soon as none runs."""
        self._session.end()

    @workflow.signal(dynamic=True)
    def other_signal(self, name: str, _arguments: Sequence[RawValue]) -> None:
        """Leaves aside a signal that no session takes."""
        workflow.logger.warning("no session takes this signal", extra={"signal": name[:200]})

    def count_signal(self) -> None:
        """Takes note of a signal or an update, whatever it is: the server takes so many for one execution."""
        self._signals += 1

    @workflow.query(name=wire.QUERY_STATUS)
    def status(self) -> dict[str, Any]:
        """Returns what the session knows."""
        return self._session.to_json()


def _end_from(document: Any) -> TurnEnd:
    """Returns the end of a run from its document, or from what was found of it."""
    return end_of_turn(document) if isinstance(document, Mapping) else _failed("the run ended without a document")


def _end_of_failure(error: ChildWorkflowError) -> TurnEnd:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == wire.ERROR_PLAN_FAILED and cause.details:
        return _end_from(cause.details[0])
    if isinstance(cause, CancelledError):
        return TurnEnd(RunStatus.CANCELLED.value)
    if cause is None:
        return _failed(error.message)
    return _failed(getattr(cause, "message", "") or type(cause).__name__)


def _failed(words: str) -> TurnEnd:
    return TurnEnd(RunStatus.FAILED.value, outcome=cut_bytes(words, max_bytes=OUTCOME_BYTES))
