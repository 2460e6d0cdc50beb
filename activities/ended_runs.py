"""Activities that end a cancelled run, and find sub-plans that ended without a report."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.heartbeats import kept_alive
from dagwright.core.boundary.limits import RESULT_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_END_CANCELLED, ACTIVITY_FIND_ENDED, DETAIL_LINEAGE, ERROR_PLAN_FAILED
from dagwright.core.model.states import RunStatus
from dagwright.history.closing_event import read_recorded_document
from dagwright.protocol.documents import encoded_size, error_json

_RPC_TIMEOUT = timedelta(seconds=10)


@activity.defn(name=ACTIVITY_END_CANCELLED)
async def end_cancelled(message: Mapping[str, Any]) -> Any:
    """Request the cancellation of the calling workflow, unless Temporal has it already, and return its document.

    Args:
        message: `{"document", "reason"}`; without a reason the cancellation was requested before.
    """
    reason = message.get("reason")
    if reason is not None:
        info = activity.info()
        assert info.workflow_id is not None
        handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        await handle.cancel(reason=reason, rpc_timeout=_RPC_TIMEOUT)
    return message["document"]


_TOLD_BYTES = 4 * RESULT_LIMIT_BYTES
"""Ends that are told at once: a result has a limit, and the rest is told the next time."""
_TOLD = ("status", "output", "stored_output", "error", "chunk", "usage", DETAIL_LINEAGE, "context", "lookups")
"""Of the document of a run, what the one above takes, or the session."""
_BELOW = "below"
"""What takes back what the run did; it is told whatever the size of the rest."""

End = dict[str, Any]
"""How a sub-plan ended: `{"status", "output", "error"}`."""


@activity.defn(name=ACTIVITY_FIND_ENDED)
async def find_ended(workflow_ids: Sequence[str]) -> dict[str, End]:
    """Returns the ends of those of the runs that have ended, by workflow id."""
    with kept_alive():
        return await _ends_of(activity.client(), workflow_ids)


async def _ends_of(client: Client, workflow_ids: Sequence[str]) -> dict[str, End]:
    found: dict[str, End] = {}
    told_bytes = 0
    for workflow_id in workflow_ids:
        end = await _end_of(client, workflow_id)
        if end is not None:
            found[workflow_id] = end
            told_bytes += encoded_size(end)
        if told_bytes > _TOLD_BYTES:
            break
    return found


async def _end_of(client: Client, workflow_id: str) -> End | None:
    """Returns how a run ended; `None` if it has not."""
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return _failed("gone", "the sub-plan is gone from the server")
        raise
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id, run_id=described.run_id)
    match described.status:
        case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW | None:
            return None
        case WorkflowExecutionStatus.COMPLETED:
            return end_of_document(await handle.result(follow_runs=False, rpc_timeout=_RPC_TIMEOUT))
        case WorkflowExecutionStatus.CANCELED:
            return await _of_cancelled(client, workflow_id, described.run_id)
        case WorkflowExecutionStatus.FAILED:
            return await _of_failure(handle)
        case other:
            return _failed("terminated", f"the sub-plan was {other.name.lower().replace('_', ' ')}")


async def _of_cancelled(client: Client, workflow_id: str, run_id: str) -> End:
    document = await read_recorded_document(client, workflow_id, run_id)
    if document is None:
        return {"status": RunStatus.CANCELLED.value, "output": None, "error": None}
    return end_of_document(document)


async def _of_failure(handle: WorkflowHandle[Any, Any]) -> End:
    try:
        await handle.result(follow_runs=False, rpc_timeout=_RPC_TIMEOUT)
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.type == ERROR_PLAN_FAILED and cause.details:
            return end_of_document(cause.details[0])
        return _failed("failed", str(cause))
    raise AssertionError("a failed run has no result")


def end_of_document(document: Any) -> End:
    """Returns how a run ended by the document that it left, with all that it told of itself."""
    if not isinstance(document, Mapping) or "status" not in document:
        return _failed("failed", "the sub-plan ended without a document")
    end = {key: document[key] for key in _TOLD if key in document}
    if encoded_size(end) > RESULT_LIMIT_BYTES:
        end = _failed("too_large", "the output of the sub-plan is more than can be handed up")
    return {**end, _BELOW: document[_BELOW]} if _BELOW in document else end


def _failed(code: str, message: str) -> End:
    return {"status": RunStatus.FAILED.value, "output": None, "error": error_json(code, message)}
