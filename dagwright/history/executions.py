"""The executions of a run that goes on as new: a place in their histories, and which execution is the how-manieth."""

from dataclasses import dataclass
from typing import Self

from temporalio.client import Client, WorkflowExecution, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A place in the history of a run, as `str` also `2-145`.

    Args:
        run: number of the execution, 1 for the first.
        event: id of the last event that was seen of it; 0 before the first.
    """

    run: int
    event: int

    def __str__(self) -> str:
        return f"{self.run}-{self.event}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the offset that a text stands for.

        Raises:
            ValueError: it stands for none.
        """
        run, sign, event = text.partition("-")
        if not (sign and run.isdecimal() and event.isdecimal() and len(text) < 30 and int(run) > 0):
            raise ValueError(f"{text!r:.40} is no offset; one looks like 1-145")
        return cls(int(run), int(event))


BEGINNING = Offset(1, 0)
"""Nothing has been seen yet."""


async def executions_of(client: Client, workflow_id: str, *, first_run_id: str, last_run_id: str) -> list[str]:
    """Returns the run ids of the executions that followed one another, as far as the server keeps them.

    Args:
        last_run_id: of the last one that is asked for. Of one that is open the server may keep a question for its end
            until something happens there.

    Complexity: one request for each.
    """
    found = [first_run_id]
    while found[-1] != last_run_id and (following := await _following(client, workflow_id, found[-1])) is not None:
        found.append(following)
    return found


async def _following(client: Client, workflow_id: str, run_id: str) -> str | None:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    events = handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
    try:
        async for event in events:
            # The last event of an execution that is still open is none of these.
            return event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return None


def is_top_run(execution: WorkflowExecution) -> bool:
    """Return whether a run is not a sub-plan: it has no parent, or its parent is a session or a workflow of a user."""
    if execution.parent_id is None:
        return True
    memo = execution.raw_info.memo.fields
    return wire.MEMO_SESSION in memo or wire.MEMO_CALLER in memo


def run_above(execution: WorkflowExecution) -> str | None:
    """Return the workflow id of the parent run of a sub-plan; `None` for a run that is not a sub-plan."""
    return None if is_top_run(execution) else execution.parent_id


def root_run(execution: WorkflowExecution) -> str | None:
    """Return the workflow id of the top run of an execution, as far as the server knows it.

    In a session, and below a workflow that is not a run, the root that the server knows is not a run.
    """
    memo = execution.raw_info.memo.fields
    if wire.MEMO_CALLER in memo:
        return execution.id
    root_id = execution.root_id or execution.id
    return None if root_id.startswith(wire.ID_SESSION) or wire.MEMO_CALLED in memo else root_id
