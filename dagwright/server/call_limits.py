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
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import summary_of
from dagwright.core.errors import DagwrightError
from dagwright.core.model.call_limits import CallLimit, CallLimitInvalid, Subject
from dagwright.features.call_limits.limit_state import LimitAnswer
from dagwright.protocol.call_limit_messages import (
    LimitMessage,
    LimitSettings,
    answers_from_json,
    limit_settings_from_json,
)

RESPONSE_TIMEOUT_S = 10.0
"""Longest wait for the response of a limit; longer than the workflow task of a dead worker needs to time out."""


class LimitUnreachable(DagwrightError):
    """A limit does not respond: no worker serves its workflow, or the server is unavailable."""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit and its use.

    Args:
        running: calls that run with a lease; only a concurrency limit has leases. `None` if the limit does not respond.
        waiting: estimated number of calls that wait.
        held_s: seconds for which no call may start.
    """

    settings: LimitSettings
    running: int | None = None
    waiting: int | None = None
    held_s: float = 0.0


async def list_limits(client: Client) -> dict[Subject, LimitSettings]:
    """Return the settings of all limits, sorted by subject.

    Raises:
        RPCError: the server does not respond.
    """
    query = f"WorkflowType = '{wire.WORKFLOW_CALL_LIMIT}' AND ExecutionStatus = 'Running'"
    found: dict[Subject, LimitSettings] = {}
    async for workflow in client.list_workflows(query):
        memo = await workflow.memo()
        try:
            settings = limit_settings_from_json(memo.get(wire.MEMO_CALL_LIMIT))
        except CallLimitInvalid:
            # A limit of another version, or one that is not configured yet.
            continue
        found[settings.subject] = settings
    return dict(sorted(found.items()))


async def declare_limit(client: Client, subject: Subject, limit: CallLimit | None, *, task_queue: str) -> None:
    """Set or remove the limit that workers declare; a limit set at run time still overrides it.

    Raises:
        LimitUnreachable: the limit does not respond.
    """
    message = {"declared": None if limit is None else str(limit)}
    await _configure(client, subject, message, task_queue=task_queue)


async def set_limit(
    client: Client, subject: Subject, limit: CallLimit, *, task_queue: str, by: str | None
) -> LimitSettings:
    """Set a limit at run time; return the earlier settings.

    Raises:
        LimitUnreachable: the limit does not respond.
    """
    return await _configure(client, subject, {"chosen": str(limit), "by": by}, task_queue=task_queue)


async def remove_limit(client: Client, subject: Subject) -> LimitSettings | None:
    """Remove a limit that was set at run time, or else a declared one; return the earlier settings.

    A declared limit returns with the next call of a worker that declares it.

    Returns:
        The earlier settings; `None` if there is no such limit.

    Raises:
        LimitUnreachable: the limit does not respond.
    """
    try:
        before = limit_settings_from_json(await _update(client, subject, wire.UPDATE_CONFIGURE, {"chosen": None}))
        if before.chosen is None:
            await _update(client, subject, wire.UPDATE_CONFIGURE, {"declared": None})
        return before
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def exchange(client: Client, subject: Subject, message: LimitMessage) -> dict[str, LimitAnswer]:
    """Send the message of a worker to a limit, and return the answers to its requests.

    Raises:
        LimitUnreachable: the limit does not respond.
        RPCError: `NOT_FOUND` if there is no such limit.
    """
    return answers_from_json(await _update(client, subject, wire.UPDATE_EXCHANGE, message.to_json()))


async def read_use(client: Client, settings: LimitSettings) -> LimitUse:
    """Return the use of a limit."""
    handle = _handle(client, settings.subject)
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            use = await handle.query(wire.QUERY_LIMIT_USE, rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S))
    except (RPCError, TimeoutError):
        return LimitUse(settings)
    return LimitUse(settings, int(use["running"]), int(use["waiting"]), float(use["held_s"]))


async def list_uses(client: Client) -> list[LimitUse]:
    """Return all limits with their use, sorted by subject.

    Raises:
        RPCError: the server does not respond.
    """
    limits = await list_limits(client)
    return [*await asyncio.gather(*(read_use(client, settings) for settings in limits.values()))]


def _handle(client: Client, subject: Subject) -> WorkflowHandle[Any, Any]:
    return client.get_workflow_handle(f"{wire.ID_CALL_LIMIT}{subject}")


async def _configure(client: Client, subject: Subject, message: dict[str, Any], *, task_queue: str) -> LimitSettings:
    settings = LimitSettings(subject)
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        wire.WORKFLOW_CALL_LIMIT,
        {"settings": settings.to_json()},
        id=f"{wire.ID_CALL_LIMIT}{subject}",
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        static_summary=summary_of(f"limit of the calls of {subject}"),
    )
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            before = await client.execute_update_with_start_workflow(
                wire.UPDATE_CONFIGURE, message, start_workflow_operation=start, result_type=dict[str, Any]
            )
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise _unreachable(subject) from None
    return limit_settings_from_json(before)


async def _update(client: Client, subject: Subject, name: str, message: dict[str, Any]) -> Any:
    ends_at = time.monotonic() + RESPONSE_TIMEOUT_S
    while True:
        try:
            async with asyncio.timeout(ends_at - time.monotonic()):
                return await _handle(client, subject).execute_update(name, message)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise _unreachable(subject) from None
        except WorkflowUpdateFailedError as error:
            # The execution has continued as new before it accepted the update.
            cause = error.cause
            if not isinstance(cause, ApplicationError) or cause.type == wire.ERROR_REFUSED:
                raise
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND or time.monotonic() > ends_at:
                raise
        await asyncio.sleep(0.05)


def _unreachable(subject: Subject) -> LimitUnreachable:
    return LimitUnreachable(f"the limit of {subject} does not respond; start a worker that serves workflows")
