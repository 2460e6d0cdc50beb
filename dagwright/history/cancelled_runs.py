"""Reads the result document of a cancelled run from the end of its history.

A run that ends as Canceled has no result in its last event: it records its document in a marker shortly before. The
history is read backwards, so that a list of cancelled runs does not read whole histories.
"""

from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

from dagwright.history.result_document import recorded_document

_PAGE_EVENTS = 20
"""The marker is one of the last ten events unless signals arrive while the run ends."""
_MOST_PAGES = 5
_RPC_TIMEOUT = timedelta(seconds=10)


async def read_recorded_document(client: Client, workflow_id: str, run_id: str | None) -> dict[str, Any] | None:
    """Return the document that a cancelled run recorded; `None` if the end of its history has none.

    Runs of earlier versions, and runs that were cancelled before they started, have none.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id or ""),
        maximum_page_size=_PAGE_EVENTS,
    )
    for _ in range(_MOST_PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(
            request, retry=True, timeout=_RPC_TIMEOUT
        )
        for event in page.history.events:
            if (document := recorded_document(event)) is not None:
                return document
        if not page.next_page_token:
            return None
        request.next_page_token = page.next_page_token
    return None
