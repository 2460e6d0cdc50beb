"""Executions of a run that continues as new, and positions in their histories."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from temporalio.client import Client, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.errors import DagwrightError


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Position in the history of a run; as `str`, for example `2-145`.

    Args:
        execution: number of the execution, 1 for the first.
        event: id of the last event that was read; 0 before the first.
    """

    execution: int
    event: int

    def __str__(self) -> str:
        return f"{self.execution}-{self.event}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form of a cursor.

        Raises:
            ValueError: the text is not a cursor.
        """
        execution, separator, event = text.partition("-")
        if not (separator and execution.isdecimal() and event.isdecimal() and len(text) < 30 and int(execution) > 0):
            raise ValueError(f"{text!r:.40} is not a cursor; a cursor looks like 1-145")
        return cls(int(execution), int(event))


START = Cursor(1, 0)
"""Position before the first event."""


async def executions_of(client: Client, run_id: str, *, first_execution_id: str, last_execution_id: str) -> list[str]:
    """Return the IDs of the consecutive executions of a run, as far as the server retains them.

    Args:
        last_execution_id: execution at which the search stops. Its closing event is not requested: for an open
            execution, the server may hold that request until a new event arrives.

    Complexity: one request for each execution.
    """
    execution_ids = [first_execution_id]
    while (
        execution_ids[-1] != last_execution_id
        and (next_execution_id := await _next_execution_id(client, run_id, execution_ids[-1])) is not None
    ):
        execution_ids.append(next_execution_id)
    return execution_ids


async def _next_execution_id(client: Client, run_id: str, execution_id: str) -> str | None:
    handle = client.get_workflow_handle(run_id, run_id=execution_id)
    events = handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
    try:
        async for event in events:
            # The last event of an open execution does not name a next execution.
            return event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return None


def root_in(memo: Mapping[str, Any]) -> str | None:
    """Return the ID of the root run of a sub-plan, from its memo; `None` for a root run."""
    root = memo.get(wire.MEMO_ROOT)
    return root if isinstance(root, str) else None


def path_in(memo: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tasks on the path from the root run to the run with this memo, outermost first."""
    path = memo.get(wire.MEMO_PATH)
    return tuple(map(str, path)) if isinstance(path, list) else ()


class RunNotFound(DagwrightError):
    """There is no run with this ID."""


class RunClosed(DagwrightError):
    """The run has ended, so it accepts no commands."""


class NodeNotFound(DagwrightError):
    """A run does not have the node, or its plan is not known yet."""
