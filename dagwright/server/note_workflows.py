"""Notes: facts that are stored on the Temporal server, in the memos of open workflows without a worker.

Starting a note is atomic, all workers and commands see it immediately, and no crash removes it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MAX_ACTIVITY_ID_PART_BYTES, short_id, summary_of

_RPC_TIMEOUT = timedelta(seconds=10)


def note_id(prefix: str, name: str) -> str:
    """Return the workflow ID of a note.

    Args:
        prefix: prefix for all notes of one kind.
        name: name of the subject of the note, such as a tool.
    """
    return short_id(f"{prefix}{name}", max_bytes=2 * MAX_ACTIVITY_ID_PART_BYTES)


async def find_open_workflow(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    """Return the open workflow with an ID, such as a note; `None` if there is no such workflow.

    Raises:
        RPCError: the server does not respond, or rejects the request.
    """
    try:
        description = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return description if description.status is WorkflowExecutionStatus.RUNNING else None


async def start_note(
    client: Client, kind: str, workflow_id: str, *, memo: Mapping[str, Any], summary: str, details: str
) -> bool:
    """Start a note; return `False` if it is already open.

    Args:
        kind: workflow type of the note.

    Raises:
        RPCError: the server does not respond, or rejects the request.
    """
    try:
        await client.start_workflow(
            kind,
            id=workflow_id,
            task_queue=wire.NOTE_TASK_QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo=memo,
            static_summary=summary_of(summary),
            static_details=details,
            rpc_timeout=_RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True


async def terminate_if_open(client: Client, workflow_id: str, *, reason: str) -> None:
    """Terminate a workflow, such as a note; no effect if it has ended already.

    Raises:
        RPCError: the server does not respond, or rejects the request.
    """
    try:
        await client.get_workflow_handle(workflow_id).terminate(reason=reason, rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
