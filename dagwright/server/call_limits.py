"""Limits of calls across all runs: find, change and use the limit workflows of the namespace.

This module starts no runs and does not know plans.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowHandle,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import summary_of
from dagwright.core.errors import DagwrightError
from dagwright.core.model.call_limits import CallLimit, CallLimitInvalid, Subject
from dagwright.features.call_limits.hold import Hold
from dagwright.features.call_limits.limit_state import LimitState
from dagwright.protocol.call_limit_messages import (
    LimitMessage,
    LimitReply,
    LimitSettings,
    limit_reply_from_json,
    limit_settings_from_json,
)
from dagwright.server.note_workflows import find_open_workflow, terminate_if_open

RESPONSE_TIMEOUT_S = 10.0
"""Maximum wait for the response of a limit. If the worker of the limit dies, another worker responds in this time."""

_QUERY_TIMEOUT_S = 3.0
_RPC_TIMEOUT = timedelta(seconds=10)


class LimitUnreachable(DagwrightError):
    """A limit does not respond: no worker serves its workflow, or the server is unavailable."""


class LimitMessageRejected(LimitUnreachable):
    """The workflow of a limit has another version and rejects a message; sending the message again does not help."""


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """A limit and its current usage.

    Args:
        running_calls: number of calls that run with a lease; only a concurrency limit has leases. `None` if the limit
            does not respond.
        waiting_calls: estimated number of calls that wait.
        hold_reason: why no call may start now, if a service asked to wait.
        daily_usage: usage of the daily budget, if there is one.
        used_up_reason: why no model call may start today, if the budget is used up.
    """

    settings: LimitSettings
    running_calls: int | None = None
    waiting_calls: int | None = None
    hold_reason: str | None = None
    daily_usage: str | None = None
    used_up_reason: str | None = None


async def list_limits(client: Client) -> dict[Subject, LimitSettings]:
    """Return the settings of all limits, sorted by subject.

    Raises:
        RPCError: the server does not respond.
    """
    query = f"WorkflowType = '{wire.WORKFLOW_CALL_LIMIT}' AND ExecutionStatus = 'Running'"
    limits: dict[Subject, LimitSettings] = {}
    async for workflow in client.list_workflows(query):
        try:
            settings = await _settings_of(workflow)
        except CallLimitInvalid:
            # The workflow of the limit has another version, or the limit is not configured yet.
            continue
        limits[settings.subject] = settings
    return dict(sorted(limits.items()))


async def declare_limit(client: Client, subject: Subject, limit: CallLimit | None, *, task_queue: str) -> None:
    """Set or remove the limit that workers declare; a limit set at run time still overrides the declared limit."""
    await _configure(client, subject, {"declared_limit": None if limit is None else str(limit)}, task_queue=task_queue)


async def set_limit(
    client: Client, subject: Subject, limit: CallLimit, *, task_queue: str, by: str | None
) -> LimitSettings:
    """Set a limit at run time, also while no worker runs; return the previous settings."""
    return await _configure(client, subject, {"override": str(limit), "by": by}, task_queue=task_queue)


async def remove_limit(client: Client, subject: Subject) -> LimitSettings | None:
    """Remove a limit that was set at run time, or else the declared limit.

    A removed declared limit applies again with the next call of a worker that declares it.

    Returns:
        The previous settings; `None` if there is no such limit.
    """
    workflow = await find_open_workflow(client, _workflow_id(subject))
    settings = None if workflow is None else await _settings_of(workflow)
    if workflow is None or settings is None or settings.limit is None:
        return None
    field = "declared_limit" if settings.override is None else "override"
    previous_settings = await _configure(client, subject, {field: None}, task_queue=workflow.task_queue)
    # Another client may have removed the limit meanwhile.
    return None if previous_settings.limit is None else previous_settings


async def send_limit_message(client: Client, subject: Subject, message: LimitMessage) -> LimitReply:
    """Send the message of a worker to a limit, and return the limit's reply.

    Raises:
        LimitUnreachable: the limit does not respond.
        RPCError: `NOT_FOUND` if there is no such limit.
    """
    return limit_reply_from_json(await _update(client, subject, wire.UPDATE_EXCHANGE, message.to_json()))


async def hold_calls(client: Client, subject: Subject, *, hold_s: float, reason: str, task_queue: str) -> None:
    """Let no call of a subject start for `hold_s` seconds, even if the subject has no limit.

    Args:
        reason: the response that requested the pause, such as `429 from api.example.org`.

    Raises:
        LimitUnreachable: the limit does not respond.
        RPCError: the server does not respond.
    """
    now = time.time()
    state = LimitState(hold=Hold(now + hold_s, reason, next_at=now + hold_s))
    message = LimitMessage(hold_s=hold_s, held_by=reason).to_json()
    while not await _start(client, LimitSettings(subject), task_queue=task_queue, state=state):
        try:
            await _update(client, subject, wire.UPDATE_EXCHANGE, message)
            return
        except RPCError as error:
            # If the limit has ended meanwhile, start it again with the hold.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


async def read_usage(client: Client, settings: LimitSettings) -> LimitUsage:
    """Return the usage of a limit. If its workflow does not run or respond, the result has only the settings."""
    handle = _handle(client, settings.subject)
    try:
        usage = await handle.query(
            wire.QUERY_LIMIT_USE,
            reject_condition=QueryRejectCondition.NOT_OPEN,
            rpc_timeout=timedelta(seconds=_QUERY_TIMEOUT_S),
        )
    except (RPCError, WorkflowQueryRejectedError):
        return LimitUsage(settings)
    return LimitUsage(
        settings,
        int(usage["running"]),
        int(usage["waiting"]),
        usage["hold_reason"],
        daily_usage=usage.get("daily_usage"),
        used_up_reason=usage.get("used_up"),
    )


async def list_usages(client: Client) -> list[LimitUsage]:
    """Return all limits with their usage, sorted by subject.

    Raises:
        RPCError: the server does not respond.
    """
    limits = await list_limits(client)
    return [*await asyncio.gather(*(read_usage(client, settings) for settings in limits.values()))]


def _handle(client: Client, subject: Subject) -> WorkflowHandle[Any, Any]:
    return client.get_workflow_handle(_workflow_id(subject))


def _workflow_id(subject: Subject) -> str:
    return f"{wire.ID_CALL_LIMIT}{subject}"


async def _settings_of(workflow: WorkflowExecution) -> LimitSettings:
    """Read the settings of a limit from its memo.

    Raises:
        CallLimitInvalid: this version cannot read the settings.
    """
    return limit_settings_from_json((await workflow.memo()).get(wire.MEMO_CALL_LIMIT))


async def _configure(client: Client, subject: Subject, change: dict[str, Any], *, task_queue: str) -> LimitSettings:
    """Change the settings of a limit, and start or end its workflow; return the previous settings."""
    initial_settings = LimitSettings(subject).apply_change(change)
    if initial_settings.limit is not None and await _start(client, initial_settings, task_queue=task_queue):
        return LimitSettings(subject)
    try:
        return limit_settings_from_json(await _update(client, subject, wire.UPDATE_CONFIGURE, change))
    except LimitMessageRejected:
        raise
    except (LimitUnreachable, RPCError) as error:
        if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
            raise
        # Either no worker responds, and then no call runs, or the limit has ended meanwhile. In both cases, start the
        # limit again with the new settings.
        workflow = await find_open_workflow(client, _workflow_id(subject))
        previous_settings = LimitSettings(subject) if workflow is None else await _settings_of(workflow)
    new_settings = previous_settings.apply_change(change)
    if new_settings.limit is None:
        await terminate_if_open(client, _workflow_id(subject), reason="removed")
    else:
        terminate_existing = WorkflowIDConflictPolicy.TERMINATE_EXISTING
        await _start(client, new_settings, task_queue=task_queue, conflict_policy=terminate_existing)
    return previous_settings


async def _start(
    client: Client,
    settings: LimitSettings,
    *,
    task_queue: str,
    conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
    state: LimitState | None = None,
) -> bool:
    """Start the workflow of a limit; return whether it was started."""
    argument = {"settings": settings.to_json(), **({} if state is None else {"state": state.to_json()})}
    try:
        await client.start_workflow(
            wire.WORKFLOW_CALL_LIMIT,
            argument,
            id=_workflow_id(settings.subject),
            task_queue=task_queue,
            id_conflict_policy=conflict_policy,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={wire.MEMO_CALL_LIMIT: settings.to_json()},
            static_summary=summary_of(f"limit of the calls of {settings.subject}"),
            rpc_timeout=_RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True


async def _update(client: Client, subject: Subject, name: str, message: dict[str, Any]) -> Any:
    deadline = time.monotonic() + RESPONSE_TIMEOUT_S
    while True:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await _handle(client, subject).execute_update(name, message)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise _unreachable(subject) from None
        except WorkflowUpdateFailedError as error:
            # If the type is not `ERROR_REJECTED`, the execution continued as new before it accepted the update. The
            # next iteration sends the update again.
            cause = error.cause
            if not isinstance(cause, ApplicationError) or cause.type == wire.ERROR_REJECTED:
                raise LimitMessageRejected(f"the limit of {subject} rejects the message: {cause}") from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


def _unreachable(subject: Subject) -> LimitUnreachable:
    return LimitUnreachable(f"the limit of {subject} does not respond; start a worker that serves workflows")
