"""Pause and resume a tool in all runs.

A note (`dagwright.server.note_workflows`) records the pause of a tool. Before each call of the tool, a worker checks
for this note. If the note exists, the worker requests that the server pause the activity
(`activities/paused_calls.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import PauseActivityRequest, UnpauseActivityRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.model.times import format_time
from dagwright.server.note_workflows import find_open_workflow, note_id, start_note, terminate_if_open

PAUSE_CACHE_S = 2.0
"""Seconds for which a worker caches whether a tool is paused."""
PAUSE_PROPAGATION_S = PAUSE_CACHE_S + 1.0
"""Seconds until every worker has noticed that a tool was paused or resumed."""
MIN_RAMP_S = 10.0
_RAMP_S_PER_CALL = 0.1
_RPC_TIMEOUT = timedelta(seconds=5)
_MAX_CONCURRENT_RESUMES = 10
_MAX_REASON_CHARACTERS = 500
PAUSED_STATES = (
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED,
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED,
)
"""States of a call that the server has paused, or pauses after the current attempt."""


@dataclass(frozen=True, slots=True)
class ToolPause:
    """The pause of a tool.

    Args:
        since: seconds since the epoch.
        by: name of the person who paused the tool, if known.
        reason: reason of the pause, if any.
    """

    tool: str
    since: float
    by: str | None = None
    reason: str | None = None

    @property
    def message(self) -> str:
        """Reason why the nodes of the tool wait."""
        by = f" by {self.by}" if self.by else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{wire.PAUSED_FOR_TOOL}{by} at {format_time(self.since)}{reason}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry of `tool list --json`."""
        return {"tool": self.tool, "since": format_time(self.since), "by": self.by, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class _PausedCalls:
    """Calls of one run that are paused because their tool is paused.

    Args:
        ids: activity IDs.
        includes_all: whether these are all paused calls of the tool in this run.
    """

    run: WorkflowExecution
    ids: Sequence[str]
    includes_all: bool


@dataclass(frozen=True, slots=True)
class ResumeResult:
    """Result of resuming a tool.

    Args:
        pause: the pause that ended; `None` if the tool was not paused.
        call_count: number of resumed calls.
        run_count: number of runs and sub-plans with resumed calls.
        ramp_s: seconds over which the calls start.
    """

    pause: ToolPause | None
    call_count: int
    run_count: int
    ramp_s: float


async def find_tool_pause(client: Client, tool: str) -> ToolPause | None:
    """Return the pause of a tool; `None` if the tool is not paused."""
    note = await find_open_workflow(client, _note_id(tool))
    return None if note is None else await _pause_of(note)


async def list_tool_pauses(client: Client) -> list[ToolPause]:
    """Return the pauses of all paused tools, sorted by tool name."""
    query = f"WorkflowType = '{wire.WORKFLOW_PAUSED_TOOL}' AND ExecutionStatus = 'Running'"
    pauses = [await _pause_of(note) async for note in client.list_workflows(query)]
    return sorted(pauses, key=lambda pause: pause.tool)


async def pause_tool(client: Client, tool: str, *, by: str | None, reason: str | None) -> ToolPause | None:
    """Pause a tool and wait until all workers apply the pause.

    Returns:
        `None`, or the earlier pause if the tool was paused already.
    """
    is_new = await start_note(
        client,
        wire.WORKFLOW_PAUSED_TOOL,
        _note_id(tool),
        memo={
            wire.MEMO_TOOL: tool,
            wire.MEMO_PAUSED_BY: by,
            wire.MEMO_REASON: reason and reason[:_MAX_REASON_CHARACTERS],
        },
        summary=f"{tool} is paused{f' by {by}' if by else ''}{f': {reason}' if reason else ''}",
        details=f"This workflow only records the pause; no worker runs it. `dagwright tool resume {tool}` ends it.",
    )
    if not is_new:
        return await find_tool_pause(client, tool)
    await asyncio.sleep(PAUSE_PROPAGATION_S)
    return None


async def resume_tool(client: Client, tool: str, *, by: str | None, ramp_s: float | None = None) -> ResumeResult:
    """Resume a tool, and start its paused calls gradually. The tool need not be paused.

    Args:
        ramp_s: seconds over which the calls start; `None` for 0.1 s for each waiting call, but at least 10 s.
    """
    pause = await find_tool_pause(client, tool)
    if pause is not None:
        await terminate_if_open(client, _note_id(tool), reason=f"resumed{f' by {by}' if by else ''}")
        # During this time, a worker that still has the pause in its cache may pause more calls.
        await asyncio.sleep(PAUSE_PROPAGATION_S)
    calls_by_run = [calls async for calls in _paused_calls(client, tool)]
    call_count = sum(len(calls.ids) for calls in calls_by_run)
    if ramp_s is None:
        ramp_s = max(MIN_RAMP_S, call_count * _RAMP_S_PER_CALL)
    slots = asyncio.Semaphore(_MAX_CONCURRENT_RESUMES)

    async def resume(calls: _PausedCalls) -> None:
        async with slots:
            await _resume_calls(client, tool, calls, ramp_s=ramp_s)

    await asyncio.gather(*(resume(calls) for calls in calls_by_run))
    return ResumeResult(pause, call_count, len(calls_by_run), ramp_s)


async def _paused_calls(client: Client, tool: str) -> AsyncIterator[_PausedCalls]:
    """Yield the paused calls of a tool, grouped by open run."""
    query = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running'"
    async for run in client.list_workflows(query):
        try:
            description = await client.get_workflow_handle(run.id, run_id=run.run_id).describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                continue
            raise
        paused_calls = [
            call
            for call in description.raw_description.pending_activities
            if call.activity_type.name == tool and call.state in PAUSED_STATES
        ]
        calls_of_pause = [
            call for call in paused_calls if call.pause_info.manual.reason.startswith(wire.PAUSED_FOR_TOOL)
        ]
        if calls_of_pause:
            execution = WorkflowExecution(workflow_id=run.id, run_id=run.run_id)
            yield _PausedCalls(
                execution, [call.activity_id for call in calls_of_pause], len(calls_of_pause) == len(paused_calls)
            )


async def _resume_calls(client: Client, tool: str, calls: _PausedCalls, *, ramp_s: float) -> None:
    """Resume the calls of one run at random times within the ramp, and reset their attempt numbers."""
    # One request with the activity type resumes all calls of the tool in this run, which may be hundreds.
    requests = [UnpauseActivityRequest(id=activity_id) for activity_id in calls.ids]
    for request in [UnpauseActivityRequest(type=tool)] if calls.includes_all else requests:
        request.namespace, request.identity, request.reset_attempts = client.namespace, client.identity, True
        request.execution.CopyFrom(calls.run)
        request.jitter.FromTimedelta(timedelta(seconds=ramp_s))
        try:
            await client.workflow_service.unpause_activity(request, timeout=_RPC_TIMEOUT)
        except RPCError as error:
            # The call or its run has ended in the meantime.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


async def pause_call(client: Client, run: WorkflowExecution, activity_id: str, *, reason: str) -> None:
    """Request that the server pause a call before its next attempt.

    Raises:
        RPCError: the server rejects the request or does not respond.
    """
    request = PauseActivityRequest(
        namespace=client.namespace, execution=run, identity=client.identity, id=activity_id, reason=reason
    )
    await client.workflow_service.pause_activity(request, timeout=_RPC_TIMEOUT)


async def unpause_call(client: Client, run: WorkflowExecution, activity_id: str) -> None:
    """Undo `pause_call`."""
    request = UnpauseActivityRequest(
        namespace=client.namespace, execution=run, identity=client.identity, id=activity_id
    )
    await client.workflow_service.unpause_activity(request, timeout=_RPC_TIMEOUT)


def _note_id(tool: str) -> str:
    return note_id(wire.ID_PAUSED_TOOL, tool)


async def _pause_of(note: Any) -> ToolPause:
    """Read the pause from the memo of a note."""
    memo = await note.memo()
    by, reason = memo.get(wire.MEMO_PAUSED_BY), memo.get(wire.MEMO_REASON)
    return ToolPause(
        tool=str(memo.get(wire.MEMO_TOOL, "")),
        since=note.start_time.timestamp(),
        by=str(by) if by else None,
        reason=str(reason) if reason else None,
    )
