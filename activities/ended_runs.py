"""Activities that cancel a run, find child runs that ended without a report, and delete a closed execution."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.heartbeats import heartbeating
from dagwright.core.boundary.limits import RESULT_LIMIT_BYTES
from dagwright.core.boundary.wire import (
    ACTIVITY_DELETE_EXECUTION,
    ACTIVITY_END_CANCELLED,
    ACTIVITY_FIND_ENDED,
    DETAIL_LINEAGE,
    ERROR_PLAN_FAILED,
)
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.states import RunStatus
from dagwright.history.closing_event import read_recorded_document
from dagwright.protocol.documents import error_json

_RPC_TIMEOUT = timedelta(seconds=10)


@activity.defn(name=ACTIVITY_END_CANCELLED)
async def end_cancelled_run(message: Mapping[str, Any]) -> Any:
    """Request the cancellation of the calling workflow, unless it was already requested, and return the run's document.

    Args:
        message: `{"document", "reason"}`; without a reason, the cancellation was already requested.
    """
    reason = message.get("reason")
    if reason is not None:
        info = activity.info()
        assert info.workflow_id is not None
        handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        await handle.cancel(reason=reason, rpc_timeout=_RPC_TIMEOUT)
    return message["document"]


@activity.defn(name=ACTIVITY_DELETE_EXECUTION)
async def delete_execution(execution_id: str) -> None:
    """Delete a closed execution of the calling workflow; no effect if the execution is already deleted.

    Args:
        execution_id: Temporal's run ID.
    """
    client, info = activity.client(), activity.info()
    execution = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=execution_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request, timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


_MAX_RESULT_BYTES = 4 * RESULT_LIMIT_BYTES
"""Size limit of a result of `find_ended_runs`; the next call returns the remaining outcomes."""
_OUTCOME_FIELDS = (
    "status",
    "output",
    "stored_output",
    "error",
    "map_batch",
    "usage",
    DETAIL_LINEAGE,
    "context",
    "lookups",
)
"""Fields of a run's document that the parent run or session reads."""
_CHILD_SNAPSHOT = "child_snapshot"
"""Field for the compensation of the run; always included, whatever the size of the other fields."""

RunOutcome = dict[str, Any]
"""Outcome of a child run: `status`, and the fields of `_OUTCOME_FIELDS` and `_CHILD_SNAPSHOT` in the run's document."""


@activity.defn(name=ACTIVITY_FIND_ENDED)
async def find_ended_runs(run_ids: Sequence[str]) -> dict[str, RunOutcome]:
    """Return the outcomes of the runs that have ended, by run ID."""
    with heartbeating():
        return await _outcomes_of(activity.client(), run_ids)


async def _outcomes_of(client: Client, run_ids: Sequence[str]) -> dict[str, RunOutcome]:
    outcomes: dict[str, RunOutcome] = {}
    result_bytes = 0
    for run_id in run_ids:
        outcome = await _outcome_of(client, run_id)
        if outcome is not None:
            outcomes[run_id] = outcome
            result_bytes += encoded_size(outcome)
        if result_bytes > _MAX_RESULT_BYTES:
            break
    return outcomes


async def _outcome_of(client: Client, run_id: str) -> RunOutcome | None:
    """Return the outcome of a run; `None` if it has not ended."""
    try:
        description = await client.get_workflow_handle(run_id).describe(rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return _failed_outcome("gone", "the sub-plan no longer exists on the server")
        raise
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(run_id, run_id=description.run_id)
    match description.status:
        case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW | None:
            return None
        case WorkflowExecutionStatus.COMPLETED:
            return outcome_of_document(await handle.result(follow_runs=False, rpc_timeout=_RPC_TIMEOUT))
        case WorkflowExecutionStatus.CANCELED:
            return await _read_cancelled_outcome(client, run_id, description.run_id)
        case WorkflowExecutionStatus.FAILED:
            return await _read_failed_outcome(handle)
        case closed_status:
            return _failed_outcome("terminated", f"the sub-plan was {closed_status.name.lower().replace('_', ' ')}")


async def _read_cancelled_outcome(client: Client, run_id: str, execution_id: str) -> RunOutcome:
    document = await read_recorded_document(client, run_id, execution_id)
    if document is None:
        return {"status": RunStatus.CANCELLED.value, "output": None, "error": None}
    return outcome_of_document(document)


async def _read_failed_outcome(handle: WorkflowHandle[Any, Any]) -> RunOutcome:
    try:
        await handle.result(follow_runs=False, rpc_timeout=_RPC_TIMEOUT)
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.type == ERROR_PLAN_FAILED and cause.details:
            return outcome_of_document(cause.details[0])
        return _failed_outcome("failed", str(cause))
    raise AssertionError("a failed run has no result")


def outcome_of_document(document: Any) -> RunOutcome:
    """Return the outcome in the document of an ended run."""
    if not isinstance(document, Mapping) or "status" not in document:
        return _failed_outcome("failed", "the sub-plan ended without a document")
    outcome = {key: document[key] for key in _OUTCOME_FIELDS if key in document}
    if encoded_size(outcome) > RESULT_LIMIT_BYTES:
        outcome = _failed_outcome("too_large", "the output of the sub-plan is too large for its parent")
    return {**outcome, _CHILD_SNAPSHOT: document[_CHILD_SNAPSHOT]} if _CHILD_SNAPSHOT in document else outcome


def _failed_outcome(code: str, message: str) -> RunOutcome:
    return {"status": RunStatus.FAILED.value, "output": None, "error": error_json(code, message)}
