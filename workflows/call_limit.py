"""`CallLimit`: one limit of calls across all runs. Workers exchange messages with the limit before and after calls.

A hold is a time in which no call may start, because a service has requested a pause. `dagwright.features.call_limits`
makes the decisions. The settings are in the memo, so that workers find all limits with one list request. Handlers never
await, so that a limit can continue as new at any time.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.core.boundary import wire
from dagwright.core.model.call_limits import CallLimit, CallLimitInvalid
from dagwright.features.call_limits.limit_state import LimitState, limit_state_from_json
from dagwright.protocol.call_limit_messages import LimitReply, limit_message_from_json, limit_settings_from_json
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.workflows.activity_calls import json_payload
from dagwright.workflows.retries import QUICK_FIVE_ATTEMPTS
from dagwright.workflows.timers import now_s

_MAX_UPDATES = 1_500
"""Updates after which the limit continues as new: by default the server accepts 2,000 for one execution."""
_EXECUTION_TO_DELETE = "deleted"
"""Field of the input: ID of the execution to delete. It is the execution before the previous execution. The previous
execution is not deleted, because a client may still wait for one of its updates.
"""


@workflow.defn(name=wire.WORKFLOW_CALL_LIMIT, sandboxed=False)
class CallLimitWorkflow:
    """Limit that grants the start of calls until its settings are removed.

    Args:
        message: `{"settings", "state", "deleted"}`, with the state of the previous execution.
    """

    @workflow.init
    def __init__(self, message: RawValue) -> None:
        self._update_count = 0
        self._problem: str | None = None
        self._run_id_to_delete: str | None = None
        self._delete_task: asyncio.Task[None] | None = None
        try:
            start_message = read_message(message.payload)
            self._run_id_to_delete = start_message.get(_EXECUTION_TO_DELETE)
            self._settings = limit_settings_from_json(start_message.get("settings"))
            self._state = limit_state_from_json(start_message["state"]) if start_message.get("state") else LimitState()
        # Catch all exceptions: a client may start a workflow with any input, and an exception here would block it.
        except Exception as error:
            self._problem = f"the input of a limit is invalid: {error}"

    @workflow.run
    async def run(self, message: RawValue) -> Any:  # noqa: ARG002 - read by __init__
        """Grant calls until the settings are removed and the hold has ended; return the last settings.

        Raises:
            ApplicationError: `Rejected` if the input is invalid.
        """
        if self._problem is not None:
            raise ApplicationError(self._problem, type=wire.ERROR_REJECTED, non_retryable=True)
        if self._run_id_to_delete is not None:
            self._delete_task = asyncio.create_task(_delete(self._run_id_to_delete))
        while not (self._has_ended or self._is_full):
            await self._wait()
        if self._has_ended:
            return self._settings.to_json()
        previous_run_id = workflow.info().continued_run_id
        next_input = {
            "settings": self._settings.to_json(),
            "state": self._state.to_json(),
            _EXECUTION_TO_DELETE: previous_run_id,
        }
        workflow.continue_as_new(RawValue(json_payload(pydantic_core.to_json(next_input))))

    async def _wait(self) -> None:
        """Wait for a message that may end the execution. Without a limit, also wait for the end of the hold."""
        had_limit = self._has_limit
        remaining_s = None if had_limit else max(0.001, self._state.hold.recent_until - now_s())
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._has_ended or self._is_full or self._has_limit != had_limit, timeout=remaining_s
            )

    @property
    def _has_limit(self) -> bool:
        return self._settings.limit is not None

    @property
    def _has_ended(self) -> bool:
        return not self._has_limit and now_s() >= self._state.hold.recent_until

    @property
    def _is_full(self) -> bool:
        return self._update_count >= _MAX_UPDATES or workflow.info().is_continue_as_new_suggested()

    @workflow.update(name=wire.UPDATE_EXCHANGE)
    def exchange(self, message: RawValue) -> Any:
        """Apply the message of a worker, and return an answer for each call that wants to start."""
        self._update_count += 1
        now, limit, state = now_s(), self._settings.limit or CallLimit(), self._state
        try:
            limit_message = limit_message_from_json(read_message(message.payload))
        except (MessageInvalid, CallLimitInvalid) as error:
            raise _rejection_error(error) from None
        for call in limit_message.releases:
            state.release(call, now)
        for call in limit_message.renewals:
            state.renew(call, now)
        if limit_message.hold_s > 0:
            state.hold.extend(now + limit_message.hold_s, now, requested_by=limit_message.held_by)
        state.day_use.add(limit_message.usage, now)
        for tokens in limit_message.tokens:
            state.add_tokens(limit, tokens)
        answers = {
            call: state.request(
                limit, call, now, has_waited=request.has_waited, kind=request.kind, lead_s=request.lead_s
            )
            for call, request in limit_message.requests.items()
        }
        return LimitReply(now, answers).to_json()

    @workflow.update(name=wire.UPDATE_CONFIGURE)
    def configure(self, message: RawValue) -> Any:
        """Change the declared limit, or the limit that overrides the declared limit.

        The message has the field `declared_limit` or `override`, with a limit or null, and may have the field `by`.
        """
        self._update_count += 1
        previous_settings = self._settings
        try:
            self._settings = previous_settings.apply_change(read_message(message.payload))
        except (MessageInvalid, CallLimitInvalid) as error:
            raise _rejection_error(error) from None
        if self._settings.limit != previous_settings.limit:
            self._state.discard_bookings(now_s())
        if self._settings != previous_settings and not self._has_ended:
            workflow.upsert_memo({wire.MEMO_CALL_LIMIT: self._settings.to_json()})
        return previous_settings.to_json()

    @workflow.query(name=wire.QUERY_LIMIT_USE)
    def use(self, message: RawValue | None = None) -> Any:  # noqa: ARG002 - clients may send an argument
        """Return the number of calls that run with a lease, and the estimated number of calls that wait."""
        limit = self._settings.limit
        now = now_s()
        waiting_count = self._state.waiting_count(limit or CallLimit(), now)
        hold_reason = self._state.hold.reason if now < self._state.hold.until else None
        use: dict[str, Any] = {"running": len(self._state.leases), "waiting": waiting_count, "hold_reason": hold_reason}
        if limit is not None and limit.daily_budget is not None:
            use["daily_usage"] = self._state.day_use.describe(limit.daily_budget, now)
            use["used_up"] = self._state.day_use.used_up_reason(limit.daily_budget, now)
        return use


async def _delete(run_id: str) -> None:
    """Delete an execution before the end of its retention, because a busy limit has thousands of executions a day."""
    # If the deletion fails, the execution stays until the end of the retention.
    with suppress(ActivityError):
        await workflow.execute_activity(
            wire.ACTIVITY_DELETE_EXECUTION,
            RawValue(json_payload(pydantic_core.to_json(run_id))),
            result_type=RawValue,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=QUICK_FIVE_ATTEMPTS,
            summary="deleting an earlier execution",
        )


def _rejection_error(error: Exception) -> ApplicationError:
    return ApplicationError(str(error), type=wire.ERROR_REJECTED, non_retryable=True)
