"""`Session`: a conversation of several requests. It starts the run of each turn and stores the state.

The transitions are in `dagwright.protocol.sessions`. The state is in the memo, so that clients need no worker to read
it. The next execution takes the state from the memo, not from its input. Runs are child workflows with the close policy
ABANDON, and report their end like sub-plans. Handlers never await, so that a session can continue as new at any time.
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
from dagwright.core.model.states import RunStatus
from dagwright.core.text import cut_bytes
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.notes import bug_message
from dagwright.protocol.run_attributes import fair_priority
from dagwright.protocol.sessions import SessionRecord, TurnRejection, input_problem, session_from_json, session_name_in
from dagwright.protocol.turns import (
    MAX_OUTCOME_BYTES,
    TurnEnd,
    TurnStart,
    end_of_turn,
    turn_end_from_json,
    turn_start_from_json,
)
from dagwright.workflows.activity_calls import json_payload
from dagwright.workflows.sub_plans import attributes_of_turn, find_ended_runs
from dagwright.workflows.timers import now_s

_CHECKED_INPUT = "session-input-checked"
"""Patch marker of sessions that end because their input is invalid."""


@workflow.defn(name=wire.WORKFLOW_SESSION, sandboxed=False)
class SessionWorkflow:
    """Session that runs turns one after the other until a client ends the session; returns the final state."""

    def __init__(self) -> None:
        session_name = session_name_in(workflow.info().workflow_id)
        self._memo_problem: str | None = None
        try:
            state = workflow.memo().get(wire.MEMO_SESSION_STATE)
            self._session = (
                SessionRecord(session_name) if state is None else session_from_json(state, name=session_name)
            )
        # Catch all exceptions: a client may start a workflow with any memo, and an exception here would block it.
        except Exception as error:
            self._memo_problem, self._session = f"invalid memo of the session: {error}", SessionRecord(session_name)
        self._published_version = self._session.version
        self._turn_to_start: TurnStart | None = None
        """The turn whose run is not started yet. The turn is not part of the state, so the session does not continue as
        new until the run is started.
        """
        self._follow_tasks: list[asyncio.Task[None]] = []
        self._signal_count = 0

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run turns until the session is ended.

        Raises:
            ApplicationError: `Rejected` if the input or the memo of the session is invalid; `InternalError` if
                Dagwright fails.
        """
        try:
            if (problem := self._input_problem(message)) is not None and workflow.patched(_CHECKED_INPUT):
                # Sessions that an older version started with such an input stay open: their histories have no marker.
                raise ApplicationError(problem, type=wire.ERROR_REJECTED, non_retryable=True)
            if self._memo_problem is not None:
                raise ApplicationError(self._memo_problem, type=wire.ERROR_REJECTED, non_retryable=True)
            return await self._run_turns()
        except ApplicationError:
            raise
        # Catch all exceptions, as for a run.
        except Exception as error:
            workflow.logger.exception("the session ended because of a bug")
            raise ApplicationError(bug_message(error), type=wire.ERROR_INTERNAL, non_retryable=True) from error

    def _input_problem(self, message: RawValue) -> str | None:
        """Return the problem of the input, or `None`."""
        try:
            return input_problem(read_message(message.payload), workflow_id=workflow.info().workflow_id)
        except MessageInvalid as error:
            return f"the input of a session is invalid: {error}"

    async def _run_turns(self) -> dict[str, Any]:
        if (turn := self._session.running_turn) is not None and self._turn_to_start is None:
            self._follow(self._poll_end(turn.run_id))
        while not self._session.has_ended:
            await workflow.wait_condition(self._has_work)
            self._publish_state()
            if self._turn_to_start is not None:
                start, self._turn_to_start = self._turn_to_start, None
                await self._start(start)
            elif self._should_continue_as_new():
                self._continue_as_new()
        self._publish_state()
        return self._session.to_json()

    def _has_work(self) -> bool:
        return (
            self._turn_to_start is not None
            or self._session.version != self._published_version
            or self._should_continue_as_new()
        )

    def _publish_state(self) -> None:
        """Write the state to the memo, if it has changed."""
        if self._session.version != self._published_version:
            self._published_version = self._session.version
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
                id=start.run_id,
                task_queue=start.task_queue,
                result_type=RawValue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                task_timeout=info.task_timeout,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                memo={**start.memo, wire.MEMO_SESSION: self._session.name},
                static_summary=limits.summary_of(str(title)),
                search_attributes=attributes_of_turn(info.typed_search_attributes, start.memo),
                priority=fair_priority(start.fairness),
            )
        except WorkflowAlreadyStartedError:
            # The existing run belongs to another client, and commands to the turn must not affect it.
            self._session.drop_turn(start.run_id)
            return
        except FailureError as error:
            self._end_turn(start.run_id, _failed_turn(f"the run {start.run_id!r} cannot be started: {error.message}"))
            return
        self._follow(self._await_end(start.run_id, handle))

    def _follow(self, coroutine: Any) -> None:
        # A task without a reference may be garbage-collected.
        self._follow_tasks = [asyncio.create_task(coroutine)]

    async def _await_end(self, run_id: str, handle: workflow.ChildWorkflowHandle[Any, Any]) -> None:
        """Handle the end of a run that sends no report, because it was terminated or its input is invalid."""
        try:
            payload: RawValue = await handle
            end = _end_from(read_message(payload.payload))
        except ChildWorkflowError as error:
            end = _end_of_failure(error)
        # Catch all exceptions: the task is not awaited, so after an exception the session would wait without end.
        except Exception as error:
            end = _failed_turn(bug_message(error))
        self._end_turn(run_id, end)

    async def _poll_end(self, run_id: str) -> None:
        """Poll, with increasing pauses, whether the run has ended, because it may end without a report.

        This execution cannot await the run, because a previous execution has started it.
        """
        pause_s = limits.SUB_PLAN_CHECK_S
        while not self._has_ended(run_id):
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._has_ended(run_id), timeout=pause_s, timeout_summary=wire.TIMER_CHECK_SUB_PLANS
                )
                return
            pause_s = min(2 * pause_s, limits.MAX_SUB_PLAN_CHECK_S)
            # The next poll may succeed.
            with suppress(ActivityError, MessageInvalid):
                outcomes = read_message((await find_ended_runs([run_id])).payload)
                if isinstance(outcomes, Mapping) and run_id in outcomes:
                    self._end_turn(run_id, _end_from(outcomes[run_id]))

    def _has_ended(self, run_id: str) -> bool:
        turn = self._session.running_turn
        return turn is None or turn.run_id != run_id

    def _end_turn(self, run_id: str, end: TurnEnd) -> None:
        self._session.end_turn(run_id, end, at=now_s())

    # Continue-as-new.

    def _should_continue_as_new(self) -> bool:
        """Return whether to continue as new: between two turns when the server suggests it, at a limit at any time."""
        if self._session.running_turn is None:
            return workflow.info().is_continue_as_new_suggested() or self._is_at_history_limit()
        return self._is_at_history_limit()

    def _is_at_history_limit(self) -> bool:
        is_long = workflow.info().get_current_history_length() >= limits.DRAIN_AT_EVENTS
        return is_long or self._signal_count >= limits.DRAIN_AT_SIGNALS

    def _continue_as_new(self) -> None:
        encoded = pydantic_core.to_json({"session_id": self._session.name})
        workflow.continue_as_new(RawValue(json_payload(encoded)), memo=dict(workflow.memo()))

    # Messages.

    @workflow.update(name=wire.UPDATE_START_TURN)
    def start_turn(self, message: RawValue) -> Mapping[str, Any]:
        """Start the run of a turn; a repeated start changes nothing."""
        start = self._turn_from(message)
        if self._session.start_turn(start, at=now_s()):
            self._turn_to_start = start
        return {"ok": True, "run_id": start.run_id, "version": self._session.version}

    @start_turn.validator
    def _check_turn(self, message: RawValue) -> None:
        self._turn_from(message)

    def _turn_from(self, message: RawValue) -> TurnStart:
        """Return the turn that a message requests.

        Raises:
            ApplicationError: `Rejected`, with the problem and its code.
        """
        try:
            start = turn_start_from_json(read_message(message.payload))
            rejection = self._session.rejection_of(start)
        except MessageInvalid as error:
            rejection = TurnRejection(error.code, str(error))
        # Catch all exceptions: an exception in a validator would be retried without end.
        except Exception as error:
            rejection = TurnRejection("invalid", bug_message(error))
        if rejection is None:
            return start
        details = {"code": rejection.code, "run_id": rejection.run_id, "version": self._session.version}
        raise ApplicationError(rejection.message, details, type=wire.ERROR_REJECTED, non_retryable=True)

    @workflow.signal(name=wire.SIGNAL_TURN_ENDED)
    def turn_ended(self, message: RawValue) -> None:
        """Handle the report of the run of a turn."""
        try:
            report = read_message(message.payload)
            self._end_turn(report["turn"], turn_end_from_json(report))
        # Catch all exceptions: a client may send any content, and the session also notices the end without a report.
        except Exception as error:
            workflow.logger.warning("a report was rejected", extra={"reason": str(error)})

    @workflow.signal(name=wire.SIGNAL_END_SESSION)
    def end_session(self, _message: RawValue) -> None:
        """Accept no more turns, and end when no turn is running."""
        self._session.end()

    @workflow.signal(dynamic=True)
    def handle_unknown_signal(self, name: str, _arguments: Sequence[RawValue]) -> None:
        """Ignore an unknown signal."""
        workflow.logger.warning("a session does not handle this signal", extra={"signal": name[:200]})

    def count_signal(self) -> None:
        """Count a signal or update of any kind: the server limits them for one execution."""
        self._signal_count += 1

    @workflow.query(name=wire.QUERY_STATUS)
    def status(self) -> dict[str, Any]:
        """Return the state of the session."""
        return self._session.to_json()


def _end_from(document: Any) -> TurnEnd:
    """Return the end of a run from its document, or from the result of `find_ended_runs`."""
    return end_of_turn(document) if isinstance(document, Mapping) else _failed_turn("the run ended without a document")


def _end_of_failure(error: ChildWorkflowError) -> TurnEnd:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == wire.ERROR_PLAN_FAILED and cause.details:
        return _end_from(cause.details[0])
    if isinstance(cause, CancelledError):
        return TurnEnd(RunStatus.CANCELLED.value)
    if cause is None:
        return _failed_turn(error.message)
    return _failed_turn(getattr(cause, "message", "") or type(cause).__name__)


def _failed_turn(text: str) -> TurnEnd:
    return TurnEnd(RunStatus.FAILED.value, outcome=cut_bytes(text, max_bytes=MAX_OUTCOME_BYTES))
