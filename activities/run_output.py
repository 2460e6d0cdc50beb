"""The activity with which a workflow of the user loads the output of a run that the workflow has started."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from dagwright.activities.heartbeats import heartbeating
from dagwright.core.boundary.limits import RUN_INPUT_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_LOAD_OUTPUT
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.history.document_hydration import hydrated_document
from dagwright.history.run_reader import RunReader
from dagwright.store import PayloadStore

OutputActivity = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def output_activity(client: Client, store: PayloadStore) -> OutputActivity:
    """Return the activity `load_run_output`, which reads from a namespace and a store."""

    @activity.defn(name=ACTIVITY_LOAD_OUTPUT)
    async def load_run_output(message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `{"output"}` of the run `{"run_id", "execution_id"}`."""
        with heartbeating():
            view = await RunReader(client, message["run_id"], execution_id=message.get("execution_id")).read()
            output = (await hydrated_document(view, store, full=True))["output"]
        if (size := encoded_size(output)) > RUN_INPUT_LIMIT_BYTES:
            text = f"the output of the run has {size:,} bytes, over the limit of {RUN_INPUT_LIMIT_BYTES:,}"
            raise ApplicationError(text, type="too_large", non_retryable=True)
        return {"output": output}

    return load_run_output
