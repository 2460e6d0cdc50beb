"""`RunView`: state of a run at one moment, and its documents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.stored_values import is_inline_value
from dagwright.core.model.requests import Request
from dagwright.core.model.states import NodeStatus
from dagwright.history.closing_event import is_reference
from dagwright.history.executions import START, Cursor
from dagwright.history.pending_activities import PendingCall
from dagwright.history.queues import NO_FREE_SLOT
from dagwright.protocol.compact_documents import omit_large_values
from dagwright.protocol.documents import RunFacts, graph_document, node_counts_of, result_document
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.listings import progress_of
from dagwright.protocol.notes import ReadMessage
from dagwright.protocol.run_input import RunInput

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_FIELDS_FROM_EVENTS = ("nodes", "nodes_ref")
"""Fields of a document that readers take from the events of the run."""


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run at one moment.

    Args:
        status: status of the run (docs/reference/states.md).
        scheduler: scheduler, rebuilt from the history; `None` while the plan is not known.
        execution_id: ID of the newest execution of the run.
        pending_calls: task id -> the call in flight.
        notes: notes, for example about a workflow task that fails repeatedly.
        cursor: position of the last applied event; data from `describe` may be newer.
        run_input: input of the newest execution.
        first_execution_id: ID of the first execution; it is the scope of the run's idempotency keys.
        pending_commands: function that returns the command signals that no workflow task has handled: time, name, and a
            function that reads the message.
        has_accepted_command: function that returns whether the run has accepted the command with an ID.
        has_waiting_marks: whether tasks are marked as waiting for a worker. The history does not show that a task
            waits.
        opened_requests: request ID -> request that was opened in the newest execution; closed requests are included.
        history_statuses: node or item that is marked as waiting for a worker -> its status in the history.
        has_no_slot: whether the next step of the run waits for a free slot of a worker.
    """

    run_id: str
    execution_id: str
    status: str
    title: str | None
    scheduler: "RunScheduler | None"
    pending_calls: Mapping[str, PendingCall]
    started_at: float | None
    ended_at: float | None
    is_closed: bool
    closing_document: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    cursor: Cursor = START
    run_input: RunInput | None = None
    first_execution_id: str = ""
    pending_commands: Callable[[], list[tuple[float, str, ReadMessage]]] = list
    has_accepted_command: Callable[[str], bool] = lambda _: False
    has_waiting_marks: bool = False
    history_statuses: Mapping[str, NodeStatus] = field(default_factory=dict)
    opened_requests: Mapping[str, Request] = field(default_factory=dict, repr=False)
    has_no_slot: bool = False

    def document(self) -> dict[str, Any]:
        """Return the result document. Values over 1 MiB, and values in the payload store, are references."""
        document = self.document_with_refs()
        document["output"] = omit_large_values(document["output"], ref="output")
        for name, node in document["nodes"].items():
            node["result"] = omit_large_values(node["result"], ref=f"node:{name}")
        return document

    def document_with_refs(self) -> dict[str, Any]:
        """Return the result document with every value. A value in the payload store is a `StoredValue`.

        The document of a failed run always has an `error`, even if only nodes failed; see `protocol.failures`.
        """
        document = self._document_without_derived_error()
        return {**document, "error": run_error_of(document)}

    def _document_without_derived_error(self) -> dict[str, Any]:
        facts = RunFacts(self.run_id, self.execution_id, title=self.title, error=self.error, notes=self.notes)
        document = result_document(self.scheduler, facts, status=self.status)
        return (
            document
            if self.closing_document is None
            else self._merged_with_closing_document(document, self.closing_document)
        )

    def _merged_with_closing_document(
        self, replayed_document: Mapping[str, Any], closing_document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the result document of the closing event, with the nodes and the output of the replayed document.

        The closing event may contain the nodes and the output by reference.
        """
        names = [name for name in replayed_document if name in closing_document and name not in _FIELDS_FROM_EVENTS]
        document = {**replayed_document, **{name: closing_document[name] for name in names}}
        document |= {"run_id": self.run_id, "execution_id": self.execution_id, "status": self.status}
        document["notes"] = [*document["notes"], *(note for note in self.notes if note not in document["notes"])]
        if self.scheduler is not None:
            output, error = self.scheduler.output()
            if error is None and _is_recorded_by_reference(document["output"], output, ref="output"):
                document["output"] = output
        # If a run could not continue in another execution, its compensations are only in the closing event.
        document["nodes"] = {**closing_document.get("nodes", {}), **document["nodes"]}
        return document

    def graph(self) -> dict[str, Any]:
        """Return the nodes with their states, and the edges."""
        return graph_document(self.scheduler) if self.scheduler else {"nodes": [], "edges": []}

    @property
    def reason(self) -> str:
        """Reason why the run waits, for a run with the status `waiting`."""
        if self.scheduler is not None and self.scheduler.features.feedback.requests.open:
            return next(iter(self.scheduler.features.feedback.requests.open.values())).waiting_reason
        records = [record for _, record in self.scheduler.state.visible_nodes()] if self.scheduler else []
        reasons = [record.reason for record in records if record.status is NodeStatus.WAITING and record.reason]
        default_reason = NO_FREE_SLOT if self.has_no_slot else "no worker serves its task queue"
        return reasons[0] if reasons else default_reason

    @property
    def node_counts(self) -> dict[str, int]:
        """State -> number of nodes, without items; empty if there is no plan yet."""
        return node_counts_of(self.scheduler)

    @property
    def nodes_done(self) -> int:
        """Number of nodes that have run and ended, without compensation nodes."""
        return 0 if self.scheduler is None else progress_of(self.scheduler).done

    @property
    def nodes_total(self) -> int | None:
        """Number of nodes of the plan, without compensation nodes; `None` if there is no plan yet."""
        return None if self.scheduler is None else progress_of(self.scheduler).total


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """State of a run at a position in its history.

    Args:
        scheduler: scheduler, rebuilt from the history; `None` while the plan is not known.
        cursor: position of the last applied event.
    """

    scheduler: "RunScheduler | None" = None
    cursor: Cursor = START
    is_closed: bool = False


def _is_recorded_by_reference(recorded_value: Any, value: Any, *, ref: str) -> bool:
    """Return whether a document has only a reference to a value, or to parts of the value."""
    return is_reference(recorded_value, ref=ref) or not is_inline_value(value)
