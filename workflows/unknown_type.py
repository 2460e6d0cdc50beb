"""Fail executions of workflow types that this worker does not have.

Temporal retries the workflow task of an unknown type forever, and each attempt logs a traceback. A dynamic workflow
receives such executions instead and ends them with an error that names the known types.

Replay: an execution of a type that was removed or renamed must not be ended, because its history has the commands of
the old code. The patch marker separates the two cases: only an execution that started on this version records the
marker. For an older execution the workflow task fails, and the run continues when a worker with its type is back.
"""

from collections.abc import Collection, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import wire
from dagwright.core.name_hints import suggestion

_PATCH = "unknown-workflow-type"
_SHOWN_CHARACTERS = 200


class WorkflowTypeRemoved(RuntimeError):
    """A run in flight needs a workflow type that this worker no longer has."""


@workflow.defn(dynamic=True, sandboxed=False)
class UnknownTypeWorkflow:
    """Fail executions of workflow types that no worker of this version has."""

    @workflow.run
    async def run(self, _arguments: Sequence[RawValue]) -> Any:
        """Fail with an error that names the known types.

        Raises:
            ApplicationError: `UnknownWorkflowType`, if the execution started on this version.
            WorkflowTypeRemoved: the execution started with code that had this type.
        """
        name = workflow.info().workflow_type
        message = unknown_type_message(name, wire.KNOWN_WORKFLOWS)
        if not workflow.patched(_PATCH):
            raise WorkflowTypeRemoved(
                f"{message}; this run started on a version that had this type: deploy that version"
            )
        raise ApplicationError(message, type=wire.ERROR_UNKNOWN_TYPE, non_retryable=True)


def unknown_type_message(name: str, known_types: Collection[str]) -> str:
    """Return the error message for a workflow type, with the nearest known name if there is one."""
    shown_name = name[:_SHOWN_CHARACTERS]
    hint = suggestion(shown_name, sorted(known_types))
    types = f"unknown workflow type {shown_name!r}; known types: {', '.join(sorted(known_types))}"
    return f"{types}; {hint}" if hint else types
