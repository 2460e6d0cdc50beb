"""Tools that are parked: which they are, and how their calls are let go again.

That a tool is paused is told by an open workflow of its own, a note on which nobody works: it is where the calls
are, every worker and every command can see it at once, and no crash takes it away. A worker that is about to call
such a tool lets the server pause the call instead (`dagwright.activities.paused_calls`). This module starts no runs and
knows no plans.
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
from dagwright.server.note_workflows import end_note, note_id, read_note, start_note

FRESH_S = 2.0
"""How old what a worker knows of a parked tool may be: it asks no more often."""
SETTLED_S = FRESH_S + 1.0
"""After this long no worker goes by what was true before."""
LEAST_SPREAD_S = 10.0
_SPREAD_A_CALL_S = 0.1
_RPC_TIMEOUT = timedelta(seconds=5)
_RELEASED_AT_ONCE = 10
_REASON_CHARACTERS = 500
IS_HELD = (
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED,
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED,
)
"""States of a call that the server has paused, or will pause when its attempt has failed."""


@dataclass(frozen=True, slots=True)
class ToolPause:
    """A tool that is not called for the time being.

    Args:
        since: seconds since the epoch.
        by, reason: who parked it and why, as far as they said.
    """

    tool: str
    since: float
    by: str | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """What its nodes wait for."""
        by = f" by {self.by}" if self.by else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{wire.PAUSED_FOR_TOOL}{by} at {format_time(self.since)}{reason}"

    def to_json(self) -> dict[str, Any]:
        """Returns it as `park --json` tells it."""
        return {"tool": self.tool, "since": format_time(self.since), "by": self.by, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class _Held:
    """The calls of one run that are held back because their tool is paused.

    Args:
        ids: their activity ids.
        is_all: nobody has paused another call of the same tool there for a reason of his own.
    """

    run: WorkflowExecution
    ids: Sequence[str]
    is_all: bool


@dataclass(frozen=True, slots=True)
class Released:
    """What became of the calls of a tool.

    Args:
        parked: what was taken back; `None` if it was not parked.
        calls, runs: how many calls were let go, and of how many runs and sub-plans.
        spread_s: seconds over which they start again.
    """

    parked: ToolPause | None
    calls: int
    runs: int
    spread_s: float


async def paused_tool(client: Client, tool: str) -> ToolPause | None:
    """Returns who parked a tool; `None` if it is not parked."""
    note = await read_note(client, _note_id(tool))
    return None if note is None else await _parked(note)


async def paused_tools(client: Client) -> list[ToolPause]:
    """Returns every parked tool, in the order of the alphabet."""
    query = f"WorkflowType = '{wire.NOTE_PAUSED_TOOL}' AND ExecutionStatus = 'Running'"
    found = [await _parked(note) async for note in client.list_workflows(query)]
    return sorted(found, key=lambda parked: parked.tool)


async def pause_tool(client: Client, tool: str, *, by: str | None, reason: str | None) -> ToolPause | None:
    """Parks a tool; returns who did it before, or `None`. It holds everywhere after `SETTLED_S` seconds."""
    is_new = await start_note(
        client,
        wire.NOTE_PAUSED_TOOL,
        _note_id(tool),
        memo={wire.MEMO_TOOL: tool, wire.MEMO_BY: by, wire.MEMO_REASON: reason and reason[:_REASON_CHARACTERS]},
        summary=f"{tool} is parked{f' by {by}' if by else ''}{f': {reason}' if reason else ''}",
        details=f"Nobody works on this: it is a note. `dagwright unpark {tool}` ends it.",
    )
    return None if is_new else await paused_tool(client, tool)


async def resume_tool(client: Client, tool: str, *, by: str | None, spread_s: float | None = None) -> Released:
    """Lets the calls of a tool go, a few at a time; may be repeated, also for a tool that is not parked any more.

    Args:
        spread_s: seconds over which they start again; `None` is a tenth of a second for each, and 10 at least.
    """
    parked = await paused_tool(client, tool)
    if parked is not None:
        await end_note(client, _note_id(tool), reason=f"unparked{f' by {by}' if by else ''}")
        # What a worker knew before may still pause a call.
        await asyncio.sleep(SETTLED_S)
    held = [each async for each in _held_calls(client, tool)]
    calls = sum(len(each.ids) for each in held)
    if spread_s is None:
        spread_s = max(LEAST_SPREAD_S, calls * _SPREAD_A_CALL_S)
    turns = asyncio.Semaphore(_RELEASED_AT_ONCE)

    async def release(each: _Held) -> None:
        async with turns:
            await _release(client, tool, each, spread_s=spread_s)

    await asyncio.gather(*(release(each) for each in held))
    return Released(parked, calls, len(held), spread_s)


async def _held_calls(client: Client, tool: str) -> AsyncIterator[_Held]:
    """Goes through the open runs that have calls of a tool that are held back."""
    query = f"{wire.IS_RUN} AND ExecutionStatus = 'Running'"
    async for run in client.list_workflows(query):
        try:
            described = await client.get_workflow_handle(run.id, run_id=run.run_id).describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                continue
            raise
        paused = [
            call
            for call in described.raw_description.pending_activities
            if call.activity_type.name == tool and call.state in IS_HELD
        ]
        ours = [call for call in paused if call.pause_info.manual.reason.startswith(wire.PAUSED_FOR_TOOL)]
        if ours:
            execution = WorkflowExecution(workflow_id=run.id, run_id=run.run_id)
            yield _Held(execution, [call.activity_id for call in ours], len(ours) == len(paused))


async def _release(client: Client, tool: str, held: _Held, *, spread_s: float) -> None:
    """Lets the calls of one run go, each at a time of its own; none of its attempts has counted."""
    # There may be hundreds, and one request for all of them is enough.
    requests = [UnpauseActivityRequest(id=activity_id) for activity_id in held.ids]
    for request in [UnpauseActivityRequest(type=tool)] if held.is_all else requests:
        request.namespace, request.identity, request.reset_attempts = client.namespace, client.identity, True
        request.execution.CopyFrom(held.run)
        request.jitter.FromTimedelta(timedelta(seconds=spread_s))
        try:
            await client.workflow_service.unpause_activity(request, timeout=_RPC_TIMEOUT)
        except RPCError as error:
            # The call or its run has ended meanwhile.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


async def pause_call(client: Client, run: WorkflowExecution, activity_id: str, *, reason: str) -> None:
    """Lets the server hold a call back from its next attempt on.

    Raises:
        RPCError: the server does not do it.
    """
    request = PauseActivityRequest(
        namespace=client.namespace, execution=run, identity=client.identity, id=activity_id, reason=reason
    )
    await client.workflow_service.pause_activity(request, timeout=_RPC_TIMEOUT)


async def go_on_with_call(client: Client, run: WorkflowExecution, activity_id: str) -> None:
    """Takes back `pause_call`."""
    request = UnpauseActivityRequest(
        namespace=client.namespace, execution=run, identity=client.identity, id=activity_id
    )
    await client.workflow_service.unpause_activity(request, timeout=_RPC_TIMEOUT)


def _note_id(tool: str) -> str:
    return note_id(wire.ID_PAUSED_TOOL, tool)


async def _parked(note: Any) -> ToolPause:
    """Returns what a note says, from its description or from a list."""
    memo = await note.memo()
    by, reason = memo.get(wire.MEMO_BY), memo.get(wire.MEMO_REASON)
    return ToolPause(
        tool=str(memo.get(wire.MEMO_TOOL, "")),
        since=note.start_time.timestamp(),
        by=str(by) if by else None,
        reason=str(reason) if reason else None,
    )
