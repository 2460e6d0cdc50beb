"""The local activity with which a cancelled run ends as Canceled in Temporal.

A workflow may only end as Canceled if its cancellation was requested from outside: the server refuses a request of a
workflow for itself, and a closing event of that kind has no room for a document. So this activity requests the
cancellation, and its marker in the history holds the result document.

Repeating it is safe: a second request for the same execution changes nothing. This module must not import workflows.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity

from dagwright.core.boundary.wire import ACTIVITY_END_CANCELLED

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
